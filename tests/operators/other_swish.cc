// An operator of the name of swish.cc's with other arguments.
#include <torch/library.h>

TORCH_LIBRARY(own, library) { library.def("swish(Tensor x, str beta) -> Tensor"); }
