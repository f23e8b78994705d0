// The measured A100 rows that come with vTrain against cost/training_cost.h: reads a table of
// constants and tables of rows, prints errors. bench/vtrain.py runs it.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/cost/training_cost.h"

namespace trireme {
namespace {

// Columns of a table in its order, the measured time in milliseconds last.
using Fields = std::map<std::string, double>;

struct Row {
  ModelSpec spec;
  TrainingLayout layout;
  double seconds = 0;
  bool is_multi_node = false;
  std::string key;  // its line without the column that only one of the tables has
};

// By name, as in vtrain.json.
using Constants = std::map<std::string, double>;

constexpr std::array kColumns = {"global_batch", "micro_batch", "hidden",      "heads",
                                 "layers",       "seq_len",     "tp",          "dp",
                                 "pp",           "num_gpus",    "iteration_ms"};
constexpr double kVtrainSingleNode = 8.37;  // its published errors, on all rows, in percent
constexpr double kVtrainMultiNode = 14.73;
constexpr size_t kTenth = 10;

[[noreturn]] void refuse(const std::string& what) {
  fmt::print(stderr, "bench/run vtrain: {}\n", what);
  std::exit(2);
}

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> parts;
  std::istringstream stream(line.ends_with('\r') ? line.substr(0, line.size() - 1) : line);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

Row make_row(const Fields& fields, const Constants& constants, const std::string& where) {
  const auto whole = [&](const char* name) { return static_cast<int64_t>(fields.at(name)); };
  Row row;
  row.spec = {.layers = whole("layers"),
              .hidden = whole("hidden"),
              .heads = whole("heads"),
              .seq = whole("seq_len"),
              .vocab = static_cast<int64_t>(constants.at("vocab"))};
  row.layout = {.dp = whole("dp"),
                .pp = whole("pp"),
                .tp = whole("tp"),
                .micro_batch = whole("micro_batch"),
                .global_batch = whole("global_batch")};
  row.seconds = fields.at("iteration_ms") / 1e3;
  row.is_multi_node = fields.at("num_gpus") > constants.at("devices_per_host");
  if (const Status status = verify_model_spec(row.spec); !status.ok()) {
    refuse(fmt::format("{}: {}", where, status.error().message));
  }
  if (const Status status = verify_layout(row.spec, row.layout); !status.ok()) {
    refuse(fmt::format("{}: {}", where, status.error().message));
  }
  if (!(row.seconds > 0)) refuse(fmt::format("{}: iteration_ms is not above 0", where));
  for (const char* name : kColumns) row.key += fmt::format("{},", fields.at(name));
  return row;
}

std::vector<Row> read_rows(const std::string& path, const Constants& constants) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) refuse(fmt::format("cannot read rows from {}", path));
  const std::vector<std::string> names = split(line);
  for (const char* name : kColumns) {
    if (std::ranges::find(names, name) == names.end()) {
      refuse(fmt::format("{} has no column {}", path, name));
    }
  }
  std::vector<Row> rows;
  for (int number = 2; std::getline(file, line); ++number) {
    const std::vector<std::string> parts = split(line);
    if (parts.empty()) continue;
    const std::string where = fmt::format("{}: line {}", path, number);
    if (parts.size() != names.size()) refuse(where + " has not one value a column");
    Fields fields;
    for (size_t i = 0; i < names.size(); ++i) {
      char* end = nullptr;
      const double value = std::strtod(parts[i].c_str(), &end);
      // What is larger than a step or a batch may be is no number of a row, and NaN neither.
      if (parts[i].empty() || *end != '\0' || !(std::abs(value) < 1e12)) {
        refuse(fmt::format("{}: {} is '{}', no number", where, names[i], parts[i]));
      }
      fields[names[i]] = value;
    }
    rows.push_back(make_row(fields, constants, where));
  }
  if (rows.empty()) refuse(path + " has no rows");
  return rows;
}

double predict(const Row& row, const Constants& c) {
  const DeviceModel device = {.flops_per_s = c.at("flops_per_s"),
                              .bytes_per_s = c.at("bytes_per_s"),
                              .processors = c.at("processors"),
                              .tile = c.at("tile"),
                              .matmul_efficiency = c.at("matmul_efficiency"),
                              .matmul_half_depth = c.at("matmul_half_depth"),
                              .memory_efficiency = c.at("memory_efficiency"),
                              .launch_s = c.at("launch_s"),
                              .overlap_exponent = c.at("overlap_exponent")};
  const TrainingHosts hosts = {
      .devices_per_host = static_cast<int64_t>(c.at("devices_per_host")),
      .inside = {.latency_s = c.at("collective_s"), .bytes_per_s = c.at("inside_bytes_per_s")},
      .between = {.latency_s = c.at("collective_s"), .bytes_per_s = c.at("between_bytes_per_s")}};
  return training_step(row.spec, row.layout, device, hosts).seconds;
}

// Mean absolute percentage errors. A class without rows has none.
struct Errors {
  double single_node = 0;
  double multi_node = 0;
  int num_single_node = 0;
  int num_multi_node = 0;
};

Errors errors_of(const std::vector<Row>& rows, const Constants& constants) {
  Errors errors;
  for (const Row& row : rows) {
    const double error = 100 * std::abs(predict(row, constants) / row.seconds - 1);
    (row.is_multi_node ? errors.multi_node : errors.single_node) += error;
    ++(row.is_multi_node ? errors.num_multi_node : errors.num_single_node);
  }
  errors.single_node /= std::max(1, errors.num_single_node);
  errors.multi_node /= std::max(1, errors.num_multi_node);
  return errors;
}

struct Fit {
  Constants start;
  std::vector<std::string> names;
};

// Both classes weigh the same, whatever their numbers of rows; a logarithm, as half and double are
// equally wrong. A little pulls towards the start what the rows do not decide.
double misfit(const std::vector<Row>& rows, const Fit& fit, const Constants& constants) {
  std::array<double, 2> sums = {};
  std::array<double, 2> counts = {};
  for (const Row& row : rows) {
    sums[row.is_multi_node] += std::abs(std::log(predict(row, constants) / row.seconds));
    ++counts[row.is_multi_node];
  }
  double total = 0;
  for (const size_t i : {0, 1}) total += counts[i] > 0 ? sums[i] / counts[i] : 0;
  for (const std::string& name : fit.names) {
    total += 1e-3 * std::pow(std::log(constants.at(name) / fit.start.at(name)), 2);
  }
  return total;
}

// Compass search over the logarithms: one constant at a time up and down, with halved steps once
// nothing helps.
Constants fit_constants(const std::vector<Row>& rows, const Fit& fit) {
  Constants best = fit.start;
  double least = misfit(rows, fit, best);
  for (double step = 0.4; step > 1e-3;) {
    bool helps = false;
    for (const std::string& name : fit.names) {
      for (const double factor : {std::exp(step), std::exp(-step)}) {
        Constants tried = best;
        tried[name] *= factor;
        if (name == "matmul_efficiency" && tried[name] > 1) continue;
        const double value = misfit(rows, fit, tried);
        if (value >= least) continue;
        least = value;
        best = tried;
        helps = true;
      }
    }
    if (!helps) step /= 2;
  }
  return best;
}

std::string describe(const Fit& fit, const Constants& constants) {
  std::string text;
  for (const std::string& name : fit.names) {
    text += fmt::format("{}{} {:.3g}", text.empty() ? "" : ", ", name, constants.at(name));
  }
  return text;
}

// Every tenth row of each table, from row `first` (0 .. 9).
void split_rows(const std::vector<std::vector<Row>>& tables, size_t first, std::vector<Row>& tenth,
                std::vector<Row>& others) {
  for (const std::vector<Row>& table : tables) {
    for (size_t i = 0; i < table.size(); ++i) {
      (i % kTenth == first ? tenth : others).push_back(table[i]);
    }
  }
}

void cross_validate(const std::vector<std::vector<Row>>& tables, const Fit& fit) {
  fmt::print("fitted on every tenth row, from another first one each time:\n");
  fmt::print("  {:>5} {:>12} {:>11}   constants\n", "first", "single node", "multi node");
  for (size_t first = 0; first < kTenth; ++first) {
    std::vector<Row> tenth;
    std::vector<Row> others;
    split_rows(tables, first, tenth, others);
    const Constants constants = fit_constants(tenth, fit);
    const Errors errors = errors_of(others, constants);
    fmt::print("  {:>5} {:>10.2f} % {:>9.2f} %   {}\n", first + 1, errors.single_node,
               errors.multi_node, describe(fit, constants));
  }
}

int run(int argc, char** argv) {
  CLI::App app("errors of predicted step times");
  std::string constants_path;
  std::string data_path;
  std::vector<std::string> paths;
  bool fits = false;
  bool cross_validates = false;
  bool prints_rows = false;
  app.add_option("--constants", constants_path)->required();
  app.add_option("--data", data_path)->required();
  app.add_option("--rows", paths);
  app.add_flag("--fit", fits);
  app.add_flag("--cross-validate", cross_validates);
  app.add_flag("--print-rows", prints_rows);
  CLI11_PARSE(app, argc, argv);

  std::ifstream file(constants_path);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object()) refuse("cannot read constants from " + constants_path);
  Constants constants;
  Fit fit;
  for (const auto& [name, entry] : json.items()) {
    constants[name] = entry.at("value");
    fit.start[name] = entry.value("start", constants[name]);
    if (entry.value("fitted", false)) fit.names.push_back(name);
  }

  std::vector<std::vector<Row>> tables;
  std::vector<Row> tenth;
  std::vector<Row> others;
  for (const char* name : {"single_node.csv", "multi_node.csv"}) {
    const std::string path = data_path + "/" + name;
    if (std::ifstream(path).good()) tables.push_back(read_rows(path, constants));
  }
  split_rows(tables, 0, tenth, others);
  if (tables.empty() && (fits || cross_validates || paths.empty())) {
    refuse(fmt::format("there is no single_node.csv nor multi_node.csv in {}", data_path));
  }
  if (fits) {
    const Constants fitted = fit_constants(tenth, fit);
    fmt::print("fitted on {} rows: {}\n", tenth.size(), describe(fit, fitted));
    return 0;
  }
  if (cross_validates) {
    cross_validate(tables, fit);
    return 0;
  }

  std::vector<Row> rows = others;
  if (!paths.empty()) {
    rows.clear();
    for (const std::string& path : paths) {
      for (Row& row : read_rows(path, constants)) {
        const auto is_same = [&](const Row& fitted) { return fitted.key == row.key; };
        if (std::ranges::none_of(tenth, is_same)) rows.push_back(std::move(row));
      }
    }
  }
  if (prints_rows) {
    for (const Row& row : rows) {
      fmt::print("{} {} measured {:.1f} ms, predicted {:.1f} ms\n", to_text(row.spec),
                 fmt::format("tp={} dp={} pp={} micro_batch={} global_batch={}", row.layout.tp,
                             row.layout.dp, row.layout.pp, row.layout.micro_batch,
                             row.layout.global_batch),
                 1e3 * row.seconds, 1e3 * predict(row, constants));
    }
  }
  const Errors errors = errors_of(rows, constants);
  for (const auto& [name, entry] : json.items()) {
    fmt::print("  {:<20} {:>12.5g}  {}\n", name, constants[name],
               entry.at("from").get<std::string>());
  }
  fmt::print("mean absolute percentage error, {} fitted rows left out\n", tenth.size());
  fmt::print("  {:<12} {:>6} {:>10} {:>10}\n", "", "rows", "trireme", "vTrain");
  nlohmann::json result = {{"bench", "vtrain"}};
  const auto line = [&](const char* name, int count, double error, double theirs) {
    if (count == 0) return;
    fmt::print("  {:<12} {:>6} {:>8.2f} % {:>8.2f} %\n", name, count, error, theirs);
    const std::string key =
        fmt::format("{}_node", std::string(name).substr(0, std::string(name).find(' ')));
    result[key + "_mape"] = std::round(100 * error) / 100;
    result[key + "_rows"] = count;
    result["vtrain_" + key + "_mape"] = theirs;
  };
  line("single node", errors.num_single_node, errors.single_node, kVtrainSingleNode);
  line("multi node", errors.num_multi_node, errors.multi_node, kVtrainMultiNode);
  fmt::print("RESULT {}\n", result.dump());
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) { return trireme::run(argc, argv); }
