// Recurrent layers with dropout between them: torch's own hide it in one operator, with its own
// generator.
#pragma once

#include <vector>

#include "trireme/torch/draw_stream.h"

namespace trireme {

enum class RecurrentKind : uint8_t { kLstm, kGru, kRnnTanh, kRnnRelu };

struct RecurrentOptions {
  bool has_biases = true;
  int64_t num_layers = 1;
  double dropout_p = 0;  // of what a layer passes to the next
  bool is_bidirectional = false;
  bool is_batch_first = false;
};

// As aten::lstm.input and so on: layer by layer, by the same operators, with counted dropout
// between. `hidden` is the first state, of an LSTM (hidden, cell); `stream` places the input.
// Returns the output and the last states.
[[nodiscard]] std::vector<at::Tensor> recurrent_with_dropout(RecurrentKind kind,
                                                             const at::Tensor& input,
                                                             const std::vector<at::Tensor>& hidden,
                                                             const std::vector<at::Tensor>& weights,
                                                             const RecurrentOptions& options,
                                                             const DrawStream& stream);

}  // namespace trireme
