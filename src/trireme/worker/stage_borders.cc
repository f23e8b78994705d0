#include "trireme/worker/stage_borders.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"

namespace trireme {

Status StageBorders::drop(Kernels& kernels, const Action& send) {
  const Result<Message> message = kernels.message(send);
  return message.ok() ? Status() : Status(message.error());
}

Status StageBorders::keep(Kernels& kernels, const Action& send, int32_t border) {
  TRIREME_TRY(const Message message, kernels.message(send));
  Parts& parts =
      send.kind == ActionKind::kSendActivation ? activations_[border] : gradients_[border];
  parts.clear();
  for (const std::span<std::byte> part : message.parts)
    parts.emplace_back(part.begin(), part.end());
  return Status();
}

Status StageBorders::give(Kernels& kernels, const Action& receive, int32_t border) const {
  TRIREME_TRY(const Message message, kernels.message(receive));
  const Parts& parts = receive.kind == ActionKind::kReceiveActivation ? activations_.at(border)
                                                                      : gradients_.at(border);
  TRIREME_CHECK(parts.size() == message.parts.size(), "the same tensors cross a border each time");
  for (size_t i = 0; i < parts.size(); ++i) {
    std::span<std::byte> rest = message.parts[i];
    if (parts[i].empty() && !rest.empty()) std::memset(rest.data(), 0, rest.size());
    while (!rest.empty() && !parts[i].empty()) {
      const size_t count = std::min(rest.size(), parts[i].size());
      std::memcpy(rest.data(), parts[i].data(), count);
      rest = rest.subspan(count);
    }
  }
  return kernels.complete(receive);
}

}  // namespace trireme
