// Reading YAML that people write: maps of known keys, and errors that name a line.
//
// yaml-cpp reports by exceptions. So does what is here, but only up to read_yaml(), where they end:
//
//   Result<Cluster> parse_cluster(std::string_view text) {
//     return read_yaml<Cluster>(text, [](const YAML::Node& root) {
//       const YamlKeys keys(root, "the cluster", {"name", "hosts"});
//       return Cluster{.name = keys.get<std::string>("name")};
//     });
//   }
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "trireme/base/json_text.h"
#include "trireme/base/one_line.h"
#include "trireme/base/result.h"

namespace trireme {

// What is wrong with a file, thrown to read_yaml().
struct WrongYaml {
  YAML::Mark mark;
  std::string what;
};

// A string, or nothing where the node is absent. No name has control characters, and the emitter
// would write them as they are; yaml-cpp makes no UTF-8 of the escapes "\N" and "\_".
[[nodiscard]] inline std::string text_of(const YAML::Node& node) {
  if (!node.IsDefined()) return "";
  const auto text = node.as<std::string>();
  if (!is_utf8(text)) throw WrongYaml{node.Mark(), "a string is not UTF-8 text"};
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code >= 0x20 && code != 0x7F) continue;
    throw WrongYaml{node.Mark(), fmt::format("{} has a control character", in_quotes(text))};
  }
  return text;
}

// A map that may have some keys and no others: a key with a typing error is no default.
class YamlKeys {
 public:
  YamlKeys(const YAML::Node& node, const char* what, const std::set<std::string>& known)
      : node_(node), what_(what) {
    if (!node.IsMap()) throw WrongYaml{node.Mark(), fmt::format("{} is no map of keys", what)};
    for (const auto& entry : node) {
      const std::string key = text_of(entry.first);
      if (known.contains(key)) continue;
      throw WrongYaml{entry.first.Mark(), fmt::format("{} has no key {}", what, in_quotes(key))};
    }
  }

  [[nodiscard]] YAML::Mark mark() const { return node_.Mark(); }
  [[nodiscard]] bool has(const char* key) const { return static_cast<bool>(node_[key]); }
  [[nodiscard]] YAML::Node needed(const char* key) const {
    if (has(key)) return node_[key];
    throw WrongYaml{mark(), fmt::format("{} has no '{}'", what_, key)};
  }
  [[nodiscard]] YAML::Node needed_list(const char* key) const {
    if (needed(key).IsSequence()) return node_[key];
    throw WrongYaml{node_[key].Mark(), fmt::format("{} is no list", key)};
  }
  [[nodiscard]] YAML::Node needed_map(const char* key) const {
    if (needed(key).IsMap()) return node_[key];
    throw WrongYaml{node_[key].Mark(), fmt::format("{} is no map of keys", key)};
  }
  template <typename Value>
  [[nodiscard]] Value get(const char* key) const {
    if constexpr (std::is_same_v<Value, std::string>) return text_of(needed(key));
    return needed(key).as<Value>();
  }
  template <typename Value>
  [[nodiscard]] Value get(const char* key, const Value& otherwise) const {
    return has(key) ? get<Value>(key) : otherwise;
  }

 private:
  YAML::Node node_;
  const char* what_;
};

// `read` makes a Value of the root node.
template <typename Value, typename Read>
Result<Value> read_yaml(std::string_view text, Read read) {
  // The emitter could not write such strings again.
  if (!is_utf8(text)) return Error{"it is not UTF-8 text"};
  try {
    return read(YAML::Load(std::string(text)));
  } catch (const WrongYaml& wrong) {
    return Error{fmt::format("line {}: {}", wrong.mark.line + 1, wrong.what)};
  } catch (const YAML::BadConversion& exception) {
    return Error{fmt::format("line {}: the value is of another kind than expected",
                             exception.mark.line + 1)};
  } catch (const YAML::Exception& exception) {
    return Error{
        fmt::format("line {} is not YAML ({})", exception.mark.line + 1, one_line(exception.msg))};
  }
}

}  // namespace trireme
