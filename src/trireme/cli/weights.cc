#include "trireme/cli/weights.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/one_line.h"

namespace trireme {
namespace {

std::string type_text(DType dtype, const std::vector<int64_t>& sizes) {
  return fmt::format("{}[{}]", dtype_info(dtype).name, fmt::join(sizes, ", "));
}

Error refusal(const InitialWeights& initial, const std::string& what) {
  return Error{one_line(fmt::format("--init {}: {}", initial.path(), what))};
}

// Insertions, deletions and replacements that make one text of the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

// One of `names` that a person could have meant by `name`: its path with or without a beginning,
// else the most similar one. nullptr when there are none.
const std::string* nearest(const std::string& name, const std::vector<std::string>& names) {
  const auto ends_with_path = [](const std::string& whole, const std::string& end) {
    return whole.ends_with("." + end);
  };
  const std::string* best = nullptr;
  size_t least = 0;
  for (const std::string& other : names) {
    if (ends_with_path(name, other) || ends_with_path(other, name)) return &other;
    const size_t difference = distance(name, other);
    if (best != nullptr && difference >= least) continue;
    best = &other;
    least = difference;
  }
  return best;
}

class WeightCheck {
 public:
  WeightCheck(RunSetup& setup, std::optional<int32_t> rank) : setup_(setup), rank_(rank) {}

  Status run() {
    is_whole_ = setup_.archive->num_parameters_without_values() == 0;
    if (!setup_.initial.has_value()) return check_archive();
    TRIREME_TRY(check_names());
    for (size_t i = 0; i < setup_.graph.inputs.size(); ++i) {
      const GraphInput& input = setup_.graph.inputs[i];
      if (is_saved(input) && is_needed(static_cast<int32_t>(i))) TRIREME_TRY(check_input(input));
    }
    return Status();
  }

 private:
  [[nodiscard]] const StoredTensor& stored(const GraphInput& input) const {
    const StoredTensor* stored = setup_.archive->find_tensor(input.names[0]);
    TRIREME_CHECK(stored != nullptr, "a graph input without a place");
    return *stored;
  }

  [[nodiscard]] bool is_needed(int32_t input) const {
    if (!rank_.has_value()) return true;
    const auto reads = [input](const Stage& stage) {
      return std::find(stage.inputs.begin(), stage.inputs.end(), input) != stage.inputs.end();
    };
    const std::vector<Stage>& stages = setup_.partition.stages;
    if (reads(stages[static_cast<size_t>(*rank_) % stages.size()])) return true;
    // Rank 0 saves what no stage reads; the first stage of each replica gives it to --eval-model.
    const bool is_asked = *rank_ == 0 || (setup_.eval_model.has_value() &&
                                          static_cast<size_t>(*rank_) % stages.size() == 0);
    return is_asked && std::none_of(stages.begin(), stages.end(), reads);
  }

  Status check_archive() const {
    for (const GraphInput& input : setup_.graph.inputs) {
      if (input.kind == GraphInput::Kind::kUser || setup_.archive->has_values(stored(input))) {
        continue;
      }
      const int64_t others = setup_.archive->num_parameters_without_values() - 1;
      return Error{fmt::format("{} holds no values of {}{}; give them with --init",
                               setup_.request.model, input.names[0],
                               others > 0 ? fmt::format(" and {} more", others) : "")};
    }
    return Status();
  }

  // Each parameter and buffer has a name in the weights, and each name there is one of the model.
  Status check_names() const {
    const InitialWeights& initial = *setup_.initial;
    std::set<std::string_view> known;
    for (const GraphInput& input : setup_.graph.inputs) {
      if (input.kind != GraphInput::Kind::kUser)
        known.insert(input.names.begin(), input.names.end());
    }
    std::vector<std::string> unknown = initial.names();
    std::erase_if(unknown, [&](const std::string& name) { return known.contains(name); });
    for (const GraphInput& input : setup_.graph.inputs) {
      if (!is_saved(input)) continue;
      const bool is_given = std::any_of(input.names.begin(), input.names.end(),
                                        [&](const std::string& name) { return initial.has(name); });
      const bool is_kept = !is_whole_ && input.kind == GraphInput::Kind::kParameter &&
                           setup_.archive->has_values(stored(input));
      if (is_given || is_kept) continue;
      const std::string* other = nearest(input.names[0], unknown);
      return refusal(
          initial, fmt::format("the file has no tensor {}{}", input.names[0],
                               other == nullptr ? ""
                                                : "; of the names that the model lacks, " + *other +
                                                      " is the nearest"));
    }
    if (unknown.empty()) return Status();
    return refusal(initial, fmt::format("the file has a tensor {}, which the model has not; remove "
                                        "it from the file",
                                        unknown[0]));
  }

  // All that the weights have of the input is one tensor that fits.
  Status check_input(const GraphInput& input) {
    InitialWeights& initial = *setup_.initial;
    const StoredTensor& wanted = stored(input);
    const std::string* first_name = nullptr;
    for (const std::string& name : input.names) {
      if (!initial.has(name)) continue;
      if (const Status mapped = initial.map(name); !mapped.ok()) {
        return Error{"--init " + mapped.error().message};
      }
      const TensorView& view = *initial.find(name);
      if (view.sizes != wanted.sizes || !converts(view.dtype, wanted.dtype)) {
        return refusal(initial, fmt::format("{} is {}, but the model has {}", name,
                                            type_text(view.dtype, view.sizes),
                                            type_text(wanted.dtype, wanted.sizes)));
      }
      if (first_name == nullptr) {
        first_name = &name;
        continue;
      }
      const TensorView& first = *initial.find(*first_name);
      const bool is_equal =
          first.dtype == view.dtype && std::ranges::equal(first.bytes, view.bytes);
      initial.release(*first_name);
      initial.release(name);
      if (is_equal) continue;
      return refusal(initial, fmt::format("{} and {} are one tied parameter of the model, but "
                                          "differ in the file",
                                          *first_name, name));
    }
    return Status();
  }

  // Floating-point numbers become those of the model, as load_state_dict does it.
  static bool converts(DType from, DType to) {
    const auto is_real = [](DType dtype) {
      return dtype_info(dtype).is_floating && dtype != DType::kComplex64 &&
             dtype != DType::kComplex128;
    };
    return from == to || (is_real(from) && is_real(to));
  }

  RunSetup& setup_;
  const std::optional<int32_t> rank_;
  bool is_whole_ = true;  // the archive has all its weights
};

}  // namespace

Status prepare_weights(RunSetup& setup, std::optional<int32_t> rank) {
  return WeightCheck(setup, rank).run();
}

}  // namespace trireme
