// What the user asked for on the command line.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/data/feed.h"
#include "trireme/plan/gradients.h"
#include "trireme/plan/row_tables.h"
#include "trireme/sim/simulate.h"
#include "trireme/torch/optimizer_options.h"

namespace trireme {

// Names and defaults are fixed: others script against them.
struct PlanChoice {
  // Default: as many as --cut or the file of --schedule says, else 1.
  std::optional<int32_t> pp;
  int32_t dp = 1;
  std::optional<int32_t> micro_batches;  // a replica; default pp
  std::string schedule = "1f1b";
  std::optional<int32_t> chunks;  // a rank; default that of the schedule
  std::vector<std::string> cut;
  std::string comm = "trirace";                // the communication policy
  int64_t bucket_bytes = kDefaultBucketBytes;  // of gradients that are summed at once
  SparseChoice sparse = SparseChoice::kAuto;   // of tables whose gradients are summed row by row
  std::vector<int32_t> extra_warm_ups;         // by hop, of 1f1b and 2bw
  std::string plan_path;                       // --plan: instead of all of the above
};

inline constexpr double kDefaultReplanDrift = 2;

enum class TransportKind : uint8_t { kGloo, kDirect };

// Files; empty: the analytic model, and this machine.
struct PredictionSources {
  std::string profile;
  std::string cluster;
};

// A step to be simulated or rehearsed: of a MODEL.pt2, or of a schedule by name or from a file.
struct StepRequest {
  std::string what;
  PlanChoice plan;
  PredictionSources sources;
  OptimizerOptions optimizer;  // of a MODEL.pt2
  bool clips_norm = false;     // the same
  std::string costs;           // of a schedule
  std::string model;           // instead, by its sizes
  std::string dtype = "bfloat16";
  int32_t samples = 1;  // of a micro-batch
  SimOptions options;
  bool wants_layers = false;  // of an archive, costs layer by layer, too
};

enum class LearningRateKind : uint8_t { kConstant, kLinear, kCosine };

// `trireme probe`: ranks that measure each other instead of training.
struct ProbeRequest {
  double budget_s = 20;
  std::string output;  // empty: stdout
};

struct RunRequest {
  bool is_training = true;  // train; false: eval
  std::string model;
  std::string data;
  int64_t batch = 0;
  std::optional<int64_t> steps;
  std::optional<int64_t> epochs;
  PlanChoice plan;
  std::optional<int32_t> workers;  // default pp x dp; 1: all ranks are threads of one process
  std::optional<TransportKind> transport;  // between processes; see transport_kind()
  bool shares_memory = true;               // ranks of one host, over the direct transport
  int32_t threads = 1;
  bool pins = false;  // each rank to cores of its own
  OptimizerOptions optimizer;
  double lr = 1e-3;
  LearningRateKind lr_schedule = LearningRateKind::kConstant;
  int64_t warmup_steps = 0;
  std::string freeze;
  std::optional<double> clip_norm;
  uint64_t seed = 0;
  bool shuffles = true;
  bool drops_last = false;
  std::optional<int64_t> seq_len;
  std::vector<std::string> operator_libraries;
  std::vector<std::pair<std::string, std::string>> jagged;  // values, offsets
  std::vector<std::pair<std::string, size_t>> batch_dims;   // input, dim
  std::vector<LengthOption> lengths;
  std::string init;
  std::string save;
  std::optional<int64_t> save_every;
  std::string metrics;
  std::string grad_norms;
  double replan_drift = kDefaultReplanDrift;  // see cli/replanner.h; 0: never
  std::string timeline;
  std::optional<StepRequest> rehearsal;  // instead of a model and its data
  std::optional<ProbeRequest> probe;     // the same
  bool predicts = false;
  std::string profile;  // of the prediction; empty: the analytic model
  std::string cluster;  // the same; empty: this machine
  int64_t timeline_steps = 20;
  std::string eval_data;
  std::string eval_model;
  std::optional<int64_t> eval_every;
  std::optional<int64_t> eval_batches;
  std::string interface;  // for transfers between ranks; empty: that to rank 0
  int64_t rendezvous_timeout_s = 300;
  int64_t silence_timeout_s = 30;
  bool is_quiet = false;
  bool wants_json = false;

  [[nodiscard]] TransportKind transport_kind() const {
    return transport.value_or(TransportKind::kDirect);
  }
  // stdout is for a result that can be piped, and progress is for stderr.
  [[nodiscard]] bool has_result() const { return wants_json || !is_training || probe.has_value(); }
};

// `trireme profile`: a training of one rank, of which only the passes are timed.
struct ProfileRequest {
  RunRequest run;                      // the model, its data, the optimizer, threads
  std::vector<int64_t> micro_batches;  // samples, ascending; empty: 1, 2 and 4 as the model allows
  double budget_s = 30;
  int32_t concurrent = 1;             // processes that measure at the same time
  bool takes_processor_time = false;  // of the thread that computes; else the time that passes
  std::string output;                 // empty: stdout
};

// Nothing to run: help or version was printed, or the words were wrong.
struct NothingToDo {
  int exit_code = 0;
  std::string output;  // to stdout when the code is 0, else to stderr
};

// A command that needs no ranks: gives the text to print.
using TextRequest = std::function<Result<std::string>()>;

using Request = std::variant<NothingToDo, RunRequest, ProfileRequest, TextRequest>;

// `program` is "trireme" or "trireme-worker"; `arguments` without the program's name.
[[nodiscard]] Request parse_request(const std::string& program,
                                    const std::vector<std::string>& arguments);

}  // namespace trireme
