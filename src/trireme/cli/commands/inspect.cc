// `trireme inspect`: what is in an archive, for people and as JSON.

#include <algorithm>
#include <map>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trireme/base/json_text.h"
#include "trireme/cli/command.h"
#include "trireme/cli/notes.h"
#include "trireme/cli/validators.h"
#include "trireme/graph/aliasing.h"
#include "trireme/graph/cuts.h"
#include "trireme/graph/draws.h"
#include "trireme/graph/loss_items.h"
#include "trireme/graph/op_cost.h"
#include "trireme/graph/op_rules.h"
#include "trireme/import/archive.h"
#include "trireme/plan/gradients.h"

namespace trireme {
namespace {

using Json = nlohmann::json;

constexpr int64_t kBatch = 8;  // figures "a sample" are an eighth of this batch's

std::string_view kind_name(GraphInput::Kind kind) {
  constexpr std::string_view kNames[] = {"parameter", "buffer", "constant", "input"};
  return kNames[static_cast<size_t>(kind)];
}

int64_t num_elements(const Graph& graph, const GraphInput& input) {
  const Result<std::vector<int64_t>> sizes =
      concrete_sizes(graph.values[input.value.value].type.sizes, {});
  if (!sizes.ok()) return 0;
  int64_t count = 1;
  for (const int64_t size : sizes.value()) count *= size;
  return count;
}

// "12.3 M" and so on; exact below 10,000.
std::string human(double number) {
  constexpr std::string_view kUnits[] = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  while (number >= 10'000 && unit + 1 < std::size(kUnits)) {
    number /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}", number) : fmt::format("{:.1f}{}", number, kUnits[unit]);
}

struct OpCount {
  int64_t calls = 0;
  double flops = 0;
  bool has_rule = true;
};

struct Block {
  std::string first_module;
  std::string last_module;
  int32_t first = 0;
  int32_t end = 0;
  double flops = 0;      // a sample
  int64_t bytes_in = 0;  // a sample, over the cut before it
  std::string cut;       // the outermost module that begins here, for --cut; may be empty
};

struct Findings {
  std::map<std::string, OpCount> ops;
  std::map<std::string_view, int64_t> kinds;
  std::vector<Block> blocks;
  double flops = 0;
  int64_t activation_bytes = 0;
  std::set<std::string> symbols;
  std::vector<std::optional<Draw>> draws;  // by node
};

void count_ops(const Graph& graph, const SymbolValues& symbols, Findings& findings) {
  for (const Node& node : graph.nodes) {
    const OpRule* rule = find_op_rule(node.op);
    OpCount& count = findings.ops[node.op];
    ++count.calls;
    count.has_rule = rule != nullptr;
    const Result<double> flops = node_flops(graph, node, symbols);
    if (flops.ok()) count.flops += flops.value() / kBatch;
    findings.kinds[to_text(rule == nullptr ? OpKind::kOther : rule->kind)] += 1;
    if (alias_kind(node) != AliasKind::kFresh) continue;
    for (const ValueId id : results(node)) {
      const Result<int64_t> bytes = value_bytes(graph, id, symbols);
      if (bytes.ok()) findings.activation_bytes += bytes.value() / kBatch;
    }
  }
}

std::vector<std::string> with_outer_modules(const std::string& module) {
  std::vector<std::string> modules;
  for (size_t dot = module.find('.'); dot != std::string::npos; dot = module.find('.', dot + 1)) {
    modules.push_back(module.substr(0, dot));
  }
  modules.push_back(module);
  return modules;
}

// The first node of each module that --cut can name: where it cuts.
std::map<std::string, int32_t> module_begins(const Graph& graph, const CutAnalysis& cuts) {
  std::map<std::string, int32_t> begins;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (cuts.is_replicated[n] || graph.nodes[n].module.empty()) continue;
    for (std::string& module : with_outer_modules(graph.nodes[n].module)) {
      begins.emplace(std::move(module), static_cast<int32_t>(n));
    }
  }
  return begins;
}

std::string cut_name(const Graph& graph, const CutAnalysis& cuts,
                     const std::map<std::string, int32_t>& begins, const Block& block) {
  int32_t first = block.first;
  while (first < block.end && cuts.is_replicated[first]) ++first;
  if (first == block.end || !cuts.is_legal[first] || graph.nodes[first].module.empty()) return "";
  for (const std::string& module : with_outer_modules(graph.nodes[first].module)) {
    if (begins.at(module) == first) return module;
  }
  return "";
}

void find_blocks(const Graph& graph, const CutAnalysis& cuts, Findings& findings) {
  std::vector<int32_t> bounds = block_cuts(graph, cuts, BlockGrain::kModules);
  // One block would say that the model cannot be cut, while the planner looks closer.
  if (bounds.empty()) bounds = block_cuts(graph, cuts, BlockGrain::kOperators);
  const std::map<std::string, int32_t> begins = module_begins(graph, cuts);
  bounds.insert(bounds.begin(), 0);
  bounds.push_back(static_cast<int32_t>(graph.nodes.size()));
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    Block block{.first = bounds[i], .end = bounds[i + 1]};
    for (int32_t n = block.first; n < block.end; ++n) {
      const std::string& module = graph.nodes[n].module;
      if (cuts.is_replicated[n] || module.empty()) continue;
      if (block.first_module.empty()) block.first_module = module;
      block.last_module = module;
    }
    if (i > 0) block.cut = cut_name(graph, cuts, begins, block);
    block.flops = (cuts.flops_before[block.end] - cuts.flops_before[block.first]) / kBatch;
    block.bytes_in = cuts.live_bytes[block.first] / kBatch;
    findings.blocks.push_back(std::move(block));
  }
}

Result<Findings> study(const Graph& graph) {
  Findings findings;
  const SymbolValues symbols = example_symbols(graph, kBatch);
  count_ops(graph, symbols, findings);
  TRIREME_TRY(CutAnalysis cuts, analyze_cuts(graph, symbols));
  find_blocks(graph, cuts, findings);
  findings.draws = analyze_draws(graph);
  findings.flops = cuts.flops_before.back() / kBatch;
  for (const GraphInput& input : graph.inputs) {
    for (const SymExpr& size : graph.values[input.value.value].type.sizes) {
      collect_symbols(size, findings.symbols);
    }
  }
  return findings;
}

std::string batch_text(const Graph& graph, const Findings& findings) {
  if (const std::optional<std::string> symbol = batch_symbol(graph)) return *symbol;
  // As with jagged inputs, whose archive is not of trireme.export.
  return findings.symbols.empty() ? "static"
                                  : "unknown (--batch-dim or --jagged of trireme train says it)";
}

Json to_json(const Archive& archive, const Findings& findings) {
  const Graph& graph = archive.graph();
  Json json = {{"model", archive.path()},
               {"torch", archive.torch_version()},
               {"num_parameters_without_values", archive.num_parameters_without_values()},
               {"is_mean_over_samples", archive.is_mean_over_samples()},
               {"loss", graph.values[graph.loss.value].name},
               {"items", items_to_text(graph)},
               {"num_nodes", num_model_nodes(graph)},
               {"flops_a_sample", findings.flops},
               {"activation_bytes_a_sample", findings.activation_bytes},
               {"batch_symbol", batch_symbol(graph).value_or("")},
               {"symbols", findings.symbols}};
  const std::vector<bool> gets = gets_gradient(graph);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphInput& input = graph.inputs[i];
    Json entry = {{"names", input.names}, {"type", to_text(graph.values[input.value.value].type)}};
    if (input.kind == GraphInput::Kind::kParameter) {
      entry["elements"] = num_elements(graph, input);
      entry["requires_grad"] = input.requires_grad;
      entry["gets_gradient"] = static_cast<bool>(gets[i]);
    }
    if (input.kind == GraphInput::Kind::kBuffer) entry["persistent"] = input.is_persistent;
    json[std::string(kind_name(input.kind)) + "s"].push_back(std::move(entry));
  }
  for (const auto& [op, count] : findings.ops) {
    json["operators"].push_back({{"op", op},
                                 {"calls", count.calls},
                                 {"flops_a_sample", count.flops},
                                 {"has_rule", count.has_rule}});
  }
  for (size_t i = 0; i < findings.draws.size(); ++i) {
    const std::optional<Draw>& draw = findings.draws[i];
    if (!draw.has_value()) continue;
    const Node& node = graph.nodes[i];
    const std::string why = why_no_draw(node);
    json["random"].push_back(
        {{"op", node.op},
         {"module", node.module},
         {"key", why.empty() ? to_text(draw->key) : std::string_view("refused")}});
  }
  for (const Block& block : findings.blocks) {
    json["blocks"].push_back({{"first_module", block.first_module},
                              {"last_module", block.last_module},
                              {"nodes", {block.first, block.end}},
                              {"flops_a_sample", block.flops},
                              {"bytes_in_a_sample", block.bytes_in},
                              {"cut", block.cut}});
  }
  for (const Node& node : graph.nodes) json["graph"].push_back(node_to_text(graph, node));
  return json;
}

void write_inputs(const Archive& archive, std::string& text) {
  const Graph& graph = archive.graph();
  int64_t elements = 0;
  int64_t trained = 0;
  const std::vector<bool> gets = gets_gradient(graph);
  text += "parameters\n";
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphInput& input = graph.inputs[i];
    if (input.kind != GraphInput::Kind::kParameter) continue;
    elements += num_elements(graph, input);
    trained += gets[i] ? num_elements(graph, input) : 0;
    text += fmt::format(
        "  {:<52} {:<18}{}{}\n", input.names[0], to_text(graph.values[input.value.value].type),
        input.names.size() > 1 ? fmt::format(" tied: {}", fmt::join(std::next(input.names.begin()),
                                                                    input.names.end(), ", "))
                               : "",
        !input.requires_grad ? " frozen"
        : gets[i]            ? ""
                             : " no gradient");
  }
  text += fmt::format("  {} elements, {} of them trained\n", human(static_cast<double>(elements)),
                      human(static_cast<double>(trained)));
  text += note_on_weights(archive) + note_on_samples(archive);
  for (const auto kind : {GraphInput::Kind::kBuffer, GraphInput::Kind::kUser}) {
    bool is_first = true;
    for (const GraphInput& input : graph.inputs) {
      if (input.kind != kind) continue;
      if (is_first) text += fmt::format("\n{}s\n", kind_name(kind));
      is_first = false;
      text += fmt::format("  {:<52} {}{}\n", input.names[0],
                          to_text(graph.values[input.value.value].type),
                          input.is_persistent ? "" : " not saved");
    }
  }
}

// One line for the nodes of one operator in one module.
void write_draws(const Graph& graph, const Findings& findings, std::string& text) {
  std::vector<std::pair<std::string, int64_t>> lines;
  for (size_t i = 0; i < findings.draws.size(); ++i) {
    const std::optional<Draw>& draw = findings.draws[i];
    if (!draw.has_value()) continue;
    const Node& node = graph.nodes[i];
    constexpr std::string_view kMeanings[] = {
        "by sample", "one draw a step",
        "by micro-batch: the numbers depend on how many micro-batches a step has"};
    std::string meaning(kMeanings[static_cast<size_t>(draw->key)]);
    if (const std::string why = why_no_draw(node); !why.empty()) {
      meaning = "refused:" + why.substr(why.rfind(';') + 1);
    }
    std::string line = fmt::format("{:<44} {:<24} {}", node.op,
                                   node.module.empty() ? "(no module)" : node.module, meaning);
    const auto found = std::find_if(lines.begin(), lines.end(),
                                    [&](const auto& each) { return each.first == line; });
    if (found != lines.end()) {
      ++found->second;
    } else {
      lines.emplace_back(std::move(line), 1);
    }
  }
  if (!lines.empty()) text += "\nrandom numbers\n";
  for (const auto& [line, count] : lines) text += fmt::format("  {:>5} x {}\n", count, line);
}

// Empty where each operator has a rule.
std::string unruled_text(const Findings& findings) {
  std::vector<std::string> unruled;
  for (const auto& [op, count] : findings.ops) {
    if (!count.has_rule) unruled.push_back(fmt::format("{} x{}", base_name(op), count.calls));
  }
  if (unruled.empty()) return "";
  return fmt::format("operators without a rule: {}; flops counted as bytes moved\n",
                     fmt::join(unruled, ", "));
}

std::string to_table(const Archive& archive, const Findings& findings) {
  const Graph& graph = archive.graph();
  std::string text = fmt::format("{}: {} nodes, written by torch {}\n", archive.path(),
                                 num_model_nodes(graph), archive.torch_version());
  text += fmt::format("loss %{}, items {}, batch {}, symbolic sizes {}\n",
                      graph.values[graph.loss.value].name, items_to_text(graph),
                      batch_text(graph, findings), fmt::join(findings.symbols, ", "));
  text += fmt::format("forward {} flops and {} B of activations a sample\n\n",
                      human(findings.flops), human(static_cast<double>(findings.activation_bytes)));
  write_inputs(archive, text);
  text += "\noperators by kind\n ";
  for (const auto& [kind, calls] : findings.kinds) text += fmt::format(" {} {}", kind, calls);
  text += "\n" + unruled_text(findings) + "\noperators\n";
  std::vector<std::pair<std::string, OpCount>> ops(findings.ops.begin(), findings.ops.end());
  std::stable_sort(ops.begin(), ops.end(),
                   [](const auto& a, const auto& b) { return a.second.flops > b.second.flops; });
  for (const auto& [op, count] : ops) {
    text +=
        fmt::format("  {:<44} {:>5} calls {:>10} flops{}{}\n", op, count.calls, human(count.flops),
                    count.has_rule ? "" : "  (no rule: bytes moved)",
                    count.has_rule || is_aten(op) ? "" : "  (train it with --operator-library)");
  }
  write_draws(graph, findings, text);
  text += "\nchain of blocks\n";
  for (size_t i = 0; i < findings.blocks.size(); ++i) {
    const Block& block = findings.blocks[i];
    const std::string modules = block.first_module.empty() ? "(no module)"
                                : block.first_module == block.last_module
                                    ? block.first_module
                                    : block.first_module + " .. " + block.last_module;
    text += fmt::format("  {:>3}  {:<52} {:>5.1f}% of flops {:>10} B in{}\n", i, modules,
                        findings.flops > 0 ? 100 * block.flops / findings.flops : 0.0,
                        human(static_cast<double>(block.bytes_in)),
                        block.cut.empty() ? "" : "  --cut " + block.cut);
  }
  return text;
}

struct InspectRequest {
  std::string model;
  bool wants_graph = false;
  bool wants_json = false;
};

Result<std::string> inspect(const InspectRequest& request) {
  TRIREME_TRY(Archive archive, Archive::open(request.model));
  if (request.wants_graph && !request.wants_json) return to_text(archive.graph());
  TRIREME_TRY(Findings findings, study(archive.graph()));
  if (request.wants_json) return json_text(to_json(archive, findings), 1) + "\n";
  return to_table(archive, findings);
}

}  // namespace

RequestMaker add_inspect(CLI::App& app) {
  const auto request = std::make_shared<InspectRequest>();
  app.add_option("MODEL", request->model, "a .pt2")->required()->check(not_empty());
  app.add_flag("--graph", request->wants_graph, "the graph's text form");
  app.add_flag("--json", request->wants_json, "everything, as JSON");
  return
      [request]() -> Result<Request> { return Request([request] { return inspect(*request); }); };
}

}  // namespace trireme
