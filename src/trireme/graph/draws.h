// Draws: the nodes that draw random numbers, and what keys their numbers.
//
// Numbers are counted, never drawn in turn: each follows from the seed, the step, the node and, so
// that they do not depend on the layout, one of
//
//   kSample      the sample of the step and the element within the sample, where one dim of the
//                tensor counts samples: whatever the layout and the micro-batches
//   kStep        the element, where the node reads parameters or buffers and nothing else (a mask
//                of a weight): all micro-batches share the numbers, as those of a whole batch would
//   kMicroBatch  the micro-batch of the step and the element, where no dim counts samples: the same
//                for every layout of as many micro-batches
//
// One row of kRules an operator.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/graph/graph.h"

namespace trireme {

enum class DrawKey : uint8_t { kSample, kStep, kMicroBatch };
// "sample", "step", "micro-batch".
[[nodiscard]] std::string_view to_text(DrawKey key);

// Where samples lie in a tensor: dim `dim` counts [blocks, samples, rows of a sample], and both
// `blocks` and the rows of a sample are 1 but where dims were merged.
struct SamplePlace {
  int32_t dim = 0;
  SymExpr blocks{1};
  bool operator==(const SamplePlace&) const = default;
};

struct Draw {
  DrawKey key = DrawKey::kMicroBatch;
  SamplePlace place;  // kSample
  bool operator==(const Draw&) const = default;
};

// Of a random operator, all overloads, in place or not.
struct DrawRule {
  std::string_view name;  // as OpRule's
  // What keys the numbers by sample.
  enum class Place : uint8_t {
    kResult,    // the dims of the first result
    kQuery,     // of the argument `query`
    kChannels,  // of the result, where they are among the first two: a number a channel
    kNowhere,   // a permutation: no number belongs to a sample
  };
  Place place = Place::kResult;
  // It draws only where the flag `train_flag` (whose default is `train_default`) is set and the
  // number `rate` is more than 0; empty: whatever they are. Evaluation sets both off.
  std::string_view train_flag;
  bool train_default = true;
  std::string_view rate;
  // Not empty: we have no counter-based kernel, and this is what to do instead.
  std::string_view instead;
};
[[nodiscard]] std::span<const DrawRule> draw_rules();
// nullptr when there is no row.
[[nodiscard]] const DrawRule* find_draw_rule(std::string_view op);

// True when the node draws random numbers in training.
[[nodiscard]] bool is_random(const Node& node);
// True when it draws in evaluation, too.
[[nodiscard]] bool is_random_in_evaluation(const Node& node);
// Why the node, which draws, cannot run; "" when it can.
[[nodiscard]] std::string why_no_draw(const Node& node);

// Of each node: nullopt when it draws nothing in training.
[[nodiscard]] std::vector<std::optional<Draw>> analyze_draws(const Graph& graph);

}  // namespace trireme
