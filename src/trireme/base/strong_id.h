// StrongId<Tag>: an index that cannot be mixed up with another kind of index.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace trireme {

template <typename Tag>
struct StrongId {
  int32_t value = -1;

  constexpr StrongId() = default;
  constexpr explicit StrongId(int64_t index) : value(static_cast<int32_t>(index)) {}
  [[nodiscard]] constexpr bool is_valid() const { return value >= 0; }
  constexpr auto operator<=>(const StrongId&) const = default;
};

}  // namespace trireme

template <typename Tag>
struct std::hash<trireme::StrongId<Tag>> {
  std::size_t operator()(trireme::StrongId<Tag> id) const noexcept {
    return std::hash<int32_t>()(id.value);
  }
};
