// What a user should know of a model or a run before it costs time. Empty where there is nothing to
// say.
#pragma once

#include <string>

#include "trireme/import/archive.h"
#include "trireme/plan/plan.h"

namespace trireme {

// Of a table: an indented line each.
[[nodiscard]] std::string note_on_weights(const Archive& archive);
[[nodiscard]] std::string note_on_samples(const Archive& archive);

// One sentence, where the plan cuts batches whose loss is more than a mean over samples.
[[nodiscard]] std::string note_on_samples(const Archive& archive, const Plan& plan);

// One sentence, where the evaluation of a graph that was traced for training draws random numbers.
[[nodiscard]] std::string note_on_draws(const Graph& graph);

// Of which parameters gradients are summed row by row; empty where of none.
[[nodiscard]] std::string note_on_row_tables(const Graph& graph, const BucketOptions& buckets);

}  // namespace trireme
