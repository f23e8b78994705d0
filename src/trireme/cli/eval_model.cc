#include "trireme/cli/eval_model.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace trireme {
namespace {

const TensorType& type_of(const Graph& graph, const GraphInput& input) {
  return graph.values[input.value.value].type;
}

std::map<std::string, int32_t> saved_names(const Graph& graph) {
  std::map<std::string, int32_t> names;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (!is_saved(graph.inputs[i])) continue;
    for (const std::string& name : graph.inputs[i].names) {
      names.emplace(name, static_cast<int32_t>(i));
    }
  }
  return names;
}

Result<std::vector<std::optional<int32_t>>> match_by_name(const Graph& graph,
                                                          const Graph& trained) {
  const std::map<std::string, int32_t> known = saved_names(trained);
  std::vector<std::optional<int32_t>> sources(graph.inputs.size());
  for (const auto& [name, index] : saved_names(graph)) {
    const auto found = known.find(name);
    if (found == known.end()) {
      return Error{fmt::format("it has {}, which the trained model has not", name)};
    }
    const TensorType& own = type_of(graph, graph.inputs[index]);
    const TensorType& other = type_of(trained, trained.inputs[found->second]);
    if (own.dtype != other.dtype || own.sizes != other.sizes) {
      return Error{
          fmt::format("{} is {}, but {} in the trained model", name, to_text(own), to_text(other))};
    }
    std::optional<int32_t>& source = sources[index];
    if (source.has_value() && *source != found->second) {
      return Error{fmt::format("{} and {} are one tied parameter, but two in the trained model",
                               graph.inputs[index].names[0], name)};
    }
    source = found->second;
  }
  const std::map<std::string, int32_t> own = saved_names(graph);
  for (const auto& [name, index] : known) {
    if (!own.contains(name)) {
      return Error{fmt::format("it lacks {}, which the trained model has", name)};
    }
  }
  return sources;
}

}  // namespace

bool is_saved(const GraphInput& input) {
  return input.kind == GraphInput::Kind::kParameter ||
         (input.kind == GraphInput::Kind::kBuffer && input.is_persistent);
}

Result<EvalModel> open_eval_model(const std::string& path, const Graph& trained, const Plan& plan,
                                  const RunRequest& request) {
  TRIREME_TRY(Archive archive, Archive::open(path));
  EvalModel model;
  model.archive = std::make_unique<Archive>(std::move(archive));
  model.graph = model.archive->graph();
  const auto doing = fmt::format("--eval-model {}", path);
  Result<std::vector<std::optional<int32_t>>> sources = match_by_name(model.graph, trained);
  if (!sources.ok()) return while_doing(doing, sources.error());
  model.sources = std::move(sources.value());
  const Result<Plan> cut = build_plan(model.graph, path,
                                      {.pp = plan.pp,
                                       .dp = plan.dp,
                                       .micro_batches = plan.micro_batches,
                                       .schedule = plan.schedule,
                                       .chunks = plan.chunks,
                                       .placement = plan.placement,
                                       .cut_modules = request.plan.cut});
  if (!cut.ok()) return while_doing(doing, cut.error());
  TRIREME_TRY(model.partition, partition_by_plan(cut.value(), model.graph));
  return model;
}

}  // namespace trireme
