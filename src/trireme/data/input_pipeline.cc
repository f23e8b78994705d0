#include "trireme/data/input_pipeline.h"

#include <algorithm>
#include <utility>

namespace trireme {
namespace {

std::span<const uint64_t> samples_of(const StepSamples& step, const StepShares::Share& share) {
  return std::span(step.samples)
      .subspan(static_cast<size_t>(share.first), static_cast<size_t>(share.size));
}

size_t bytes_of(const Result<std::vector<InputTensor>>& inputs) {
  size_t bytes = 0;
  if (!inputs.ok()) return bytes;
  for (const InputTensor& tensor : inputs.value()) bytes += tensor.size_bytes;
  return bytes;
}

}  // namespace

InputPipeline::InputPipeline(InputPipelineOptions options)
    : options_(std::move(options)), thread_([this](const std::stop_token& stop) { run(stop); }) {}

InputPipeline::~InputPipeline() = default;

template <typename Ready>
bool InputPipeline::wait_until(const std::stop_token& stop, const Ready& is_ready) {
  std::unique_lock lock(mutex_);
  return changed_.wait(lock, stop, is_ready) && !stop.stop_requested();
}

void InputPipeline::run(const std::stop_token& stop) {
  for (int64_t number = 0; number < options_.num_steps; ++number) {
    if (!wait_until(stop, [&] { return number <= begun_ + 1; })) return;
    prepare_step(number, stop);
  }
}

void InputPipeline::prepare_step(int64_t number, const std::stop_token& stop) {
  const StepSamples step = options_.samples(number);
  const std::vector<StepShares::Share>& shares = step.shares.shares[options_.replica];
  const Result<std::vector<SymbolValues>> symbols = symbols_of(step);
  {
    const std::lock_guard lock(mutex_);
    steps_.push_back({.number = number, .symbols = symbols, .inputs = {}});
    changed_.notify_all();
  }
  if (!symbols.ok()) return;
  for (size_t j = 0; j < shares.size(); ++j) {
    const auto has_room = [&] {
      return is_waited_for_ || ready_bytes_ < std::max<size_t>(1, options_.ahead_bytes);
    };
    if (!wait_until(stop, has_room)) return;
    Result<std::vector<InputTensor>> inputs = read(samples_of(step, shares[j]), symbols.value()[j]);
    const std::lock_guard lock(mutex_);
    Step* place = find_step(number);
    if (place == nullptr) return;  // the run has gone on without it
    ready_bytes_ += bytes_of(inputs);
    place->inputs.emplace(static_cast<int32_t>(j), std::move(inputs));
    changed_.notify_all();
  }
}

Result<std::vector<SymbolValues>> InputPipeline::symbols_of(const StepSamples& step) const {
  TRIREME_TRY(const SymbolValues common, options_.feed->step_symbols(step.samples));
  std::vector<SymbolValues> symbols;
  for (const StepShares::Share& share : step.shares.shares[options_.replica]) {
    TRIREME_TRY(SymbolValues own,
                options_.feed->micro_batch_symbols(common, samples_of(step, share)));
    symbols.push_back(std::move(own));
  }
  return symbols;
}

Result<std::vector<InputTensor>> InputPipeline::read(std::span<const uint64_t> samples,
                                                     const SymbolValues& symbols) const {
  std::vector<InputTensor> tensors;
  for (const size_t input : options_.inputs) {
    TRIREME_TRY(InputTensor tensor, options_.feed->read(input, samples, symbols));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

InputPipeline::Step* InputPipeline::find_step(int64_t number) {
  const auto found = std::find_if(steps_.begin(), steps_.end(),
                                  [&](const Step& step) { return step.number == number; });
  return found == steps_.end() ? nullptr : &*found;
}

Result<std::vector<SymbolValues>> InputPipeline::begin_step() {
  std::unique_lock lock(mutex_);
  TRIREME_CHECK(begun_ + 1 < options_.num_steps, "a step beyond the last one is begun");
  ++begun_;
  while (!steps_.empty() && steps_.front().number + 1 < begun_) {
    for (const auto& [index, inputs] : steps_.front().inputs) ready_bytes_ -= bytes_of(inputs);
    steps_.pop_front();
  }
  changed_.notify_all();
  const Step* step = nullptr;
  changed_.wait(lock, [&] { return (step = find_step(begun_)) != nullptr; });
  return *step->symbols;
}

int64_t InputPipeline::begun() {
  const std::scoped_lock lock(mutex_);
  return begun_;
}

Result<std::vector<InputTensor>> InputPipeline::take(int64_t step, int32_t micro_batch) {
  std::unique_lock lock(mutex_);
  Step* const begun = find_step(step);
  TRIREME_CHECK(begun != nullptr && step <= begun_, "inputs belong to a step that was begun");
  // Others may come and go in the deque, whose elements stay where they are.
  auto& ready = begun->inputs;
  is_waited_for_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return ready.contains(micro_batch); });
  is_waited_for_ = false;
  auto node = ready.extract(micro_batch);
  ready_bytes_ -= bytes_of(node.mapped());
  changed_.notify_all();
  return std::move(node.mapped());
}

}  // namespace trireme
