// for_each_chunk(): at::parallel_for for our own loops. It is compiled apart with OpenMP, without
// which torch's header runs one thread.
#pragma once

#include <cstdint>
#include <functional>

namespace trireme {

// run(begin, end) for pieces of 0 .. count of at least `grain`, on the threads that torch may use.
void for_each_chunk(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& run);

}  // namespace trireme
