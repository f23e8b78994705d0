#include "trireme/graph/op_rules.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace trireme {
namespace {

using Sizes = std::vector<int64_t>;

double numel(const Sizes& sizes) {
  double product = 1;
  for (const int64_t size : sizes) product *= static_cast<double>(size);
  return product;
}

const Sizes& input(const OpSizes& sizes, std::string_view name, size_t index = 0) {
  static const Sizes kScalar;
  const auto found = sizes.inputs.find(name);
  return found == sizes.inputs.end() || found->second.size() <= index ? kScalar
                                                                      : found->second[index];
}

int64_t dim_from_end(const Sizes& sizes, size_t back) {
  return sizes.size() < back ? 1 : sizes[sizes.size() - back];
}

double outputs_numel(const OpSizes& sizes) {
  double sum = 0;
  for (const Sizes& output : sizes.outputs) sum += numel(output);
  return sum;
}

double inputs_numel(const OpSizes& sizes) {
  double sum = 0;
  for (const auto& [name, tensors] : sizes.inputs) {
    for (const Sizes& tensor : tensors) sum += numel(tensor);
  }
  return sum;
}

double no_flops(const OpSizes& /*sizes*/) { return 0; }
double one_an_output(const OpSizes& sizes) { return outputs_numel(sizes); }
double one_an_input(const OpSizes& sizes) { return inputs_numel(sizes); }
// exp, tanh and the like: about ten operations an element.
double ten_an_output(const OpSizes& sizes) { return 10 * outputs_numel(sizes); }
// A normalization reads its input twice and scales and shifts it: about eight an element.
double eight_an_output(const OpSizes& sizes) {
  return sizes.outputs.empty() ? 0 : 8 * numel(sizes.outputs[0]);
}
double linear_flops(const OpSizes& sizes) {
  const Sizes& weight = input(sizes, "weight");
  return 2 * numel(input(sizes, "input")) * static_cast<double>(weight.empty() ? 1 : weight[0]);
}
double matmul_flops(const OpSizes& sizes) {
  const double inner = static_cast<double>(dim_from_end(input(sizes, "self"), 1));
  return 2 * inner * outputs_numel(sizes);
}
double addmm_flops(const OpSizes& sizes) {
  const double inner = static_cast<double>(dim_from_end(input(sizes, "mat1"), 1));
  return 2 * inner * outputs_numel(sizes);
}
double baddbmm_flops(const OpSizes& sizes) {
  const double inner = static_cast<double>(dim_from_end(input(sizes, "batch1"), 1));
  return 2 * inner * outputs_numel(sizes);
}
double grouped_mm_flops(const OpSizes& sizes) {
  const double inner = static_cast<double>(dim_from_end(input(sizes, "input"), 1));
  return 2 * inner * outputs_numel(sizes);
}
// Each row of the input meets every weight of its cell once.
double cell_flops(const OpSizes& sizes) {
  const Sizes& x = input(sizes, "input");
  const double rows = x.size() < 2 ? 1.0 : static_cast<double>(x[0]);
  return 2 * rows * (numel(input(sizes, "w_ih")) + numel(input(sizes, "w_hh")));
}
double bilinear_flops(const OpSizes& sizes) {
  const double width = static_cast<double>(dim_from_end(input(sizes, "input1"), 1));
  return 2 * numel(input(sizes, "weight")) * numel(input(sizes, "input1")) / std::max(width, 1.0);
}
double convolution_flops(const OpSizes& sizes) {
  const Sizes& weight = input(sizes, "weight");
  if (weight.empty() || sizes.outputs.empty()) return 0;
  return 2 * numel(sizes.outputs[0]) * numel(weight) / static_cast<double>(weight[0]);
}
// Its weight is [inputs, outputs of a group, ...]: an element of the input meets all but dim 0.
double transposed_convolution_flops(const OpSizes& sizes) {
  const Sizes& weight = input(sizes, "weight");
  if (weight.empty() || weight[0] == 0) return 0;
  return 2 * numel(input(sizes, "input")) * numel(weight) / static_cast<double>(weight[0]);
}
// Two batched products: queries with keys, probabilities with values. Causal masks are counted in
// full, as the field does for model flops.
double attention_flops(const OpSizes& sizes) {
  const Sizes& query = input(sizes, "query");
  const Sizes& key = input(sizes, "key");
  const Sizes& value = input(sizes, "value");
  const double scores = numel(query) * static_cast<double>(dim_from_end(key, 2));
  return 2 * scores + 2 * scores /
                          static_cast<double>(std::max<int64_t>(dim_from_end(query, 1), 1)) *
                          static_cast<double>(dim_from_end(value, 1));
}
// Four gates, each with one product with the input and one with the hidden state, both directions
// and all layers: two flops a weight and step.
double recurrent_flops(const OpSizes& sizes) {
  double weights = 0;
  const auto found = sizes.inputs.find("params");
  if (found == sizes.inputs.end()) return one_an_input(sizes);
  for (const Sizes& weight : found->second) weights += weight.size() == 2 ? numel(weight) : 0;
  const Sizes& x = input(sizes, "input");
  return 2 * weights * (x.size() < 2 ? 1.0 : static_cast<double>(x[0] * x[1]));
}

constexpr auto kFresh = AliasKind::kFresh;
constexpr auto kView = AliasKind::kView;

constexpr std::array kRules = {
    // Products of matrices.
    OpRule{"linear", OpKind::kMatmul, kFresh, linear_flops},
    OpRule{"matmul", OpKind::kMatmul, kFresh, matmul_flops},
    OpRule{"mm", OpKind::kMatmul, kFresh, matmul_flops},
    OpRule{"bmm", OpKind::kMatmul, kFresh, matmul_flops},
    OpRule{"mv", OpKind::kMatmul, kFresh, matmul_flops},
    OpRule{"addmm", OpKind::kMatmul, kFresh, addmm_flops},
    OpRule{"baddbmm", OpKind::kMatmul, kFresh, baddbmm_flops},
    // Of one operand einsum is a view.
    OpRule{"einsum", OpKind::kMatmul, kView, one_an_input},
    OpRule{"_grouped_mm", OpKind::kMatmul, kFresh, matmul_flops},
    OpRule{"transformers.grouped_mm_fallback", OpKind::kMatmul, kFresh, grouped_mm_flops},
    OpRule{"conv1d", OpKind::kConvolution, kFresh, convolution_flops},
    OpRule{"conv2d", OpKind::kConvolution, kFresh, convolution_flops},
    OpRule{"conv3d", OpKind::kConvolution, kFresh, convolution_flops},
    OpRule{"convolution", OpKind::kConvolution, kFresh, convolution_flops},
    OpRule{"conv_transpose1d", OpKind::kConvolution, kFresh, transposed_convolution_flops},
    OpRule{"conv_transpose2d", OpKind::kConvolution, kFresh, transposed_convolution_flops},
    OpRule{"conv_transpose3d", OpKind::kConvolution, kFresh, transposed_convolution_flops},
    OpRule{"lstm", OpKind::kMatmul, kFresh, recurrent_flops},
    OpRule{"gru", OpKind::kMatmul, kFresh, recurrent_flops},
    OpRule{"rnn_tanh", OpKind::kMatmul, kFresh, recurrent_flops},
    OpRule{"rnn_relu", OpKind::kMatmul, kFresh, recurrent_flops},
    OpRule{"lstm_cell", OpKind::kMatmul, kFresh, cell_flops},
    OpRule{"gru_cell", OpKind::kMatmul, kFresh, cell_flops},
    OpRule{"rnn_tanh_cell", OpKind::kMatmul, kFresh, cell_flops},
    OpRule{"rnn_relu_cell", OpKind::kMatmul, kFresh, cell_flops},
    OpRule{"bilinear", OpKind::kMatmul, kFresh, bilinear_flops},
    OpRule{"dot", OpKind::kMatmul, kFresh, matmul_flops},
    OpRule{"outer", OpKind::kMatmul, kFresh, one_an_output},
    OpRule{"scaled_dot_product_attention", OpKind::kAttention, kFresh, attention_flops},
    // Normalizations.
    OpRule{"layer_norm", OpKind::kNormalization, kFresh, eight_an_output},
    OpRule{"rms_norm", OpKind::kNormalization, kFresh, eight_an_output},
    OpRule{"batch_norm", OpKind::kNormalization, kFresh, eight_an_output},
    OpRule{"group_norm", OpKind::kNormalization, kFresh, eight_an_output},
    OpRule{"instance_norm", OpKind::kNormalization, kFresh, eight_an_output},
    OpRule{"softmax", OpKind::kNormalization, kFresh, ten_an_output},
    OpRule{"_softmax", OpKind::kNormalization, kFresh, ten_an_output},
    OpRule{"log_softmax", OpKind::kNormalization, kFresh, ten_an_output},
    OpRule{"_weight_norm", OpKind::kNormalization, kFresh, eight_an_output},
    OpRule{"cosine_similarity", OpKind::kNormalization, kFresh, eight_an_output},
    // Losses.
    OpRule{"cross_entropy_loss", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"nll_loss_nd", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"nll_loss", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"mse_loss", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"l1_loss", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"smooth_l1_loss", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"huber_loss", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"binary_cross_entropy", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"binary_cross_entropy_with_logits", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"kl_div", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"ctc_loss", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"cosine_embedding_loss", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"triplet_margin_loss", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"margin_ranking_loss", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"hinge_embedding_loss", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"multi_margin_loss", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"soft_margin_loss", OpKind::kLoss, kFresh, one_an_input},
    OpRule{"poisson_nll_loss", OpKind::kLoss, kFresh, one_an_input},
    // Element by element.
    OpRule{"add", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"sub", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"rsub", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"mul", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"div", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"floor_divide", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"remainder", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"neg", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"abs", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"sign", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"relu", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"relu6", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"hardtanh", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"leaky_relu", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"clamp", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"clamp_min", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"minimum", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"maximum", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"square", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"reciprocal", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"lerp", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"addcmul", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"addcdiv", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"clamp_max", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"prelu", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"threshold", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"floor", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"ceil", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"round", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"trunc", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"frac", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"fmod", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"nan_to_num", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"hardshrink", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"softshrink", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"logical_xor", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"copy", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"fill", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"gelu", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"glu", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"selu", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"celu", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"log2", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"log10", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"exp2", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"expm1", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"tan", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"atan", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"atan2", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"logaddexp", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"erfinv", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"silu", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"mish", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"elu", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"softplus", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"sigmoid", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"log_sigmoid", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"hardswish", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"hardsigmoid", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"tanh", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"exp", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"log", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"log1p", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"sin", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"cos", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"erf", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"pow", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"sqrt", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"rsqrt", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"eq", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"ne", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"lt", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"le", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"gt", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"ge", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"__and__", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"__or__", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"bitwise_and", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"bitwise_or", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"bitwise_not", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"logical_and", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"logical_or", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"logical_not", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"isnan", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"isinf", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"where", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"masked_fill", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"tril", OpKind::kElementwise, kFresh, no_flops},
    OpRule{"triu", OpKind::kElementwise, kFresh, no_flops},
    // Reductions.
    OpRule{"sum", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"mean", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"var", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"var_mean", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"std", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"norm", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"linalg_vector_norm", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"min", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"max", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"amax", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"amin", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"argmax", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"argmin", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"any", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"all", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"cumsum", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"cumprod", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"prod", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"logcumsumexp", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"avg_pool1d", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"avg_pool3d", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"max_pool1d", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"max_pool3d", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"adaptive_avg_pool3d", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"adaptive_max_pool2d", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"logsumexp", OpKind::kReduction, kFresh, ten_an_output},
    OpRule{"histc", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"bincount", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"avg_pool2d", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"max_pool2d", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"adaptive_avg_pool1d", OpKind::kReduction, kFresh, one_an_input},
    OpRule{"adaptive_avg_pool2d", OpKind::kReduction, kFresh, one_an_input},
    // Rows, indices and order.
    OpRule{"embedding", OpKind::kIndexing, kFresh, no_flops},
    OpRule{"embedding_bag", OpKind::kIndexing, kFresh, one_an_output},
    OpRule{"index", OpKind::kIndexing, kFresh, no_flops},
    OpRule{"index_select", OpKind::kIndexing, kFresh, no_flops},
    OpRule{"index_put", OpKind::kIndexing, kFresh, no_flops},
    OpRule{"index_add", OpKind::kIndexing, kFresh, one_an_output},
    OpRule{"gather", OpKind::kIndexing, kFresh, no_flops},
    OpRule{"scatter", OpKind::kIndexing, kFresh, no_flops},
    OpRule{"scatter_add", OpKind::kIndexing, kFresh, one_an_output},
    OpRule{"scatter_reduce", OpKind::kIndexing, kFresh, one_an_output},
    OpRule{"index_copy", OpKind::kIndexing, kFresh, one_an_output},
    OpRule{"index_fill", OpKind::kIndexing, kFresh, one_an_output},
    OpRule{"masked_scatter", OpKind::kIndexing, kFresh, one_an_output},
    OpRule{"slice_scatter", OpKind::kIndexing, kFresh, one_an_output},
    OpRule{"select_scatter", OpKind::kIndexing, kFresh, one_an_output},
    OpRule{"take_along_dim", OpKind::kIndexing, kFresh, no_flops},
    OpRule{"searchsorted", OpKind::kIndexing, kFresh, one_an_output},
    OpRule{"grid_sampler", OpKind::kIndexing, kFresh, one_an_output},
    OpRule{"topk", OpKind::kIndexing, kFresh, one_an_input},
    OpRule{"sort", OpKind::kIndexing, kFresh, one_an_input},
    OpRule{"argsort", OpKind::kIndexing, kFresh, one_an_input},
    OpRule{"nonzero", OpKind::kIndexing, kFresh, no_flops},
    OpRule{"one_hot", OpKind::kIndexing, kFresh, no_flops},
    OpRule{"bucketize", OpKind::kIndexing, kFresh, one_an_output},
    OpRule{"roll", OpKind::kIndexing, kFresh, no_flops},
    OpRule{"flip", OpKind::kIndexing, kFresh, no_flops},
    // Shapes: views, or copies that only move bytes.
    OpRule{"view", OpKind::kShape, kView, no_flops},
    OpRule{"view_as", OpKind::kShape, kView, no_flops},
    OpRule{"reshape", OpKind::kShape, kView, no_flops},
    OpRule{"flatten", OpKind::kShape, kView, no_flops},
    OpRule{"unflatten", OpKind::kShape, kView, no_flops},
    OpRule{"transpose", OpKind::kShape, kView, no_flops},
    OpRule{"t", OpKind::kShape, kView, no_flops},
    OpRule{"numpy_T", OpKind::kShape, kView, no_flops},
    OpRule{"mT", OpKind::kShape, kView, no_flops},
    OpRule{"swapaxes", OpKind::kShape, kView, no_flops},
    OpRule{"swapdims", OpKind::kShape, kView, no_flops},
    OpRule{"moveaxis", OpKind::kShape, kView, no_flops},
    OpRule{"ravel", OpKind::kShape, kView, no_flops},
    OpRule{"permute", OpKind::kShape, kView, no_flops},
    OpRule{"movedim", OpKind::kShape, kView, no_flops},
    OpRule{"unsqueeze", OpKind::kShape, kView, no_flops},
    OpRule{"squeeze", OpKind::kShape, kView, no_flops},
    OpRule{"expand", OpKind::kShape, kView, no_flops},
    OpRule{"expand_as", OpKind::kShape, kView, no_flops},
    OpRule{"broadcast_to", OpKind::kShape, kView, no_flops},
    OpRule{"broadcast_tensors", OpKind::kShape, AliasKind::kUnknown, no_flops},
    OpRule{"slice", OpKind::kShape, kView, no_flops},
    OpRule{"select", OpKind::kShape, kView, no_flops},
    OpRule{"narrow", OpKind::kShape, kView, no_flops},
    OpRule{"diagonal", OpKind::kShape, kView, no_flops},
    OpRule{"unfold", OpKind::kShape, kView, no_flops},
    OpRule{"split", OpKind::kShape, kView, no_flops},
    OpRule{"split_with_sizes", OpKind::kShape, kView, no_flops},
    OpRule{"chunk", OpKind::kShape, kView, no_flops},
    OpRule{"unbind", OpKind::kShape, kView, no_flops},
    OpRule{"alias", OpKind::kShape, kView, no_flops},
    OpRule{"detach", OpKind::kShape, kView, no_flops},
    OpRule{"contiguous", OpKind::kShape, kView, no_flops},
    OpRule{"to", OpKind::kShape, kView, no_flops},
    OpRule{"type_as", OpKind::kShape, kView, no_flops},
    OpRule{"_to_copy", OpKind::kShape, kFresh, no_flops},
    OpRule{"clone", OpKind::kShape, kFresh, no_flops},
    OpRule{"lift_fresh_copy", OpKind::kShape, kFresh, no_flops},
    OpRule{"cat", OpKind::kShape, kFresh, no_flops},
    OpRule{"stack", OpKind::kShape, kFresh, no_flops},
    OpRule{"repeat", OpKind::kShape, kFresh, no_flops},
    OpRule{"repeat_interleave", OpKind::kShape, kFresh, no_flops},
    OpRule{"pad", OpKind::kShape, kFresh, no_flops},
    OpRule{"constant_pad_nd", OpKind::kShape, kFresh, no_flops},
    OpRule{"diff", OpKind::kElementwise, kFresh, one_an_output},
    OpRule{"upsample_nearest2d", OpKind::kShape, kFresh, no_flops},
    OpRule{"pixel_shuffle", OpKind::kShape, kFresh, no_flops},
    OpRule{"pixel_unshuffle", OpKind::kShape, kFresh, no_flops},
    OpRule{"im2col", OpKind::kShape, kFresh, no_flops},
    OpRule{"col2im", OpKind::kShape, kFresh, no_flops},
    OpRule{"tile", OpKind::kShape, kFresh, no_flops},
    OpRule{"upsample_nearest1d", OpKind::kShape, kFresh, no_flops},
    OpRule{"upsample_nearest3d", OpKind::kShape, kFresh, no_flops},
    OpRule{"upsample_linear1d", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"upsample_bilinear2d", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"upsample_bicubic2d", OpKind::kElementwise, kFresh, ten_an_output},
    OpRule{"upsample_trilinear3d", OpKind::kElementwise, kFresh, ten_an_output},
    // New tensors.
    OpRule{"arange", OpKind::kCreation, kFresh, no_flops},
    OpRule{"linspace", OpKind::kCreation, kFresh, no_flops},
    OpRule{"zeros", OpKind::kCreation, kFresh, no_flops},
    OpRule{"zeros_like", OpKind::kCreation, kFresh, no_flops},
    OpRule{"ones", OpKind::kCreation, kFresh, no_flops},
    OpRule{"ones_like", OpKind::kCreation, kFresh, no_flops},
    OpRule{"full", OpKind::kCreation, kFresh, no_flops},
    OpRule{"full_like", OpKind::kCreation, kFresh, no_flops},
    OpRule{"empty", OpKind::kCreation, kFresh, no_flops},
    OpRule{"empty_like", OpKind::kCreation, kFresh, no_flops},
    OpRule{"new_ones", OpKind::kCreation, kFresh, no_flops},
    OpRule{"new_zeros", OpKind::kCreation, kFresh, no_flops},
    OpRule{"new_full", OpKind::kCreation, kFresh, no_flops},
    OpRule{"new_empty", OpKind::kCreation, kFresh, no_flops},
    OpRule{"scalar_tensor", OpKind::kCreation, kFresh, no_flops},
    OpRule{"eye", OpKind::kCreation, kFresh, no_flops},
    OpRule{"tril_indices", OpKind::kCreation, kFresh, no_flops},
    OpRule{"triu_indices", OpKind::kCreation, kFresh, no_flops},
    OpRule{"item", OpKind::kOther, kFresh, no_flops},
    // Random numbers (draws.h).
    OpRule{"rand", OpKind::kRandom, kFresh, one_an_output},
    OpRule{"rand_like", OpKind::kRandom, kFresh, one_an_output},
    OpRule{"randn", OpKind::kRandom, kFresh, ten_an_output},
    OpRule{"randn_like", OpKind::kRandom, kFresh, ten_an_output},
    OpRule{"randint", OpKind::kRandom, kFresh, one_an_output},
    OpRule{"randint_like", OpKind::kRandom, kFresh, one_an_output},
    OpRule{"randperm", OpKind::kRandom, kFresh, ten_an_output},
    OpRule{"normal", OpKind::kRandom, kFresh, ten_an_output},
    OpRule{"uniform", OpKind::kRandom, kFresh, one_an_output},
    OpRule{"exponential", OpKind::kRandom, kFresh, ten_an_output},
    OpRule{"bernoulli", OpKind::kRandom, kFresh, one_an_output},
    OpRule{"multinomial", OpKind::kRandom, kFresh, one_an_input},
    OpRule{"rrelu", OpKind::kRandom, kFresh, one_an_output},
    // They return their operand when p is 0 or outside training.
    OpRule{"dropout", OpKind::kRandom, kView, one_an_output},
    OpRule{"alpha_dropout", OpKind::kRandom, kView, one_an_output},
    OpRule{"feature_dropout", OpKind::kRandom, kView, one_an_output},
    OpRule{"feature_alpha_dropout", OpKind::kRandom, kView, one_an_output},
};

bool is_in_place(std::string_view name) { return without_in_place_mark(name) != name; }

std::optional<ValueId> tensor_argument(const Node& node, std::string_view name) {
  const Argument* given = find_argument(node, name);
  const auto* id = given == nullptr ? nullptr : std::get_if<ValueId>(given);
  return id == nullptr ? std::nullopt : std::optional(*id);
}

// The operand that an overload such as aten.div.out fills and returns.
std::optional<ValueId> filled_value(const Node& node) { return tensor_argument(node, "out"); }

}  // namespace

std::string_view to_text(OpKind kind) {
  constexpr std::array<std::string_view, 12> kNames = {
      "matmul",   "convolution", "attention", "normalization", "elementwise", "reduction",
      "indexing", "shape",       "creation",  "loss",          "random",      "other"};
  return kNames[static_cast<size_t>(kind)];
}

std::span<const OpRule> op_rules() { return kRules; }

std::string_view without_in_place_mark(std::string_view name) {
  const bool is_dunder = name.size() > 2 && name.substr(0, 2) == "__";
  if (!is_dunder && name.size() > 1 && name.back() == '_') name.remove_suffix(1);
  return name;
}

bool is_aten(std::string_view op) { return op.starts_with("aten."); }

std::string_view base_name(std::string_view op) {
  const size_t first = op.find('.');
  if (first == std::string_view::npos) return op;
  // Another library's `linear` is not aten's.
  if (!is_aten(op)) return op.substr(0, op.find('.', first + 1));
  op.remove_prefix(first + 1);
  return op.substr(0, op.find('.'));
}

const OpRule* find_op_rule(std::string_view op) {
  const std::string_view name = without_in_place_mark(base_name(op));
  for (const OpRule& rule : kRules) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

bool is_heavy(OpKind kind) {
  return kind == OpKind::kMatmul || kind == OpKind::kConvolution || kind == OpKind::kAttention;
}

AliasKind alias_kind(const Node& node) {
  if (is_in_place(base_name(node.op))) return AliasKind::kInPlace;
  const OpRule* rule = find_op_rule(node.op);
  return rule == nullptr ? AliasKind::kUnknown : rule->alias;
}

std::vector<ValueId> written_values(const Node& node) {
  std::vector<ValueId> written;
  if (is_in_place(base_name(node.op))) {
    const std::vector<ValueId> read = operands(node);
    if (!read.empty()) written.push_back(read[0]);
  }
  if (const std::optional<ValueId> filled = filled_value(node)) written.push_back(*filled);
  if (without_in_place_mark(base_name(node.op)) == "rrelu_with_noise") {
    if (const std::optional<ValueId> noise = tensor_argument(node, "noise")) {
      written.push_back(*noise);
    }
  }
  if (base_name(node.op) == "batch_norm" || base_name(node.op) == "instance_norm") {
    const Argument* training = find_argument(node, "training");
    if (training == nullptr) training = find_argument(node, "use_input_stats");
    if (training != nullptr && std::get_if<bool>(training) != nullptr &&
        std::get<bool>(*training)) {
      for (const std::string_view name : {"running_mean", "running_var"}) {
        if (const std::optional<ValueId> id = tensor_argument(node, name)) written.push_back(*id);
      }
    }
  }
  return written;
}

Result<std::vector<int64_t>> concrete_sizes(const std::vector<SymExpr>& sizes,
                                            const SymbolValues& symbols) {
  std::vector<int64_t> concrete;
  concrete.reserve(sizes.size());
  for (const SymExpr& size : sizes) {
    TRIREME_TRY(int64_t value, evaluate_integer(size, symbols));
    concrete.push_back(value);
  }
  return concrete;
}

Result<int64_t> value_bytes(const Graph& graph, ValueId id, const SymbolValues& symbols) {
  const TensorType& type = graph.values[id.value].type;
  TRIREME_TRY(std::vector<int64_t> sizes, concrete_sizes(type.sizes, symbols));
  int64_t bytes = dtype_info(type.dtype).size_bytes;
  for (const int64_t size : sizes) bytes *= size;
  return bytes;
}

namespace {

Result<double> bytes_moved(const Graph& graph, const Node& node, const SymbolValues& symbols) {
  double sum = 0;
  for (const std::vector<ValueId>& values : {operands(node), results(node)}) {
    for (const ValueId id : values) {
      TRIREME_TRY(const int64_t bytes, value_bytes(graph, id, symbols));
      sum += static_cast<double>(bytes);
    }
  }
  return sum;
}

}  // namespace

Result<double> node_flops(const Graph& graph, const Node& node, const SymbolValues& symbols) {
  const OpRule* rule = find_op_rule(node.op);
  if (rule == nullptr) return bytes_moved(graph, node, symbols);
  OpSizes sizes;
  const auto add_input = [&](const std::string& name, ValueId id) -> Status {
    TRIREME_TRY(std::vector<int64_t> concrete,
                concrete_sizes(graph.values[id.value].type.sizes, symbols));
    sizes.inputs[name].push_back(std::move(concrete));
    return Status();
  };
  for (const NamedArgument& argument : node.arguments) {
    if (const auto* id = std::get_if<ValueId>(&argument.value)) {
      TRIREME_TRY(add_input(argument.name, *id));
    }
    if (const auto* list = std::get_if<std::vector<std::optional<ValueId>>>(&argument.value)) {
      for (const std::optional<ValueId>& id : *list) {
        if (id.has_value()) TRIREME_TRY(add_input(argument.name, *id));
      }
    }
  }
  for (ValueId id : results(node)) {
    TRIREME_TRY(std::vector<int64_t> concrete,
                concrete_sizes(graph.values[id.value].type.sizes, symbols));
    sizes.outputs.push_back(std::move(concrete));
  }
  return rule->flops(sizes);
}

std::vector<ValueId> alias_roots(const Graph& graph) {
  std::vector<int32_t> parent(graph.values.size());
  std::iota(parent.begin(), parent.end(), 0);
  const auto root = [&](int32_t value) {
    while (parent[value] != value) value = parent[value] = parent[parent[value]];
    return value;
  };
  for (const Node& node : graph.nodes) {
    if (const std::optional<ValueId> filled = filled_value(node)) {
      for (ValueId made : results(node)) parent[root(made.value)] = root(filled->value);
    }
    const AliasKind kind = alias_kind(node);
    if (kind == AliasKind::kFresh) continue;
    const std::vector<ValueId> read = operands(node);
    for (size_t i = 0; i < read.size(); ++i) {
      if (i > 0 && kind != AliasKind::kUnknown) break;
      for (ValueId made : results(node)) parent[root(made.value)] = root(read[i].value);
    }
  }
  std::vector<ValueId> roots;
  roots.reserve(parent.size());
  for (size_t i = 0; i < parent.size(); ++i) roots.emplace_back(root(static_cast<int32_t>(i)));
  return roots;
}

}  // namespace trireme
