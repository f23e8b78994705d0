#include "trireme/worker/rehearse.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <sys/prctl.h>

#include <nlohmann/json.hpp>

#include "trireme/base/json_text.h"
#include "trireme/exec/emulated_kernels.h"
#include "trireme/worker/rank_recording.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kFillingSteps = 2;  // of a run whose steps overlap

// What a rank tells all others of a step.
enum Told : size_t { kStep, kCompute, kLate, kNumTold };

class RehearsingRank {
 public:
  RehearsingRank(const RunSetup& setup, RankContext context)
      : setup_(setup),
        context_(std::move(context)),
        step_(setup.rehearsal->step),
        kernels_(step_.schedule, step_.costs, context_.rank),
        executor_(context_.rank, kernels_, *context_.transport),
        told_(static_cast<size_t>(setup.num_ranks()) * kNumTold) {}

  Status run() {
    // The kernel joins wake-ups within 50 us otherwise.
    ::prctl(PR_SET_TIMERSLACK, 1);
    context_.watch(&executor_);
    const Status done = rehearse();
    if (done.ok()) context_.watch(nullptr);
    return done;
  }

 private:
  Status rehearse() {
    TRIREME_TRY(executor_.join(step_.schedule));
    std::vector<int32_t> all(static_cast<size_t>(setup_.num_ranks()));
    std::iota(all.begin(), all.end(), 0);
    TRIREME_TRY(all_, context_.transport->join("rehearsal", std::move(all)));
    TRIREME_TRY(recorder_, start_recording(setup_, context_.rank, step_.schedule));
    executor_.record(recorder_.get());
    TRIREME_TRY(tell({}));
    if (step_.schedule.num_weight_versions > 1) {
      TRIREME_TRY(run_overlapping());
    } else {
      for (int64_t step = 0; step <= setup_.num_steps; ++step) TRIREME_TRY(run_step(step));
    }
    if (context_.rank == 0) publish_result();
    if (recorder_ == nullptr) return Status();
    TRIREME_TRY(const std::string fault,
                gather_timeline(setup_, context_.rank, *recorder_, *context_.transport, {}));
    if (!fault.empty()) context_.warn(fault);
    return Status();
  }

  // Step 0 warms up.
  Status run_step(int64_t step) {
    if (recorder_ != nullptr) recorder_->set_step(static_cast<int32_t>(step));
    const Clock::time_point begin = Clock::now();
    TRIREME_TRY(executor_.run_step(step_.schedule));
    const std::chrono::duration<double, std::nano> lasted = Clock::now() - begin;
    const EmulatedKernels::Held held = kernels_.take_held();
    TRIREME_TRY(tell(
        {lasted.count(), static_cast<double>(held.compute), static_cast<double>(held.lateness)}));
    if (step == 0 || context_.rank != 0) return Status();
    count([](double longest, double own) { return std::max(longest, own); });
    publish_step(step, steps_.back());
    return Status();
  }

  Status run_overlapping() {
    const auto num_steps = static_cast<size_t>(kFillingSteps + setup_.num_steps + 1);
    TRIREME_TRY(const std::vector<Schedule> run, run_of(step_, static_cast<int32_t>(num_steps)));
    std::vector<std::array<double, kNumTold>> own;
    Clock::time_point before = Clock::now();
    for (size_t i = 0; i < num_steps; ++i) {
      const int64_t step = static_cast<int64_t>(i) + 1 - kFillingSteps;
      if (recorder_ != nullptr) recorder_->set_step(static_cast<int32_t>(i));
      TRIREME_TRY(executor_.run_step(run[i], i + 1 < num_steps ? &run[i + 1] : nullptr));
      const Clock::time_point now = Clock::now();
      const std::chrono::duration<double, std::nano> lasted = now - std::exchange(before, now);
      const EmulatedKernels::Held held = kernels_.take_held();
      if (step < 1 || step > setup_.num_steps) continue;
      own.push_back(
          {lasted.count(), static_cast<double>(held.compute), static_cast<double>(held.lateness)});
      if (context_.rank == 0) publish_step(step, lasted.count());
    }
    for (const std::array<double, kNumTold>& each : own) {
      TRIREME_TRY(tell(each));
      const double num_ranks = setup_.num_ranks();
      if (context_.rank == 0) count([&](double sum, double one) { return sum + one / num_ranks; });
    }
    return Status();
  }

  // What all have told of a step, whose length follows from those of the ranks.
  template <typename Join>
  void count(const Join& join) {
    for (size_t i = 0; i < told_.size(); ++i) sums_[i] += told_[i];
    double length = 0;
    for (size_t i = kStep; i < told_.size(); i += kNumTold) length = join(length, told_[i]);
    steps_.push_back(length);
  }

  void publish_step(int64_t step, double lasted_ns) const {
    publish({{"event", "step"},
             {"step", step},
             {"steps", setup_.num_steps},
             {"seconds", 1e-9 * lasted_ns}});
  }

  // Each has a place of its own in a sum over all.
  Status tell(std::array<double, kNumTold> own) {
    std::ranges::fill(told_, 0.0);
    std::ranges::copy(own, told_.begin() + static_cast<int64_t>(context_.rank * kNumTold));
    TRIREME_TRY(const Ticket ticket,
                context_.transport->post_all_reduce(all_, DType::kFloat64,
                                                    std::as_writable_bytes(std::span(told_))));
    return context_.transport->wait(ticket);
  }

  void publish_result() {
    std::vector<double> sorted = steps_;
    std::ranges::sort(sorted);
    const size_t middle = sorted.size() / 2;
    const double median =
        sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
    const double mean =
        std::accumulate(steps_.begin(), steps_.end(), 0.0) / static_cast<double>(steps_.size());
    nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
    for (size_t rank = 0; rank < told_.size() / kNumTold; ++rank) {
      const auto a_step = [&](Told what) {
        return sums_[rank * kNumTold + what] / static_cast<double>(steps_.size());
      };
      ranks.push_back({{"rank", rank},
                       {"compute_ns", a_step(kCompute)},
                       {"late_ns", a_step(kLate)},
                       {"wait_ns", mean - a_step(kCompute)},
                       {"simulated_wait_ns", setup_.rehearsal->simulated_step -
                                                 setup_.rehearsal->simulated_compute[rank]}});
    }
    publish({{"event", "result"},
             {"simulated_step_ns", setup_.rehearsal->simulated_step},
             {"rehearsed_step_ns", median},
             {"steps_ns", steps_},
             {"ranks", std::move(ranks)},
             {"notes", step_.notes}});
  }

  void publish(const nlohmann::ordered_json& event) const { context_.publish(json_text(event)); }

  const RunSetup& setup_;
  const RankContext context_;
  const Prediction& step_;
  EmulatedKernels kernels_;
  Executor executor_;
  std::unique_ptr<Recorder> recorder_;  // null: no timeline
  CommunicatorId all_;
  std::vector<double> told_;                                      // by rank, Told
  std::vector<double> sums_ = std::vector<double>(told_.size());  // of rank 0, over the steps
  std::vector<double> steps_;                                     // of rank 0
};

}  // namespace

RankOutcome rehearse_rank(const RunSetup& setup, const RankContext& context) {
  auto rank = std::make_unique<RehearsingRank>(setup, context);
  RankOutcome outcome{.status = rank->run(), .is_own = false};
  // Other threads may still write into the buffers of a step that failed, and read its action.
  if (!outcome.status.ok()) static_cast<void>(rank.release());
  return outcome;
}

}  // namespace trireme
