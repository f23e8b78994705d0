// ModelSpec: a transformer given by its sizes, for costs of a model that nobody has exported.
//
//   gpt:layers=96,hidden=12288,heads=96,seq=2048,vocab=50257
//
// A decoder as GPT-2's: learned positions, a feed-forward layer of four times the width, biases,
// and a head that shares its weights with the embedding.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/result.h"

namespace trireme {

struct ModelSpec {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t seq = 0;    // tokens of a sample
  int64_t vocab = 0;  // tokens that there are
  bool operator==(const ModelSpec&) const = default;
};

// True for a text that names a model by its sizes and no file.
[[nodiscard]] bool is_model_spec(std::string_view text);

// Inverses of each other. Each key once, in any order.
[[nodiscard]] std::string to_text(const ModelSpec& spec);
[[nodiscard]] Result<ModelSpec> parse_model_spec(std::string_view text);

// Every size is at least 1 and within its bound, and the heads divide the width.
[[nodiscard]] Status verify_model_spec(const ModelSpec& spec);

// The trained numbers of the whole model.
[[nodiscard]] int64_t num_parameters(const ModelSpec& spec);

}  // namespace trireme
