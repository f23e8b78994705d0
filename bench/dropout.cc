// dropout_bench ours|aten THREADS STEPS: forward and backward of dropout over 4 M floats; prints
// the seconds of each step as JSON. bench/dropout.py reads them.
#include "trireme/torch/dropout.h"

#include <chrono>
#include <cstdio>
#include <string>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace {

double run_step(bool is_ours, at::Tensor& x, const at::Tensor& gradient, uint64_t step) {
  x.mutable_grad().reset();
  const auto begin = std::chrono::steady_clock::now();
  const at::Tensor y = is_ours ? trireme::counter_dropout(x, 0.1, {.key = step, .batch_dim = 0})
                               : at::dropout(x, 0.1, true);
  y.backward(gradient);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return seconds.count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const bool is_ours = std::string(argv[1]) == "ours";
  at::set_num_threads(std::stoi(argv[2]));
  at::Tensor x = at::ones({64, 256, 256}).requires_grad_();
  const at::Tensor gradient = at::ones_like(x);
  std::printf("[");
  for (int step = 0; step < std::stoi(argv[3]); ++step) {
    std::printf("%s%.9f", step == 0 ? "" : ", ",
                run_step(is_ours, x, gradient, static_cast<uint64_t>(step)));
  }
  std::printf("]\n");
  return 0;
}
