#include "trireme/torch/vector_math.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/trunc.h>

namespace trireme {

void load_vector_math() {
  // Those that ATen/cpu/vml.h leaves to MKL.
  constexpr at::Tensor (*kFunctions[])(const at::Tensor&) = {
      at::acos, at::asin, at::atan,  at::cos,   at::erf, at::erfc, at::erfinv, at::exp,
      at::log,  at::log2, at::log10, at::trunc, at::sin, at::sqrt, at::tan,    at::tanh};
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor values = at::full({16}, 0.5, dtype);
    for (const auto function : kFunctions) function(values);
  }
}

}  // namespace trireme
