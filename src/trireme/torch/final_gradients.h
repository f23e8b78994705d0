// FinalGradients: which sums of gradients of a step are whole while its passes still run, so that
// they can leave (Kernels::announce_to).
//
//   FinalGradients final(buckets, num_inputs, on_final);
//   final.expect(inputs of a chunk, its micro-batches);        before the first pass
//   GradientShare share(final, inputs of the chunk);           of one micro-batch of it
//   share.will_add(input, Adds::kItself);                      while its forward runs
//   share.added(input);                                        while its backward runs
//   share.close();                                             after it: nothing more comes
//
// Nothing is guessed: a forward counts what will add to each sum, from the compiled calls and the
// way that each took, and a backward counts down. What was counted and never comes, because no path
// leads there from the loss of this batch, ends with its share. A sum is whole when all shares of
// it have ended, a bucket when all its sums are.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trireme/plan/gradients.h"

namespace trireme {

class FinalGradients {
 public:
  using OnFinal = std::function<void(int32_t bucket)>;

  // Inputs are indices into Graph::inputs. `on_final` hears of each bucket once.
  FinalGradients(std::span<const GradientBucket> buckets, size_t num_inputs, OnFinal on_final);

  // Of these inputs as many more shares will come. REQUIRES: no share has ended yet.
  void expect(std::span<const int32_t> inputs, int32_t num_shares);
  // A share of the input has ended; of one that is in no bucket nothing happens.
  void end_share(int32_t input);

 private:
  std::vector<int32_t> bucket_of_;   // by input; -1: none
  std::vector<int32_t> num_shares_;  // by input: those that have not ended
  std::vector<int32_t> num_inputs_;  // by bucket: those that are not whole
  OnFinal on_final_;
};

// By autograd, which adds once a backward whatever the number of uses, or an operator itself
// (direct_gradients.h).
enum class Adds : uint8_t { kByAutograd, kItself };

class GradientShare {
 public:
  // `whole` outlives it.
  GradientShare(FinalGradients& whole, std::span<const int32_t> inputs, size_t num_inputs);

  // While it lives, backwards of this thread add to the share, unless that is null.
  class Scope {
   public:
    explicit Scope(GradientShare* share);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    GradientShare* before_;
  };
  // That of the thread's scope; null: none.
  [[nodiscard]] static GradientShare* current();

  void will_add(int32_t input, Adds adds);
  void added(int32_t input);
  void close();

 private:
  struct Input {
    int32_t num_to_come = 0;
    bool is_open = false;
    bool has_autograd = false;
  };
  FinalGradients* whole_;
  std::vector<Input> inputs_;
};

}  // namespace trireme
