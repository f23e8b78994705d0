// input_bench ahead|in_step FILE STEPS: steps of FILE, tokens of uint16, read ahead by
// InputPipeline or within the step. What a step computes is twice as long as its reading. Prints,
// as JSON, the seconds of each step and the part of them that it waits for its input.
// bench/input.py reads them.
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "trireme/data/feed.h"
#include "trireme/data/input_pipeline.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int64_t kBatch = 256;
constexpr const char* kGraph =
    "parameter %w \"w\" f32[] grad\ninput %x \"x\" i64[s0,16384]\nreturn %w\n";

StepSamples samples_of(int64_t step) {
  StepSamples step_samples{.samples = std::vector<uint64_t>(kBatch),
                           .shares = share_step(kBatch, 1, 1)};
  std::iota(step_samples.samples.begin(), step_samples.samples.end(),
            static_cast<uint64_t>(step * kBatch));
  return step_samples;
}

Status read_now(const Feed& feed, int64_t step) {
  const std::vector<uint64_t> samples = samples_of(step).samples;
  TRIREME_TRY(const SymbolValues of_step, feed.step_symbols(samples));
  TRIREME_TRY(const SymbolValues symbols, feed.micro_batch_symbols(of_step, samples));
  const Result<InputTensor> read = feed.read(0, samples, symbols);
  return read.ok() ? Status() : Status(read.error());
}

Status read_ahead(InputPipeline& pipeline) {
  const Result<std::vector<SymbolValues>> begun = pipeline.begin_step();
  if (!begun.ok()) return begun.error();
  const Result<std::vector<InputTensor>> taken = pipeline.take(0);
  return taken.ok() ? Status() : Status(taken.error());
}

void print(const char* name, const std::vector<double>& seconds, const char* end) {
  std::printf("\"%s\": [", name);
  for (size_t i = 0; i < seconds.size(); ++i) std::printf("%s%.9f", i == 0 ? "" : ", ", seconds[i]);
  std::printf("]%s", end);
}

Status run(bool is_ahead, const std::string& path, int64_t num_steps) {
  TRIREME_TRY(const Graph graph, parse_graph(kGraph));
  TRIREME_TRY(const std::unique_ptr<Feed> feed,
              Feed::open(graph, {.data = "tokens:" + path, .seq_len = {}, .lengths = {}}));
  Seconds reading(0);
  for (int64_t step = 0; step < num_steps; ++step) {
    const Clock::time_point begin = Clock::now();
    TRIREME_TRY(read_now(*feed, step));
    reading += (Clock::now() - begin) / static_cast<double>(num_steps);
  }
  InputPipeline pipeline({.feed = feed.get(),
                          .replica = 0,
                          .inputs = {0},
                          .samples = samples_of,
                          .num_steps = is_ahead ? num_steps : 0});
  std::vector<double> steps;
  std::vector<double> waits;
  for (int64_t step = 0; step < num_steps; ++step) {
    const Clock::time_point begin = Clock::now();
    TRIREME_TRY(is_ahead ? read_ahead(pipeline) : read_now(*feed, step));
    const Clock::time_point ready = Clock::now();
    while (Clock::now() - ready < 2 * reading) {
    }
    waits.push_back(Seconds(ready - begin).count());
    steps.push_back(Seconds(Clock::now() - begin).count());
  }
  std::printf("{");
  print("waits", waits, ", ");
  print("steps", steps, "}\n");
  return Status();
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const trireme::Status done =
      trireme::run(std::string(argv[1]) == "ahead", argv[2], std::stoll(argv[3]));
  if (done.ok()) return 0;
  std::fprintf(stderr, "input_bench: %s\n", done.error().message.c_str());
  return 1;
}
