// The files that rank 0 writes for programs: metrics as JSON lines, gradient norms as JSON.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/result.h"
#include "trireme/cli/replanner.h"
#include "trireme/graph/graph.h"

namespace trireme {

struct StepMetrics {
  int64_t step = 0;  // from 1
  double loss = 0;
  double items = 0;
  double seconds = 0;
  double lr = 0;
  std::optional<double> grad_norm;
  // By rank, of the run up to here; empty: not known. The processor time is that of a step's
  // passes, in the thread that computes.
  std::vector<int64_t> peak_bytes;
  std::vector<double> compute_cpu_seconds;
  std::vector<RankLink> links = {};  // as they were last measured
};

// [{"from": rank, "to": rank, "bytes_per_s", "latency_s"}, ...]
[[nodiscard]] nlohmann::ordered_json links_json(std::span<const RankLink> links);

class MetricsFile {
 public:
  // Truncates the file, and keeps other runs from writing it. An empty path writes nothing.
  static Result<MetricsFile> create(const std::string& path);
  // One line each, flushed, so that a reader sees it at once. After an error the file has its whole
  // lines, and gets no more.
  Status write_step(const StepMetrics& metrics);
  Status write_eval(int64_t step, double eval_loss);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  Status write_line(const std::string& line);
  std::string path_;
  uint64_t num_bytes_ = 0;  // of whole lines
  std::unique_ptr<std::FILE, Closer> file_;
};

// Names of all parameters -> norm, null without gradient; every name of a tied one has the whole.
[[nodiscard]] Status write_gradient_norms(const std::string& path, const Graph& graph,
                                          const std::vector<std::optional<double>>& norms);

}  // namespace trireme
