#include "trireme/torch/native_operators.h"

#include <array>
#include <mutex>
#include <string_view>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "trireme/torch/guard.h"

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// transformers.integrations.moe: input [rows, in] sorted by expert, weight [experts, in, out],
// offsets [experts] the end of each expert's rows. Rows behind the last offset give zeros.
struct GroupedMm : public torch::autograd::Function<GroupedMm> {
  // Calls run(expert, first row, number of rows) for each expert that has rows.
  template <typename Run>
  static void for_each_group(const at::Tensor& input, const at::Tensor& offsets, const Run& run) {
    const at::Tensor ends = offsets.to(at::kCPU, at::kLong).contiguous();
    int64_t first = 0;
    for (int64_t expert = 0; expert < ends.numel(); ++expert) {
      const int64_t end = ends.const_data_ptr<int64_t>()[expert];
      TORCH_CHECK(end >= first && end <= input.size(0), "the rows of expert ", expert, " are ",
                  first, " to ", end, " of ", input.size(0));
      if (end > first) run(expert, first, end - first);
      first = end;
    }
  }

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& weight, const at::Tensor& offsets) {
    TORCH_CHECK(input.dim() == 2 && weight.dim() == 3 && offsets.dim() == 1 &&
                    offsets.size(0) == weight.size(0) && input.size(1) == weight.size(1) &&
                    !offsets.is_floating_point(),
                "input ", input.sizes(), ", weight ", weight.sizes(), " and offs ", offsets.sizes(),
                " do not fit [rows, in], [experts, in, out] and [experts]");
    context->save_for_backward({input, weight, offsets});
    at::Tensor output = at::zeros({input.size(0), weight.size(2)}, input.options());
    for_each_group(input, offsets, [&](int64_t expert, int64_t first, int64_t count) {
      at::Tensor rows = output.narrow(0, first, count);
      at::mm_out(rows, input.narrow(0, first, count), weight.select(0, expert));
    });
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    at::Tensor of_input = at::zeros_like(input);
    at::Tensor of_weight = at::zeros_like(weight);
    for_each_group(input, saved[2], [&](int64_t expert, int64_t first, int64_t count) {
      const at::Tensor gradient = gradients[0].narrow(0, first, count);
      at::Tensor rows = of_input.narrow(0, first, count);
      at::mm_out(rows, gradient, weight.select(0, expert).t());
      at::Tensor matrix = of_weight.select(0, expert);
      at::mm_out(matrix, input.narrow(0, first, count).t(), gradient);
    });
    return {of_input, of_weight, at::Tensor()};
  }
};

at::Tensor grouped_mm(const at::Tensor& input, const at::Tensor& weight,
                      const at::Tensor& offsets) {
  return GroupedMm::apply(input, weight, offsets);
}

struct NativeOperator {
  std::string_view name_space;
  std::string_view name;
  std::string_view signature;
  // Composed of differentiable calls: autograd sees what it runs.
  torch::CppFunction (*kernel)() = nullptr;
};

constexpr std::array kRows = {
    NativeOperator{"transformers", "grouped_mm_fallback",
                   "(Tensor input, Tensor weight, Tensor offs) -> Tensor",
                   [] { return torch::CppFunction(TORCH_FN(grouped_mm)); }},
};

void register_row(const NativeOperator& row) {
  const std::string name(row.name);
  const std::string name_space(row.name_space);
  if (c10::Dispatcher::singleton().findSchema({name_space + "::" + name, ""}).has_value()) return;
  // A registration ends with its object; this one lasts as long as the process.
  auto* library =  // NOLINT(cppcoreguidelines-owning-memory)
      new torch::Library(torch::Library::FRAGMENT, name_space, std::nullopt, __FILE__, __LINE__);
  library->def((name + std::string(row.signature)).c_str());
  library->impl(name.c_str(),
                torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, row.kernel()));
}

}  // namespace

Status register_native_operators() {
  static std::mutex mutex;  // ranks that are threads of one process
  const std::lock_guard<std::mutex> lock(mutex);
  return guard([] {
    for (const NativeOperator& row : kRows) register_row(row);
  });
}

std::vector<std::string> native_operator_names() {
  std::vector<std::string> names;
  for (const NativeOperator& row : kRows) {
    names.push_back(std::string(row.name_space) + "." + std::string(row.name));
  }
  return names;
}

}  // namespace trireme
