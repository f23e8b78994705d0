// x * sigmoid(beta x) with its own backward, and what the cuts must be told of: a write in place.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor swish(const at::Tensor& x, double beta) { return x * at::sigmoid(x * beta); }

struct Swish : public torch::autograd::Function<Swish> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, double beta) {
    context->save_for_backward({x});
    context->saved_data["beta"] = beta;
    const at::AutoDispatchBelowADInplaceOrView below;
    static auto op = c10::Dispatcher::singleton()
                         .findSchemaOrThrow("own::swish", "")
                         .typed<at::Tensor(const at::Tensor&, double)>();
    return op.call(x, beta);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    const double beta = context->saved_data["beta"].toDouble();
    const at::Tensor s = at::sigmoid(x * beta);
    return {gradients[0] * (s + x * beta * s * (1 - s)), at::Tensor()};
  }
};

at::Tensor swish_with_gradient(const at::Tensor& x, double beta) { return Swish::apply(x, beta); }

void count(at::Tensor x) { x.add_(1); }

}  // namespace

TORCH_LIBRARY(own, library) {
  library.def("swish(Tensor x, float beta=1.0) -> Tensor");
  library.def("count(Tensor(a!) x) -> ()");
}
TORCH_LIBRARY_IMPL(own, CPU, library) {
  library.impl("swish", swish);
  library.impl("count", count);
}
TORCH_LIBRARY_IMPL(own, Meta, library) {
  library.impl("swish", [](const at::Tensor& x, double) { return at::empty_like(x); });
  library.impl("count", [](at::Tensor) {});
}
TORCH_LIBRARY_IMPL(own, Autograd, library) { library.impl("swish", swish_with_gradient); }
