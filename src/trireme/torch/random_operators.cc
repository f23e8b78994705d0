#include "trireme/torch/random_operators.h"

#include <array>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include "trireme/graph/op_rules.h"
#include "trireme/torch/attention.h"
#include "trireme/torch/dropout.h"
#include "trireme/torch/recurrent.h"

namespace trireme {
namespace {

using Results = std::vector<at::Tensor>;

// The tensor that the operator is named after: its `self` or `input`.
at::Tensor subject(const RandomCall& call) {
  return call.arguments.has("self") ? call.arguments.tensor("self")
                                    : call.arguments.tensor("input");
}

std::vector<int64_t> result_sizes(const RandomCall& call) {
  if (call.arguments.has("size")) return call.arguments.sizes("size");
  return subject(call).sizes().vec();
}

// The digits of a number in [0, 1) of the type.
int fraction_bits(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 53;
    case at::kHalf:
      return 11;
    case at::kBFloat16:
      return 8;
    default:
      return 24;
  }
}

// `drawn`, which takes part in no gradient, in the type and the memory format of the result.
Results finish(const RandomCall& call, const at::Tensor& drawn) {
  TORCH_CHECK(!at::isComplexType(call.dtype),
              "random numbers of a complex type are not supported; draw their two parts");
  at::Tensor result = drawn.to(call.dtype);
  const bool is_like = !call.arguments.has("size") && subject(call).defined() &&
                       subject(call).sizes() == result.sizes();
  if (!is_like || subject(call).is_contiguous()) return {result};
  return {at::empty_like(subject(call), result.options()).copy_(result)};
}

// --- elements by a distribution
// --------------------------------------------------------------------

Results rand(const RandomCall& call) {
  return finish(call, draw_unit(result_sizes(call), call.stream, fraction_bits(call.dtype)));
}

Results uniform(const RandomCall& call) {
  const double from = call.arguments.number("from", 0);
  const double to = call.arguments.number("to", 1);
  TORCH_CHECK(from <= to && std::isfinite(to - from), "uniform_ from ", from, " to ", to);
  Results results =
      finish(call, draw_unit(result_sizes(call), call.stream).mul_(to - from).add_(from));
  // Rounding may reach the end, which is not part of the range.
  if (from < to) results[0].masked_fill_(results[0] >= to, from);
  return results;
}

Results randn(const RandomCall& call) {
  return finish(call, draw_normal(result_sizes(call), call.stream));
}

Results normal(const RandomCall& call) {
  const CallArguments& arguments = call.arguments;
  const at::Tensor mean =
      arguments.is_tensor("mean") ? arguments.tensor("mean").detach() : at::Tensor();
  const at::Tensor std =
      arguments.is_tensor("std") ? arguments.tensor("std").detach() : at::Tensor();
  std::vector<int64_t> sizes;
  if (mean.defined() && std.defined()) {
    sizes = at::infer_size(mean.sizes(), std.sizes());
  } else if (mean.defined() || std.defined()) {
    sizes = (mean.defined() ? mean : std).sizes().vec();
  } else {
    sizes = result_sizes(call);
  }
  const bool is_negative =
      std.defined() ? at::any(std < 0).item<bool>() : arguments.number("std", 1) < 0;
  TORCH_CHECK(!is_negative, "normal with a negative standard deviation");
  at::Tensor drawn = draw_normal(sizes, call.stream);
  drawn = std.defined() ? drawn.mul_(std) : drawn.mul_(arguments.number("std", 1));
  drawn = mean.defined() ? drawn.add_(mean) : drawn.add_(arguments.number("mean", 0));
  return mean.defined() || std.defined() ? Results{drawn.to(call.dtype)} : finish(call, drawn);
}

Results exponential(const RandomCall& call) {
  const double rate = call.arguments.number("lambd", 1);
  TORCH_CHECK(rate > 0, "exponential_ with lambda ", rate, ", which is not more than 0");
  return finish(call, draw_open_unit(result_sizes(call), call.stream).log_().div_(-rate));
}

Results log_normal(const RandomCall& call) {
  const double std = call.arguments.number("std", 2);
  TORCH_CHECK(std > 0, "log_normal_ with std ", std, ", which is not more than 0");
  at::Tensor drawn = draw_normal(result_sizes(call), call.stream);
  return finish(call, drawn.mul_(std).add_(call.arguments.number("mean", 1)).exp_());
}

Results cauchy(const RandomCall& call) {
  const double sigma = call.arguments.number("sigma", 1);
  TORCH_CHECK(sigma > 0, "cauchy_ with sigma ", sigma, ", which is not more than 0");
  at::Tensor drawn = draw_open_unit(result_sizes(call), call.stream).sub_(0.5).mul_(M_PI).tan_();
  return finish(call, drawn.mul_(sigma).add_(call.arguments.number("median", 0)));
}

Results geometric(const RandomCall& call) {
  const double p = call.arguments.number("p");
  TORCH_CHECK(p > 0 && p < 1, "geometric_ with p ", p, ", which is not between 0 and 1");
  at::Tensor drawn = draw_open_unit(result_sizes(call), call.stream).log_().div_(std::log1p(-p));
  return finish(call, drawn.ceil_());
}

// --- integers
// ---------------------------------------------------------------------------------------

Results randint(const RandomCall& call) {
  const int64_t low = call.arguments.integer("low", 0);
  const int64_t high = call.arguments.integer("high");
  TORCH_CHECK(low < high, "random integers from ", low, " to ", high, ", which is not more");
  return finish(call, draw_integers(result_sizes(call), call.stream, low,
                                    static_cast<uint64_t>(high) - static_cast<uint64_t>(low)));
}

// 0 .. the largest whole number below which the type has all of them.
uint64_t whole_numbers(at::ScalarType type) {
  if (at::isFloatingType(type)) return (uint64_t{1} << fraction_bits(type)) + 1;
  if (type == at::kBool) return 2;
  const int value_bits = static_cast<int>(8 * c10::elementSize(type)) - (type == at::kByte ? 0 : 1);
  return uint64_t{1} << value_bits;
}

Results random(const RandomCall& call) {
  const CallArguments& arguments = call.arguments;
  const int64_t from = arguments.integer("from", 0);
  uint64_t range = whole_numbers(call.dtype) - static_cast<uint64_t>(from);
  if (arguments.has("to")) {
    const int64_t to = arguments.integer("to");
    TORCH_CHECK(from < to, "random_ from ", from, " to ", to, ", which is not more");
    range = static_cast<uint64_t>(to) - static_cast<uint64_t>(from);
  }
  return finish(call, draw_integers(result_sizes(call), call.stream, from, range));
}

Results randperm(const RandomCall& call) {
  const int64_t n = call.arguments.integer("n");
  TORCH_CHECK(n >= 0, "a random permutation of ", n);
  const at::Tensor drawn = draw_integers({n}, call.stream, std::numeric_limits<int64_t>::min(), 0);
  return {at::argsort(drawn, /*stable=*/true).to(call.dtype)};
}

// --- by probabilities
// ---------------------------------------------------------------------------------

Results bernoulli(const RandomCall& call) {
  const at::Tensor x = subject(call);
  at::Tensor probability = x;
  if (call.arguments.has("p")) {
    probability = call.arguments.is_tensor("p")
                      ? call.arguments.tensor("p")
                      : at::scalar_tensor(call.arguments.number("p"), at::kDouble);
  }
  probability = probability.detach().to(at::kDouble);
  TORCH_CHECK(probability.numel() == 0 ||
                  at::logical_and(probability >= 0, probability <= 1).all().item<bool>(),
              "bernoulli with a p that is not between 0 and 1");
  return finish(call, draw_unit(x.sizes(), call.stream) < probability);
}

Results multinomial(const RandomCall& call) {
  const at::Tensor weights = subject(call).detach().to(at::kDouble);
  const int64_t count = call.arguments.integer("num_samples");
  const bool replaces = call.arguments.flag("replacement");
  TORCH_CHECK(weights.dim() == 1 || weights.dim() == 2, "multinomial of ", weights.dim(), " dims");
  TORCH_CHECK(count > 0, "multinomial of ", count, " samples");
  TORCH_CHECK(replaces || count <= weights.size(-1), "multinomial draws ", count, " of ",
              weights.size(-1), " categories without replacement");
  const bool is_valid = at::logical_and(weights >= 0, at::isfinite(weights)).all().item<bool>() &&
                        (weights.sum(-1) > 0).all().item<bool>();
  TORCH_CHECK(is_valid, "multinomial of weights that are negative, not finite, or all 0 in a row");
  if (replaces) {
    std::vector<int64_t> sizes = weights.sizes().vec();
    sizes.back() = count;
    const at::Tensor sums = weights.cumsum(-1);
    // 52 bits: the product stays below the sum.
    const at::Tensor drawn = draw_unit(sizes, call.stream, 52).mul_(sums.narrow(-1, -1, 1));
    return {at::searchsorted(sums, drawn, /*out_int32=*/false, /*right=*/true)};
  }
  // The first arrivals of a race: category k takes an exponential time of rate weight k.
  const at::Tensor times = draw_open_unit(weights.sizes(), call.stream).log_().neg_();
  return {std::get<1>(at::topk(weights / times, count, -1))};
}

// --- in training only
// -----------------------------------------------------------------------------------

Results dropout(const RandomCall& call) {
  return {counter_dropout(subject(call), call.arguments.number("p"), call.stream)};
}

// What torch::nn.functional multiplies by: 1 where it keeps, 0 where it drops; a number a channel.
at::Tensor kept(const RandomCall& call, bool is_by_channel) {
  const at::Tensor x = subject(call);
  std::vector<int64_t> sizes = x.sizes().vec();
  if (is_by_channel) {
    TORCH_CHECK(x.dim() >= 2, "dropout of channels needs at least 2 dims, not ", x.dim());
    std::fill(sizes.begin() + 2, sizes.end(), 1);
  }
  const double p = call.arguments.number("p");
  TORCH_CHECK(p >= 0 && p <= 1, "dropout with p ", p, ", which is not between 0 and 1");
  return (draw_unit(sizes, call.stream) >= p).to(x.scalar_type());
}

Results feature_dropout(const RandomCall& call) {
  const double p = call.arguments.number("p");
  const at::Tensor noise = kept(call, /*is_by_channel=*/true);
  return {subject(call) * (p == 1 ? noise : noise / (1 - p))};
}

// Klambauer et al., 2017, "Self-normalizing neural networks": keeps mean 0 and variance 1 of what
// SELU gives; what is dropped takes SELU's lowest value.
Results alpha_dropout_by(const RandomCall& call, bool is_by_channel) {
  const double p = call.arguments.number("p");
  const at::Tensor noise = kept(call, is_by_channel);
  if (p == 1) return {subject(call) * noise};
  constexpr double kLowest = 1.7580993408473766;
  const double scale = 1 / std::sqrt((kLowest * kLowest * p + 1) * (1 - p));
  const at::Tensor shift = (noise - 1) * (kLowest * scale) + kLowest * scale * p;
  return {subject(call) * (noise * scale) + shift};
}

Results alpha_dropout(const RandomCall& call) { return alpha_dropout_by(call, false); }
Results feature_alpha_dropout(const RandomCall& call) { return alpha_dropout_by(call, true); }

// A random slope for each element that is not positive.
Results rrelu(const RandomCall& call) {
  const at::Tensor x = subject(call);
  const double lower = call.arguments.number("lower");
  const double upper = call.arguments.number("upper");
  TORCH_CHECK(lower <= upper, "rrelu from ", lower, " to ", upper);
  const at::Tensor slopes = draw_unit(x.sizes(), call.stream).mul_(upper - lower).add_(lower);
  const at::Tensor factors =
      at::where(x.detach() <= 0, slopes.to(x.scalar_type()), at::ones({}, x.options()));
  if (call.arguments.has("noise")) call.arguments.tensor("noise").copy_(factors);
  return {x * factors};
}

Results attention(const RandomCall& call) {
  const CallArguments& arguments = call.arguments;
  AttentionOptions options = {.dropout_p = arguments.number("dropout_p"),
                              .is_causal = arguments.flag("is_causal"),
                              .scale = {},
                              .enable_gqa = arguments.flag("enable_gqa")};
  if (arguments.has("scale")) options.scale = arguments.number("scale");
  return {attention_with_dropout(arguments.tensor("query"), arguments.tensor("key"),
                                 arguments.tensor("value"), arguments.tensor("attn_mask"), options,
                                 call.stream)};
}

template <RecurrentKind kKind>
Results recurrent(const RandomCall& call) {
  const CallArguments& arguments = call.arguments;
  const bool is_lstm = kKind == RecurrentKind::kLstm;
  return recurrent_with_dropout(kKind, arguments.tensor("input"),
                                is_lstm ? arguments.tensors("hx") : Results{arguments.tensor("hx")},
                                arguments.tensors("params"),
                                {.has_biases = arguments.flag("has_biases"),
                                 .num_layers = arguments.integer("num_layers"),
                                 .dropout_p = arguments.number("dropout"),
                                 .is_bidirectional = arguments.flag("bidirectional"),
                                 .is_batch_first = arguments.flag("batch_first")},
                                call.stream);
}

constexpr std::array kRows = {
    RandomOperator{"dropout", dropout},
    RandomOperator{"alpha_dropout", alpha_dropout},
    RandomOperator{"feature_dropout", feature_dropout},
    RandomOperator{"feature_alpha_dropout", feature_alpha_dropout},
    RandomOperator{"scaled_dot_product_attention", attention},
    RandomOperator{"lstm", recurrent<RecurrentKind::kLstm>},
    RandomOperator{"gru", recurrent<RecurrentKind::kGru>},
    RandomOperator{"rnn_tanh", recurrent<RecurrentKind::kRnnTanh>},
    RandomOperator{"rnn_relu", recurrent<RecurrentKind::kRnnRelu>},
    RandomOperator{"rrelu", rrelu},
    RandomOperator{"rrelu_with_noise", rrelu},
    RandomOperator{"rand", rand},
    RandomOperator{"rand_like", rand},
    RandomOperator{"randn", randn},
    RandomOperator{"randn_like", randn},
    RandomOperator{"randint", randint},
    RandomOperator{"randint_like", randint},
    RandomOperator{"normal", normal},
    RandomOperator{"uniform", uniform},
    RandomOperator{"exponential", exponential},
    RandomOperator{"log_normal", log_normal},
    RandomOperator{"cauchy", cauchy},
    RandomOperator{"geometric", geometric},
    RandomOperator{"random", random},
    RandomOperator{"bernoulli", bernoulli},
    RandomOperator{"multinomial", multinomial},
    RandomOperator{"randperm", randperm},
};

}  // namespace

const RandomOperator* find_random_operator(std::string_view op) {
  const std::string_view name = without_in_place_mark(base_name(op));
  for (const RandomOperator& row : kRows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::vector<at::Tensor> run_random(const RandomOperator& random, std::string_view op,
                                   const RandomCall& call) {
  Results results = random.run(call);
  if (base_name(op) == random.name) return results;
  return {subject(call).copy_(results[0])};
}

}  // namespace trireme
