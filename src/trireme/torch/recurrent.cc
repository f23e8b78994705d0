#include "trireme/torch/recurrent.h"

#include <ATen/ATen.h>

#include "trireme/torch/dropout.h"

namespace trireme {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors run_layer(RecurrentKind kind, const at::Tensor& x, const Tensors& hidden,
                  const Tensors& weights, const RecurrentOptions& options) {
  constexpr bool kTrains = true;  // of no effect without dropout
  constexpr bool kBatchFirst = false;
  const auto all = [](auto results) {
    return std::apply([](auto... each) { return Tensors{each...}; }, std::move(results));
  };
  switch (kind) {
    case RecurrentKind::kLstm:
      return all(at::lstm(x, hidden, weights, options.has_biases, 1, 0.0, kTrains,
                          options.is_bidirectional, kBatchFirst));
    case RecurrentKind::kGru:
      return all(at::gru(x, hidden[0], weights, options.has_biases, 1, 0.0, kTrains,
                         options.is_bidirectional, kBatchFirst));
    case RecurrentKind::kRnnTanh:
      return all(at::rnn_tanh(x, hidden[0], weights, options.has_biases, 1, 0.0, kTrains,
                              options.is_bidirectional, kBatchFirst));
    case RecurrentKind::kRnnRelu:
      return all(at::rnn_relu(x, hidden[0], weights, options.has_biases, 1, 0.0, kTrains,
                              options.is_bidirectional, kBatchFirst));
  }
  TORCH_CHECK(false, "an unknown kind of recurrent layer");
}

}  // namespace

Tensors recurrent_with_dropout(RecurrentKind kind, const at::Tensor& input, const Tensors& hidden,
                               const Tensors& weights, const RecurrentOptions& options,
                               const DrawStream& stream) {
  const int64_t directions = options.is_bidirectional ? 2 : 1;
  const auto a_layer = static_cast<int64_t>(weights.size()) / options.num_layers;
  TORCH_CHECK(a_layer * options.num_layers == static_cast<int64_t>(weights.size()), weights.size(),
              " weights for ", options.num_layers, " layers");
  // Turned once, as torch does: the same products of the same matrices.
  at::Tensor x = options.is_batch_first ? input.transpose(0, 1) : input;
  DrawStream turned = stream;
  if (options.is_batch_first && (stream.batch_dim == 0 || stream.batch_dim == 1)) {
    turned.batch_dim = 1 - stream.batch_dim;
  }
  std::vector<Tensors> states(hidden.size());
  for (int64_t layer = 0; layer < options.num_layers; ++layer) {
    if (layer > 0) {
      x = counter_dropout(x, options.dropout_p, substream(turned, static_cast<uint64_t>(layer)));
    }
    Tensors first;
    for (const at::Tensor& state : hidden) {
      first.push_back(state.narrow(0, layer * directions, directions));
    }
    const Tensors made = run_layer(
        kind, x, first,
        {weights.begin() + layer * a_layer, weights.begin() + (layer + 1) * a_layer}, options);
    x = made[0];
    for (size_t i = 0; i < states.size(); ++i) states[i].push_back(made[i + 1]);
  }
  Tensors results = {options.is_batch_first ? x.transpose(0, 1) : x};
  for (const Tensors& each : states) results.push_back(at::cat(each, 0));
  return results;
}

}  // namespace trireme
