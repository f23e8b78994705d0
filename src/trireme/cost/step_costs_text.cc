// The YAML of StepCosts.

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "trireme/base/yaml_keys.h"
#include "trireme/cost/step_costs.h"

namespace trireme {
namespace {

constexpr const char* kFormat = "trireme-step-costs-1";
constexpr const char* kFinalKey = "final_ns";
constexpr size_t kMaxListed = 1 << 16;

// The keys of a chunk, each a number.
struct ChunkKey {
  const char* name;
  int64_t ChunkCosts::* member;
};
constexpr std::array kChunkKeys = {
    ChunkKey{"forward_ns", &ChunkCosts::forward},
    ChunkKey{"backward_ns", &ChunkCosts::backward},
    ChunkKey{"input_gradient_ns", &ChunkCosts::input_gradient},
    ChunkKey{"weight_gradient_ns", &ChunkCosts::weight_gradient},
    ChunkKey{"recompute_ns", &ChunkCosts::recompute},
    ChunkKey{"activation_bytes", &ChunkCosts::activation_bytes},
    ChunkKey{"gradient_bytes", &ChunkCosts::gradient_bytes},
    ChunkKey{"kept_bytes", &ChunkCosts::kept_bytes},
    ChunkKey{"kept_input_bytes", &ChunkCosts::kept_input_bytes},
    ChunkKey{"deferred_bytes", &ChunkCosts::deferred_bytes},
    ChunkKey{"transient_bytes", &ChunkCosts::transient_bytes},
    ChunkKey{"forward_peak_bytes", &ChunkCosts::forward_peak_bytes},
    ChunkKey{"backward_peak_bytes", &ChunkCosts::backward_peak_bytes},
    ChunkKey{"split_peak_bytes", &ChunkCosts::split_peak_bytes},
};

void check_number(int64_t number, const YAML::Mark& mark, const char* key) {
  if (number >= 0 && number <= kMaxStepCost) return;
  throw WrongYaml{mark, fmt::format("{} is {}, not 0 to {}", key, number, kMaxStepCost)};
}

int64_t read_number(const YamlKeys& keys, const char* key) {
  if (!keys.has(key)) return 0;
  const auto number = keys.get<int64_t>(key);
  check_number(number, keys.needed(key).Mark(), key);
  return number;
}

void check_count(const YAML::Node& list, const char* key, size_t least) {
  if (list.size() >= least && list.size() <= kMaxListed) return;
  throw WrongYaml{list.Mark(), fmt::format("{} has {} entries, not {} to {}", key, list.size(),
                                           least, kMaxListed)};
}

std::vector<int64_t> read_numbers(const YamlKeys& keys, const char* key) {
  if (!keys.has(key)) return {};
  const YAML::Node list = keys.needed_list(key);
  check_count(list, key, 0);
  std::vector<int64_t> numbers;
  for (const YAML::Node& each : list) {
    numbers.push_back(each.as<int64_t>());
    check_number(numbers.back(), each.Mark(), key);
  }
  return numbers;
}

ChunkCosts read_chunk(const YAML::Node& node) {
  std::set<std::string> known = {kFinalKey};
  for (const ChunkKey& key : kChunkKeys) known.insert(key.name);
  const YamlKeys keys(node, "a chunk", known);
  ChunkCosts chunk;
  for (const ChunkKey& key : kChunkKeys) chunk.*key.member = read_number(keys, key.name);
  chunk.bucket_final = read_numbers(keys, kFinalKey);
  return chunk;
}

StepCosts read_costs(const YAML::Node& root) {
  const YamlKeys keys(root, "the list of step costs",
                      {"format", "stages", "tied_bytes", "scalar_bytes"});
  if (keys.get<std::string>("format") != kFormat) {
    throw WrongYaml{root.Mark(), fmt::format("the format is not {}", kFormat)};
  }
  StepCosts costs;
  check_count(keys.needed_list("stages"), "stages", 1);
  for (const YAML::Node& each : keys.needed_list("stages")) {
    const YamlKeys of_stage(
        each, "a stage",
        {"chunks", "update_ns", "bucket_bytes", "row_table_bytes", "row_id_bytes", "static_bytes"});
    StageCosts& stage = costs.stages.emplace_back();
    check_count(of_stage.needed_list("chunks"), "chunks", 1);
    for (const YAML::Node& chunk : of_stage.needed_list("chunks")) {
      stage.chunks.push_back(read_chunk(chunk));
    }
    stage.update = read_number(of_stage, "update_ns");
    stage.bucket_bytes = read_numbers(of_stage, "bucket_bytes");
    stage.rows.table_bytes = read_numbers(of_stage, "row_table_bytes");
    stage.rows.id_bytes = read_number(of_stage, "row_id_bytes");
    stage.static_bytes = read_number(of_stage, "static_bytes");
  }
  costs.tied_bytes = read_numbers(keys, "tied_bytes");
  costs.scalar_bytes = read_number(keys, "scalar_bytes");
  return costs;
}

}  // namespace

Status verify_step_costs(const StepCosts& costs) {
  const auto check = [](std::string_view where, std::string_view key, int64_t number) -> Status {
    if (number >= 0 && number <= kMaxStepCost) return Status();
    return Error{fmt::format("{}{} is {}, not 0 to {}", where, key, number, kMaxStepCost)};
  };
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCosts& stage = costs.stages[s];
    const std::string where = fmt::format("stage {}: ", s);
    for (const ChunkCosts& chunk : stage.chunks) {
      for (const ChunkKey& key : kChunkKeys) TRIREME_TRY(check(where, key.name, chunk.*key.member));
      for (const SimTime time : chunk.bucket_final) TRIREME_TRY(check(where, kFinalKey, time));
    }
    TRIREME_TRY(check(where, "update_ns", stage.update));
    TRIREME_TRY(check(where, "static_bytes", stage.static_bytes));
    for (const int64_t bytes : stage.bucket_bytes) TRIREME_TRY(check(where, "bucket_bytes", bytes));
    TRIREME_TRY(check(where, "row_id_bytes", stage.rows.id_bytes));
    for (const int64_t bytes : stage.rows.table_bytes) {
      TRIREME_TRY(check(where, "row_table_bytes", bytes));
    }
  }
  for (const int64_t bytes : costs.tied_bytes) TRIREME_TRY(check("", "tied_bytes", bytes));
  return check("", "scalar_bytes", costs.scalar_bytes);
}

std::vector<bool> chunks_of_bucket(const StageCosts& stage, size_t bucket) {
  std::vector<bool> adds;
  for (const ChunkCosts& chunk : stage.chunks) {
    if (bucket >= chunk.bucket_final.size()) return std::vector<bool>(stage.chunks.size(), false);
    adds.push_back(chunk.bucket_final[bucket] > 0);
  }
  return adds;
}

SimTime final_after(const ChunkCosts& chunk, size_t bucket, SimTime pass) {
  const SimTime of_backward = std::min(chunk.bucket_final[bucket], chunk.backward);
  if (chunk.backward == pass || chunk.backward == 0) return of_backward;
  return static_cast<SimTime>(static_cast<double>(of_backward) * static_cast<double>(pass) /
                              static_cast<double>(chunk.backward));
}

int64_t row_exchange_cost(const RowCosts& rows, int32_t exchange, int32_t replicas) {
  if (exchange == 0) return int64_t{8} * replicas * static_cast<int64_t>(rows.table_bytes.size());
  return exchange == 1 ? rows.id_bytes : rows.table_bytes[static_cast<size_t>(exchange) - 2];
}

SimTime step_cost_time(double seconds) { return to_sim_time(std::min(seconds, 1e6)); }

int64_t step_cost_bytes(double bytes) { return static_cast<int64_t>(std::min(bytes, 1e15)); }

std::string to_text(const StepCosts& costs) {
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << "format" << YAML::Value << kFormat;
  out << YAML::Key << "stages" << YAML::Value << YAML::BeginSeq;
  for (const StageCosts& stage : costs.stages) {
    out << YAML::BeginMap << YAML::Key << "chunks" << YAML::Value << YAML::BeginSeq;
    for (const ChunkCosts& chunk : stage.chunks) {
      out << YAML::BeginMap;
      for (const ChunkKey& key : kChunkKeys) {
        out << YAML::Key << key.name << YAML::Value << chunk.*key.member;
      }
      if (!chunk.bucket_final.empty()) {
        out << YAML::Key << kFinalKey << YAML::Value << YAML::Flow << chunk.bucket_final;
      }
      out << YAML::EndMap;
    }
    out << YAML::EndSeq << YAML::Key << "update_ns" << YAML::Value << stage.update;
    out << YAML::Key << "bucket_bytes" << YAML::Value << YAML::Flow << stage.bucket_bytes;
    if (!stage.rows.table_bytes.empty()) {
      out << YAML::Key << "row_table_bytes" << YAML::Value << YAML::Flow << stage.rows.table_bytes;
      out << YAML::Key << "row_id_bytes" << YAML::Value << stage.rows.id_bytes;
    }
    out << YAML::Key << "static_bytes" << YAML::Value << stage.static_bytes << YAML::EndMap;
  }
  out << YAML::EndSeq << YAML::Key << "tied_bytes" << YAML::Value << YAML::Flow << costs.tied_bytes;
  out << YAML::Key << "scalar_bytes" << YAML::Value << costs.scalar_bytes << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

Result<StepCosts> parse_step_costs(std::string_view text) {
  return read_yaml<StepCosts>(text, read_costs);
}

}  // namespace trireme
