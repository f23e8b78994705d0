#include "trireme/data/input_pipeline.h"

#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/data/npy_text.h"
#include "trireme/import/scratch_directory.h"

namespace trireme {
namespace {

// x of ten rows of one number, the tenth of which no i8 holds.
struct Data {
  ScratchDirectory directory;
  std::string path = directory.write(
      "x.npy", npy("<i4", "(10, 1)", bytes_of<int32_t>({0, 10, 20, 30, 40, 50, 60, 70, 80, 9000})));
  Graph graph =
      parse_graph("parameter %w \"w\" f32[] grad\ninput %x \"x\" i8[s0,1]\nreturn %w\n").value();
  std::unique_ptr<Feed> feed = Feed::open(graph, {.data = "arrays:" + path}).value();
};

// Steps of `batch` samples in their order over two micro-batches of one replica.
InputPipelineOptions in_order(const Data& data, int64_t batch, int64_t num_steps) {
  return {.feed = data.feed.get(),
          .replica = 0,
          .inputs = {0},
          .samples =
              [batch](int64_t step) {
                StepSamples samples{.samples = {}, .shares = share_step(batch, 1, 2)};
                for (int64_t i = 0; i < batch; ++i) {
                  samples.samples.push_back(static_cast<uint64_t>(step * batch + i));
                }
                return samples;
              },
          .num_steps = num_steps};
}

std::vector<int> numbers(const Result<std::vector<InputTensor>>& inputs) {
  std::vector<int> found;
  EXPECT_TRUE(inputs.ok()) << inputs.error().message;
  const InputTensor& tensor = inputs.value()[0];
  for (size_t i = 0; i < tensor.size_bytes; ++i) {
    found.push_back(static_cast<int8_t>(tensor.memory.get()[i]));
  }
  return found;
}

TEST(InputPipeline, GivesTheRowsOfEachStepInOrder) {
  const Data data;
  for (const size_t ahead_bytes : {size_t{0}, size_t{1}, size_t{1} << 20}) {
    InputPipelineOptions options = in_order(data, 3, 3);
    options.ahead_bytes = ahead_bytes;
    InputPipeline pipeline(options);
    for (int step = 0; step < 3; ++step) {
      const auto symbols = pipeline.begin_step();
      ASSERT_TRUE(symbols.ok());
      ASSERT_EQ(symbols.value().size(), 2U);
      EXPECT_EQ(symbols.value()[0].at("s0"), 2);
      EXPECT_EQ(symbols.value()[1].at("s0"), 1);
      // In any order.
      EXPECT_EQ(numbers(pipeline.take(step, 1)), (std::vector{30 * step + 20}));
      EXPECT_EQ(numbers(pipeline.take(step, 0)), (std::vector{30 * step, 30 * step + 10}));
    }
  }
}

TEST(InputPipeline, ForgetsWhatWasNotTaken) {
  const Data data;
  InputPipeline pipeline(in_order(data, 2, 4));
  ASSERT_TRUE(pipeline.begin_step().ok());
  ASSERT_TRUE(pipeline.begin_step().ok());
  ASSERT_TRUE(pipeline.begin_step().ok());
  EXPECT_EQ(numbers(pipeline.take(2, 0)), (std::vector{40}));
}

TEST(InputPipeline, KeepsTheStepBeforeTheLast) {
  const Data data;
  InputPipeline pipeline(in_order(data, 2, 4));
  ASSERT_TRUE(pipeline.begin_step().ok());
  ASSERT_TRUE(pipeline.begin_step().ok());
  EXPECT_EQ(pipeline.begun(), 1);
  EXPECT_EQ(numbers(pipeline.take(1, 0)), (std::vector{20}));
  EXPECT_EQ(numbers(pipeline.take(0, 1)), (std::vector{10}));
}

TEST(InputPipeline, TellsAFailureToWhoeverTakesThatMicroBatch) {
  const Data data;
  InputPipeline pipeline(in_order(data, 5, 2));
  ASSERT_TRUE(pipeline.begin_step().ok());
  EXPECT_EQ(numbers(pipeline.take(0, 0)), (std::vector{0, 10, 20}));
  EXPECT_EQ(numbers(pipeline.take(0, 1)), (std::vector{30, 40}));
  ASSERT_TRUE(pipeline.begin_step().ok());
  EXPECT_EQ(numbers(pipeline.take(1, 0)), (std::vector{50, 60, 70}));
  const auto failed = pipeline.take(1, 1);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message,
            data.path + ": sample 9 does not suit the input x: 9000 does not fit i8 (-128 to 127)");
}

TEST(InputPipeline, EndsAtAnyTime) {
  const Data data;
  {
    InputPipeline pipeline(in_order(data, 2, 5));
  }
  InputPipelineOptions options = in_order(data, 2, 5);
  options.ahead_bytes = 1;
  InputPipeline pipeline(options);
  ASSERT_TRUE(pipeline.begin_step().ok());
}

}  // namespace
}  // namespace trireme
