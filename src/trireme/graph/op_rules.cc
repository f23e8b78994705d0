#include "trireme/graph/op_rules.h"

#include <algorithm>
#include <array>

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

constexpr auto kRules = std::to_array<OpRule>({
    // Products of matrices.
    {"linear", OpKind::kMatmul, kFresh, linear_flops},
    {"matmul", OpKind::kMatmul, kFresh, matmul_flops},
    {"mm", OpKind::kMatmul, kFresh, matmul_flops},
    {"bmm", OpKind::kMatmul, kFresh, matmul_flops},
    {"mv", OpKind::kMatmul, kFresh, matmul_flops},
    {"addmm", OpKind::kMatmul, kFresh, addmm_flops},
    {"baddbmm", OpKind::kMatmul, kFresh, baddbmm_flops},
    // Of one operand einsum is a view.
    {"einsum", OpKind::kMatmul, kView, one_an_input},
    {"_grouped_mm", OpKind::kMatmul, kFresh, matmul_flops},
    {"transformers.grouped_mm_fallback", OpKind::kMatmul, kFresh, grouped_mm_flops},
    {"conv1d", OpKind::kConvolution, kFresh, convolution_flops},
    {"conv2d", OpKind::kConvolution, kFresh, convolution_flops},
    {"conv3d", OpKind::kConvolution, kFresh, convolution_flops},
    {"convolution", OpKind::kConvolution, kFresh, convolution_flops},
    {"conv_transpose1d", OpKind::kConvolution, kFresh, transposed_convolution_flops},
    {"conv_transpose2d", OpKind::kConvolution, kFresh, transposed_convolution_flops},
    {"conv_transpose3d", OpKind::kConvolution, kFresh, transposed_convolution_flops},
    {"lstm", OpKind::kMatmul, kFresh, recurrent_flops},
    {"gru", OpKind::kMatmul, kFresh, recurrent_flops},
    {"rnn_tanh", OpKind::kMatmul, kFresh, recurrent_flops},
    {"rnn_relu", OpKind::kMatmul, kFresh, recurrent_flops},
    {"lstm_cell", OpKind::kMatmul, kFresh, cell_flops},
    {"gru_cell", OpKind::kMatmul, kFresh, cell_flops},
    {"rnn_tanh_cell", OpKind::kMatmul, kFresh, cell_flops},
    {"rnn_relu_cell", OpKind::kMatmul, kFresh, cell_flops},
    {"bilinear", OpKind::kMatmul, kFresh, bilinear_flops},
    {"dot", OpKind::kMatmul, kFresh, matmul_flops},
    {"outer", OpKind::kMatmul, kFresh, one_an_output},
    {"scaled_dot_product_attention", OpKind::kAttention, kFresh, attention_flops},
    // Normalizations.
    {"layer_norm", OpKind::kNormalization, kFresh, eight_an_output},
    {"rms_norm", OpKind::kNormalization, kFresh, eight_an_output},
    {"batch_norm", OpKind::kNormalization, kFresh, eight_an_output},
    {"group_norm", OpKind::kNormalization, kFresh, eight_an_output},
    {"instance_norm", OpKind::kNormalization, kFresh, eight_an_output},
    {"softmax", OpKind::kNormalization, kFresh, ten_an_output},
    {"_softmax", OpKind::kNormalization, kFresh, ten_an_output},
    {"log_softmax", OpKind::kNormalization, kFresh, ten_an_output},
    {"_weight_norm", OpKind::kNormalization, kFresh, eight_an_output},
    {"cosine_similarity", OpKind::kNormalization, kFresh, eight_an_output},
    // Losses.
    {"cross_entropy_loss", OpKind::kLoss, kFresh, one_an_input},
    {"nll_loss_nd", OpKind::kLoss, kFresh, one_an_input},
    {"nll_loss", OpKind::kLoss, kFresh, one_an_input},
    {"nll_loss2d", OpKind::kLoss, kFresh, one_an_input},
    {"mse_loss", OpKind::kLoss, kFresh, one_an_input},
    {"l1_loss", OpKind::kLoss, kFresh, one_an_input},
    {"smooth_l1_loss", OpKind::kLoss, kFresh, one_an_input},
    {"huber_loss", OpKind::kLoss, kFresh, one_an_input},
    {"binary_cross_entropy", OpKind::kLoss, kFresh, one_an_input},
    {"binary_cross_entropy_with_logits", OpKind::kLoss, kFresh, one_an_input},
    {"kl_div", OpKind::kLoss, kFresh, one_an_input},
    {"ctc_loss", OpKind::kLoss, kFresh, one_an_input},
    {"cosine_embedding_loss", OpKind::kLoss, kFresh, one_an_input},
    {"triplet_margin_loss", OpKind::kLoss, kFresh, one_an_input},
    {"margin_ranking_loss", OpKind::kLoss, kFresh, one_an_input},
    {"hinge_embedding_loss", OpKind::kLoss, kFresh, one_an_input},
    {"multi_margin_loss", OpKind::kLoss, kFresh, one_an_input},
    {"soft_margin_loss", OpKind::kLoss, kFresh, one_an_input},
    {"poisson_nll_loss", OpKind::kLoss, kFresh, one_an_input},
    // Element by element.
    {"add", OpKind::kElementwise, kFresh, one_an_output},
    {"sub", OpKind::kElementwise, kFresh, one_an_output},
    {"rsub", OpKind::kElementwise, kFresh, one_an_output},
    {"mul", OpKind::kElementwise, kFresh, one_an_output},
    {"div", OpKind::kElementwise, kFresh, one_an_output},
    {"floor_divide", OpKind::kElementwise, kFresh, one_an_output},
    {"remainder", OpKind::kElementwise, kFresh, one_an_output},
    {"neg", OpKind::kElementwise, kFresh, one_an_output},
    {"abs", OpKind::kElementwise, kFresh, one_an_output},
    {"sign", OpKind::kElementwise, kFresh, one_an_output},
    {"relu", OpKind::kElementwise, kFresh, one_an_output},
    {"relu6", OpKind::kElementwise, kFresh, one_an_output},
    {"hardtanh", OpKind::kElementwise, kFresh, one_an_output},
    {"leaky_relu", OpKind::kElementwise, kFresh, one_an_output},
    {"clamp", OpKind::kElementwise, kFresh, one_an_output},
    {"clamp_min", OpKind::kElementwise, kFresh, one_an_output},
    {"minimum", OpKind::kElementwise, kFresh, one_an_output},
    {"maximum", OpKind::kElementwise, kFresh, one_an_output},
    {"square", OpKind::kElementwise, kFresh, one_an_output},
    {"reciprocal", OpKind::kElementwise, kFresh, one_an_output},
    {"lerp", OpKind::kElementwise, kFresh, one_an_output},
    {"addcmul", OpKind::kElementwise, kFresh, one_an_output},
    {"addcdiv", OpKind::kElementwise, kFresh, one_an_output},
    {"clamp_max", OpKind::kElementwise, kFresh, one_an_output},
    {"prelu", OpKind::kElementwise, kFresh, one_an_output},
    {"threshold", OpKind::kElementwise, kFresh, one_an_output},
    {"floor", OpKind::kElementwise, kFresh, one_an_output},
    {"ceil", OpKind::kElementwise, kFresh, one_an_output},
    {"round", OpKind::kElementwise, kFresh, one_an_output},
    {"trunc", OpKind::kElementwise, kFresh, one_an_output},
    {"frac", OpKind::kElementwise, kFresh, one_an_output},
    {"fmod", OpKind::kElementwise, kFresh, one_an_output},
    {"nan_to_num", OpKind::kElementwise, kFresh, one_an_output},
    {"hardshrink", OpKind::kElementwise, kFresh, one_an_output},
    {"softshrink", OpKind::kElementwise, kFresh, one_an_output},
    {"logical_xor", OpKind::kElementwise, kFresh, one_an_output},
    {"copy", OpKind::kElementwise, kFresh, one_an_output},
    {"fill", OpKind::kElementwise, kFresh, one_an_output},
    {"gelu", OpKind::kElementwise, kFresh, ten_an_output},
    {"glu", OpKind::kElementwise, kFresh, ten_an_output},
    {"selu", OpKind::kElementwise, kFresh, ten_an_output},
    {"celu", OpKind::kElementwise, kFresh, ten_an_output},
    {"log2", OpKind::kElementwise, kFresh, ten_an_output},
    {"log10", OpKind::kElementwise, kFresh, ten_an_output},
    {"exp2", OpKind::kElementwise, kFresh, ten_an_output},
    {"expm1", OpKind::kElementwise, kFresh, ten_an_output},
    {"tan", OpKind::kElementwise, kFresh, ten_an_output},
    {"atan", OpKind::kElementwise, kFresh, ten_an_output},
    {"atan2", OpKind::kElementwise, kFresh, ten_an_output},
    {"logaddexp", OpKind::kElementwise, kFresh, ten_an_output},
    {"erfinv", OpKind::kElementwise, kFresh, ten_an_output},
    {"silu", OpKind::kElementwise, kFresh, ten_an_output},
    {"mish", OpKind::kElementwise, kFresh, ten_an_output},
    {"elu", OpKind::kElementwise, kFresh, ten_an_output},
    {"softplus", OpKind::kElementwise, kFresh, ten_an_output},
    {"sigmoid", OpKind::kElementwise, kFresh, ten_an_output},
    {"log_sigmoid", OpKind::kElementwise, kFresh, ten_an_output},
    {"hardswish", OpKind::kElementwise, kFresh, one_an_output},
    {"hardsigmoid", OpKind::kElementwise, kFresh, one_an_output},
    {"tanh", OpKind::kElementwise, kFresh, ten_an_output},
    {"exp", OpKind::kElementwise, kFresh, ten_an_output},
    {"log", OpKind::kElementwise, kFresh, ten_an_output},
    {"log1p", OpKind::kElementwise, kFresh, ten_an_output},
    {"sin", OpKind::kElementwise, kFresh, ten_an_output},
    {"cos", OpKind::kElementwise, kFresh, ten_an_output},
    {"lgamma", OpKind::kElementwise, kFresh, ten_an_output},
    {"digamma", OpKind::kElementwise, kFresh, ten_an_output},
    {"erf", OpKind::kElementwise, kFresh, ten_an_output},
    {"pow", OpKind::kElementwise, kFresh, ten_an_output},
    {"sqrt", OpKind::kElementwise, kFresh, ten_an_output},
    {"rsqrt", OpKind::kElementwise, kFresh, ten_an_output},
    {"eq", OpKind::kElementwise, kFresh, one_an_output},
    {"ne", OpKind::kElementwise, kFresh, one_an_output},
    {"lt", OpKind::kElementwise, kFresh, one_an_output},
    {"le", OpKind::kElementwise, kFresh, one_an_output},
    {"gt", OpKind::kElementwise, kFresh, one_an_output},
    {"ge", OpKind::kElementwise, kFresh, one_an_output},
    {"__and__", OpKind::kElementwise, kFresh, one_an_output},
    {"__or__", OpKind::kElementwise, kFresh, one_an_output},
    {"bitwise_and", OpKind::kElementwise, kFresh, one_an_output},
    {"bitwise_or", OpKind::kElementwise, kFresh, one_an_output},
    {"bitwise_not", OpKind::kElementwise, kFresh, one_an_output},
    {"logical_and", OpKind::kElementwise, kFresh, one_an_output},
    {"logical_or", OpKind::kElementwise, kFresh, one_an_output},
    {"logical_not", OpKind::kElementwise, kFresh, one_an_output},
    {"isnan", OpKind::kElementwise, kFresh, one_an_output},
    {"isinf", OpKind::kElementwise, kFresh, one_an_output},
    {"where", OpKind::kElementwise, kFresh, one_an_output},
    {"masked_fill", OpKind::kElementwise, kFresh, one_an_output},
    {"tril", OpKind::kElementwise, kFresh, no_flops},
    {"triu", OpKind::kElementwise, kFresh, no_flops},
    // Reductions.
    {"sum", OpKind::kReduction, kFresh, one_an_input},
    {"mean", OpKind::kReduction, kFresh, one_an_input},
    {"var", OpKind::kReduction, kFresh, one_an_input},
    {"var_mean", OpKind::kReduction, kFresh, one_an_input},
    {"std", OpKind::kReduction, kFresh, one_an_input},
    {"norm", OpKind::kReduction, kFresh, one_an_input},
    {"linalg_vector_norm", OpKind::kReduction, kFresh, one_an_input},
    {"min", OpKind::kReduction, kFresh, one_an_input},
    {"max", OpKind::kReduction, kFresh, one_an_input},
    {"amax", OpKind::kReduction, kFresh, one_an_input},
    {"amin", OpKind::kReduction, kFresh, one_an_input},
    {"argmax", OpKind::kReduction, kFresh, one_an_input},
    {"argmin", OpKind::kReduction, kFresh, one_an_input},
    {"any", OpKind::kReduction, kFresh, one_an_input},
    {"all", OpKind::kReduction, kFresh, one_an_input},
    {"cumsum", OpKind::kReduction, kFresh, one_an_input},
    {"cumprod", OpKind::kReduction, kFresh, one_an_input},
    {"prod", OpKind::kReduction, kFresh, one_an_input},
    {"logcumsumexp", OpKind::kReduction, kFresh, one_an_input},
    {"avg_pool1d", OpKind::kReduction, kFresh, one_an_input},
    {"avg_pool3d", OpKind::kReduction, kFresh, one_an_input},
    {"max_pool1d", OpKind::kReduction, kFresh, one_an_input},
    {"max_pool3d", OpKind::kReduction, kFresh, one_an_input},
    {"adaptive_avg_pool3d", OpKind::kReduction, kFresh, one_an_input},
    {"adaptive_max_pool2d", OpKind::kReduction, kFresh, one_an_input},
    {"logsumexp", OpKind::kReduction, kFresh, ten_an_output},
    {"histc", OpKind::kReduction, kFresh, one_an_input},
    {"bincount", OpKind::kReduction, kFresh, one_an_input},
    {"avg_pool2d", OpKind::kReduction, kFresh, one_an_input},
    {"max_pool2d", OpKind::kReduction, kFresh, one_an_input},
    {"adaptive_avg_pool1d", OpKind::kReduction, kFresh, one_an_input},
    {"adaptive_avg_pool2d", OpKind::kReduction, kFresh, one_an_input},
    // Rows, indices and order.
    {"embedding", OpKind::kIndexing, kFresh, no_flops},
    {"embedding_bag", OpKind::kIndexing, kFresh, one_an_output},
    {"index", OpKind::kIndexing, kFresh, no_flops},
    {"index_select", OpKind::kIndexing, kFresh, no_flops},
    {"index_put", OpKind::kIndexing, kFresh, no_flops},
    {"index_add", OpKind::kIndexing, kFresh, one_an_output},
    {"gather", OpKind::kIndexing, kFresh, no_flops},
    {"scatter", OpKind::kIndexing, kFresh, no_flops},
    {"scatter_add", OpKind::kIndexing, kFresh, one_an_output},
    {"scatter_reduce", OpKind::kIndexing, kFresh, one_an_output},
    {"index_copy", OpKind::kIndexing, kFresh, one_an_output},
    {"index_fill", OpKind::kIndexing, kFresh, one_an_output},
    {"masked_scatter", OpKind::kIndexing, kFresh, one_an_output},
    {"slice_scatter", OpKind::kIndexing, kFresh, one_an_output},
    {"select_scatter", OpKind::kIndexing, kFresh, one_an_output},
    {"take_along_dim", OpKind::kIndexing, kFresh, no_flops},
    {"searchsorted", OpKind::kIndexing, kFresh, one_an_output},
    {"grid_sampler", OpKind::kIndexing, kFresh, one_an_output},
    {"topk", OpKind::kIndexing, kFresh, one_an_input},
    {"sort", OpKind::kIndexing, kFresh, one_an_input},
    {"argsort", OpKind::kIndexing, kFresh, one_an_input},
    {"nonzero", OpKind::kIndexing, kFresh, no_flops},
    {"one_hot", OpKind::kIndexing, kFresh, no_flops},
    {"bucketize", OpKind::kIndexing, kFresh, one_an_output},
    {"roll", OpKind::kIndexing, kFresh, no_flops},
    {"flip", OpKind::kIndexing, kFresh, no_flops},
    // Shapes: views, or copies that only move bytes.
    {"view", OpKind::kShape, kView, no_flops},
    {"view_as", OpKind::kShape, kView, no_flops},
    {"reshape", OpKind::kShape, kView, no_flops},
    {"flatten", OpKind::kShape, kView, no_flops},
    {"unflatten", OpKind::kShape, kView, no_flops},
    {"transpose", OpKind::kShape, kView, no_flops},
    {"t", OpKind::kShape, kView, no_flops},
    {"numpy_T", OpKind::kShape, kView, no_flops},
    {"mT", OpKind::kShape, kView, no_flops},
    {"swapaxes", OpKind::kShape, kView, no_flops},
    {"swapdims", OpKind::kShape, kView, no_flops},
    {"moveaxis", OpKind::kShape, kView, no_flops},
    {"ravel", OpKind::kShape, kView, no_flops},
    {"permute", OpKind::kShape, kView, no_flops},
    {"movedim", OpKind::kShape, kView, no_flops},
    {"unsqueeze", OpKind::kShape, kView, no_flops},
    {"squeeze", OpKind::kShape, kView, no_flops},
    {"expand", OpKind::kShape, kView, no_flops},
    {"expand_as", OpKind::kShape, kView, no_flops},
    {"broadcast_to", OpKind::kShape, kView, no_flops},
    {"broadcast_tensors", OpKind::kShape, AliasKind::kUnknown, no_flops},
    {"slice", OpKind::kShape, kView, no_flops},
    {"select", OpKind::kShape, kView, no_flops},
    {"narrow", OpKind::kShape, kView, no_flops},
    {"diagonal", OpKind::kShape, kView, no_flops},
    {"unfold", OpKind::kShape, kView, no_flops},
    {"split", OpKind::kShape, kView, no_flops},
    {"split_with_sizes", OpKind::kShape, kView, no_flops},
    {"chunk", OpKind::kShape, kView, no_flops},
    {"unbind", OpKind::kShape, kView, no_flops},
    {"alias", OpKind::kShape, kView, no_flops},
    {"detach", OpKind::kShape, kView, no_flops},
    {"contiguous", OpKind::kShape, kView, no_flops},
    {"to", OpKind::kShape, kView, no_flops},
    {"type_as", OpKind::kShape, kView, no_flops},
    {"_to_copy", OpKind::kShape, kFresh, no_flops},
    {"clone", OpKind::kShape, kFresh, no_flops},
    {"lift_fresh_copy", OpKind::kShape, kFresh, no_flops},
    {"cat", OpKind::kShape, kFresh, no_flops},
    {"stack", OpKind::kShape, kFresh, no_flops},
    {"repeat", OpKind::kShape, kFresh, no_flops},
    {"repeat_interleave", OpKind::kShape, kFresh, no_flops},
    {"pad", OpKind::kShape, kFresh, no_flops},
    {"constant_pad_nd", OpKind::kShape, kFresh, no_flops},
    {"diff", OpKind::kElementwise, kFresh, one_an_output},
    {"upsample_nearest2d", OpKind::kShape, kFresh, no_flops},
    {"pixel_shuffle", OpKind::kShape, kFresh, no_flops},
    {"pixel_unshuffle", OpKind::kShape, kFresh, no_flops},
    {"im2col", OpKind::kShape, kFresh, no_flops},
    {"col2im", OpKind::kShape, kFresh, no_flops},
    {"tile", OpKind::kShape, kFresh, no_flops},
    {"upsample_nearest1d", OpKind::kShape, kFresh, no_flops},
    {"upsample_nearest3d", OpKind::kShape, kFresh, no_flops},
    {"upsample_linear1d", OpKind::kElementwise, kFresh, ten_an_output},
    {"upsample_bilinear2d", OpKind::kElementwise, kFresh, ten_an_output},
    {"upsample_bicubic2d", OpKind::kElementwise, kFresh, ten_an_output},
    {"upsample_trilinear3d", OpKind::kElementwise, kFresh, ten_an_output},
    // New tensors.
    {"arange", OpKind::kCreation, kFresh, no_flops},
    {"linspace", OpKind::kCreation, kFresh, no_flops},
    {"zeros", OpKind::kCreation, kFresh, no_flops},
    {"zeros_like", OpKind::kCreation, kFresh, no_flops},
    {"ones", OpKind::kCreation, kFresh, no_flops},
    {"ones_like", OpKind::kCreation, kFresh, no_flops},
    {"full", OpKind::kCreation, kFresh, no_flops},
    {"full_like", OpKind::kCreation, kFresh, no_flops},
    {"empty", OpKind::kCreation, kFresh, no_flops},
    {"empty_like", OpKind::kCreation, kFresh, no_flops},
    {"new_ones", OpKind::kCreation, kFresh, no_flops},
    {"new_zeros", OpKind::kCreation, kFresh, no_flops},
    {"new_full", OpKind::kCreation, kFresh, no_flops},
    {"new_empty", OpKind::kCreation, kFresh, no_flops},
    {"scalar_tensor", OpKind::kCreation, kFresh, no_flops},
    {"eye", OpKind::kCreation, kFresh, no_flops},
    {"tril_indices", OpKind::kCreation, kFresh, no_flops},
    {"triu_indices", OpKind::kCreation, kFresh, no_flops},
    {"item", OpKind::kOther, kFresh, no_flops},
    // Random numbers (draws.h).
    {"rand", OpKind::kRandom, kFresh, one_an_output},
    {"rand_like", OpKind::kRandom, kFresh, one_an_output},
    {"randn", OpKind::kRandom, kFresh, ten_an_output},
    {"randn_like", OpKind::kRandom, kFresh, ten_an_output},
    {"randint", OpKind::kRandom, kFresh, one_an_output},
    {"randint_like", OpKind::kRandom, kFresh, one_an_output},
    {"randperm", OpKind::kRandom, kFresh, ten_an_output},
    {"normal", OpKind::kRandom, kFresh, ten_an_output},
    {"uniform", OpKind::kRandom, kFresh, one_an_output},
    {"exponential", OpKind::kRandom, kFresh, ten_an_output},
    {"bernoulli", OpKind::kRandom, kFresh, one_an_output},
    {"multinomial", OpKind::kRandom, kFresh, one_an_input},
    {"rrelu", OpKind::kRandom, kFresh, one_an_output},
    // They return their operand when p is 0 or outside training.
    {"dropout", OpKind::kRandom, kView, one_an_output},
    {"alpha_dropout", OpKind::kRandom, kView, one_an_output},
    {"feature_dropout", OpKind::kRandom, kView, one_an_output},
    {"feature_alpha_dropout", OpKind::kRandom, kView, one_an_output},
});

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

}  // namespace trireme
