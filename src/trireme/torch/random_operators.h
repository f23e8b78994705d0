// Random operators of aten by counted numbers (draw_stream.h): the same results but for the
// numbers, the same gradients.
//
// One row of kRows (random_operators.cc) an operator, beside its row in graph/draws.cc.
#pragma once

#include <string_view>
#include <vector>

#include "trireme/torch/call_arguments.h"
#include "trireme/torch/draw_stream.h"

namespace trireme {

struct RandomCall {
  const CallArguments& arguments;
  const DrawStream& stream;
  at::ScalarType dtype;  // of the first result
};

struct RandomOperator {
  std::string_view name;  // without the mark of an operator in place
  std::vector<at::Tensor> (*run)(const RandomCall& call) = nullptr;
};

// nullptr when there is no row.
[[nodiscard]] const RandomOperator* find_random_operator(std::string_view op);
// The results; of an operator in place, the tensor that it changed.
[[nodiscard]] std::vector<at::Tensor> run_random(const RandomOperator& random, std::string_view op,
                                                 const RandomCall& call);

}  // namespace trireme
