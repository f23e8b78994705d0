#include "trireme/comm/known_models.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace trireme {
namespace {

// A convolution over `size` x `size` places.
KnownLayer convolution(int64_t in, int64_t out, int64_t kernel, int64_t size, bool has_bias) {
  const int64_t weights = in * out * kernel * kernel;
  return {.num_parameters = weights + (has_bias ? out : 0),
          .flops = 2.0 * static_cast<double>(weights * size * size)};
}

KnownLayer batch_norm(int64_t channels, int64_t size) {
  return {.num_parameters = 2 * channels,
          .flops = 4.0 * static_cast<double>(channels * size * size)};
}

KnownLayer linear(int64_t in, int64_t out, int64_t tokens) {
  return {.num_parameters = in * out + out, .flops = 2.0 * static_cast<double>(in * out * tokens)};
}

std::vector<KnownLayer> vgg16() {
  std::vector<KnownLayer> layers;
  struct Group {
    int64_t channels;
    int32_t convolutions;
  };
  constexpr std::array kGroups = {Group{64, 2}, Group{128, 2}, Group{256, 3}, Group{512, 3},
                                  Group{512, 3}};
  int64_t in = 3;
  int64_t size = 224;
  for (const Group& group : kGroups) {
    for (int32_t i = 0; i < group.convolutions; ++i) {
      layers.push_back(convolution(in, group.channels, 3, size, true));
      in = group.channels;
    }
    size /= 2;
  }
  layers.push_back(linear(512 * 7 * 7, 4096, 1));
  layers.push_back(linear(4096, 4096, 1));
  layers.push_back(linear(4096, 1000, 1));
  return layers;
}

std::vector<KnownLayer> resnet50() {
  std::vector<KnownLayer> layers;
  const auto add = [&](int64_t in, int64_t out, int64_t kernel, int64_t size) {
    layers.push_back(convolution(in, out, kernel, size, false));
    layers.push_back(batch_norm(out, size));
  };
  add(3, 64, 7, 112);
  int64_t in = 64;
  int64_t size = 56;
  int64_t width = 64;
  for (const int32_t num_blocks : {3, 4, 6, 3}) {
    for (int32_t block = 0; block < num_blocks; ++block) {
      // The second convolution of a group's first block halves the size.
      const bool is_first = block == 0;
      const int64_t before = is_first && width > 64 ? 2 * size : size;
      add(in, width, 1, before);
      add(width, width, 3, size);
      add(width, 4 * width, 1, size);
      if (is_first) add(in, 4 * width, 1, size);
      in = 4 * width;
    }
    width *= 2;
    size /= 2;
  }
  layers.push_back(linear(2048, 1000, 1));
  return layers;
}

std::vector<KnownLayer> gpt2() {
  constexpr int64_t kWidth = 768;
  constexpr int64_t kTokens = 1024;
  constexpr int64_t kVocabulary = 50257;
  const KnownLayer norm{.num_parameters = 2 * kWidth, .flops = 8.0 * kWidth * kTokens};
  // The table is the head's, too, whose backward is the first: its gradient is ready last.
  std::vector<KnownLayer> layers = {
      {.num_parameters = (kVocabulary + kTokens) * kWidth, .flops = 2.0 * kWidth * kTokens}};
  for (int32_t l = 0; l < 12; ++l) {
    layers.push_back(norm);
    layers.push_back(linear(kWidth, 3 * kWidth, kTokens));
    // With the scores and the context of attention.
    layers.push_back(linear(kWidth, kWidth, kTokens));
    layers.back().flops += 4.0 * kTokens * kTokens * kWidth;
    layers.push_back(norm);
    layers.push_back(linear(kWidth, 4 * kWidth, kTokens));
    layers.push_back(linear(4 * kWidth, kWidth, kTokens));
  }
  layers.push_back(norm);
  layers.push_back({.num_parameters = 0, .flops = 2.0 * kWidth * kVocabulary * kTokens});
  return layers;
}

// 2,560 words a batch, of which 1,300 differ and 500 come again in the next one; the loss draws
// 8,192 words, of which it shares 4,000 rows with the next batch's: assumed.
std::vector<KnownLayer> lstm_language_model() {
  constexpr int64_t kWords = 793'471;
  constexpr int64_t kWidth = 512;
  constexpr int64_t kCells = 2048;
  constexpr double kTokens = 20;
  constexpr int64_t kGates = 4 * kCells * (2 * kWidth + 1);
  return {{.num_parameters = kWords * kWidth,
           .flops = 2.0 * kWidth * kTokens,
           .prior_row_numbers = 500 * kWidth,
           .delayed_row_numbers = 800 * kWidth},
          {.num_parameters = kGates, .flops = 2.0 * kGates * kTokens},
          {.num_parameters = kCells * kWidth, .flops = 2.0 * kCells * kWidth * kTokens},
          {.num_parameters = kWords * kWidth,
           .flops = 2.0 * 8192 * kWidth * kTokens,
           .prior_row_numbers = 4'000 * kWidth,
           .delayed_row_numbers = 5'000 * kWidth}};
}

constexpr KnownModel kModels[] = {
    {.name = "vgg-16",
     .summary = "one huge layer near the end, much computing at the begin",
     .source = "Simonyan and Zisserman, ICLR 2015",
     .layers = vgg16},
    {.name = "resnet-50",
     .summary = "many small layers, half of them tiny",
     .source = "He et al., CVPR 2016",
     .layers = resnet50},
    {.name = "gpt-2",
     .summary = "equal layers, and a table that is ready last and needed first",
     .source = "Radford et al., 2019, the smallest",
     .layers = gpt2},
    {.name = "lstm-lm",
     .summary = "two tables of which a batch touches few rows",
     .source = "Jozefowicz et al., arXiv 1602.02410, LSTM-2048-512",
     .layers = lstm_language_model},
};

}  // namespace

std::span<const KnownModel> known_models() { return kModels; }

std::vector<LayerCosts> layer_costs(const std::vector<KnownLayer>& layers, SimTime compute) {
  constexpr int64_t kBytes = 4;
  double mean = 0;
  for (const KnownLayer& layer : layers) mean += layer.flops;
  mean /= static_cast<double>(layers.size());
  const auto weight = [&](const KnownLayer& layer) { return std::max(layer.flops, mean / 1000); };
  double whole = 0;
  for (const KnownLayer& layer : layers) whole += weight(layer);
  std::vector<LayerCosts> costs;
  for (const KnownLayer& layer : layers) {
    const double time = static_cast<double>(compute) * weight(layer) / whole;
    costs.push_back({.forward = std::llround(time / 3),
                     .backward = std::llround(2 * time / 3),
                     .gradient_bytes = kBytes * layer.num_parameters,
                     .prior_row_bytes = kBytes * layer.prior_row_numbers,
                     .delayed_row_bytes = kBytes * layer.delayed_row_numbers});
  }
  return costs;
}

}  // namespace trireme
