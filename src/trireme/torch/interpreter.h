// Interpreter: a compiled list of operator calls that runs part of a Graph on a micro-batch.
//
// Values are dropped after their last use. Autograd is on in training; regions switch it and
// autocast. Not thread-safe; one thread runs an interpreter at a time.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/result.h"
#include "trireme/graph/graph.h"
#include "trireme/torch/final_gradients.h"
#include "trireme/torch/operator_call.h"
#include "trireme/torch/row_exchange.h"

namespace trireme {

struct InterpreterRun {
  SymbolValues symbols;
  uint64_t random_key = 0;   // of (seed, step)
  int64_t micro_batch = 0;   // of the step, over all replicas
  int64_t first_sample = 0;  // the micro-batch's first global sample of the step
  int64_t num_samples = 0;
  bool builds_graph = true;        // of autograd, in training
  bool splits_backward = false;    // weight gradients may be deferred (direct_gradients.h)
  GradientShare* share = nullptr;  // learns what will add to it; may be null
  RowExchange* rows = nullptr;     // learns which rows of tables are read; may be null
};

class Interpreter {
 public:
  // `nodes` in execution order; `kept` are the values that remain after a run.
  // Errors: an operator that cannot be called; a random operator that draws from torch's generator.
  static Result<std::unique_ptr<Interpreter>> make(const Graph& graph,
                                                   const std::vector<NodeId>& nodes,
                                                   const std::vector<ValueId>& kept, Mode mode);
  ~Interpreter();

  // `values` by ValueId: holds the inputs before, and the kept values afterwards; everything else
  // is cleared, inputs included. `run.symbols` gains the symbols that the data decides.
  Status run(std::vector<at::Tensor>& values, InterpreterRun& run) const;

 private:
  struct Step;
  Interpreter(const Graph& graph, Mode mode);
  const Graph& graph_;
  Mode mode_;
  std::vector<Step> steps_;
};

}  // namespace trireme
