#include "trireme/cost/model_spec.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "trireme/base/one_line.h"

namespace trireme {
namespace {

constexpr std::string_view kFamily = "gpt:";
constexpr std::string_view kExample =
    "a model is gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=50257";

// The bounds keep every count of flops and bytes far from the end of an int64_t.
struct Key {
  std::string_view name;
  int64_t ModelSpec::* member;
  int64_t most;
};
constexpr std::array kKeys = {
    Key{"layers", &ModelSpec::layers, 1 << 14},  //
    Key{"hidden", &ModelSpec::hidden, 1 << 20},  //
    Key{"heads", &ModelSpec::heads, 1 << 16},    //
    Key{"seq", &ModelSpec::seq, 1 << 24},        //
    Key{"vocab", &ModelSpec::vocab, 1 << 24},
};

}  // namespace

bool is_model_spec(std::string_view text) { return text.starts_with(kFamily); }

std::string to_text(const ModelSpec& spec) {
  std::string text(kFamily);
  for (const Key& key : kKeys) {
    text += fmt::format("{}{}={}", &key == &kKeys.front() ? "" : ",", key.name, spec.*key.member);
  }
  return text;
}

Status verify_model_spec(const ModelSpec& spec) {
  for (const Key& key : kKeys) {
    const int64_t value = spec.*key.member;
    if (value >= 1 && value <= key.most) continue;
    return Error{fmt::format("{} of a model is {}, not 1 to {}", key.name, value, key.most)};
  }
  if (spec.hidden % spec.heads == 0) return Status();
  return Error{fmt::format("{} heads do not divide hidden={}", spec.heads, spec.hidden)};
}

Result<ModelSpec> parse_model_spec(std::string_view text) {
  if (!is_model_spec(text)) {
    return Error{fmt::format("{} is no model of a known family; {}", in_quotes(text), kExample)};
  }
  ModelSpec spec;
  std::array<bool, kKeys.size()> is_given = {};
  std::string_view rest = text.substr(kFamily.size());
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const size_t equals = item.find('=');
    const auto* key = std::ranges::find(kKeys, item.substr(0, equals), &Key::name);
    if (equals == std::string_view::npos || key == kKeys.end()) {
      return Error{fmt::format("{} is no size of a model; {}", in_quotes(item), kExample)};
    }
    const std::string_view digits = item.substr(equals + 1);
    const char* begin = digits.data();  // NOLINT(bugprone-suspicious-stringview-data-usage)
    const char* end = begin + digits.size();
    const auto parsed = std::from_chars(begin, end, spec.*key->member);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      return Error{
          fmt::format("{} of a model is {}, not 1 to {}", key->name, in_quotes(digits), key->most)};
    }
    bool& given = is_given[static_cast<size_t>(key - kKeys.begin())];
    if (given) return Error{fmt::format("{} of a model is given twice", key->name)};
    given = true;
    if (item.size() == rest.size()) break;
    rest.remove_prefix(item.size() + 1);
  }
  for (size_t i = 0; i < kKeys.size(); ++i) {
    if (!is_given[i]) return Error{fmt::format("{} is missing; {}", kKeys[i].name, kExample)};
  }
  TRIREME_TRY(verify_model_spec(spec));
  return spec;
}

int64_t num_parameters(const ModelSpec& spec) {
  const int64_t h = spec.hidden;
  // Four matrices of attention, two of the feed-forward layer, their biases, two layer norms.
  const int64_t layer = 12 * h * h + 13 * h;
  return spec.layers * layer + (spec.vocab + spec.seq) * h + 2 * h;
}

}  // namespace trireme
