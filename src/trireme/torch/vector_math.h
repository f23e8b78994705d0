// load_vector_math(): MKL's functions of vectors, which torch computes tanh, exp and the like by,
// look for the processor's own code when they are first called. Of threads that call one first at
// the same time, one may get another code, which is less exact: a tanh that is off by 4e-5 in one
// first call of some hundred. Torch-free to include.
#pragma once

namespace trireme {

// Calls each of them. REQUIRES: no other thread computes.
void load_vector_math();

}  // namespace trireme
