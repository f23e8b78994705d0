#include "trireme/worker/rank_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/json_text.h"
#include "trireme/cli/plan_choice.h"
#include "trireme/torch/counting_allocator.h"
#include "trireme/torch/operator_libraries.h"
#include "trireme/torch/stage_kernels.h"
#include "trireme/worker/checkpoint.h"
#include "trireme/worker/eval_weights.h"
#include "trireme/worker/gather.h"
#include "trireme/worker/measured_step.h"
#include "trireme/worker/metrics.h"
#include "trireme/worker/rank_recording.h"
#include "trireme/worker/replanning.h"
#include "trireme/worker/step_fault.h"

namespace trireme {
namespace {

class RankLoop {
 public:
  RankLoop(const RunSetup& setup, RankContext context)
      : setup_(setup), context_(std::move(context)) {}

  [[nodiscard]] bool has_fault() const { return !fault_.empty(); }

  Status run() {
    TRIREME_TRY(start());
    Status status = setup_.request.is_training ? train() : evaluate_only();
    if (!status.ok()) return status;
    if (recorder_ != nullptr && fault_.empty()) {
      enter("writing the timeline");
      TRIREME_TRY(const std::string fault, gather_timeline(setup_, context_.rank, *recorder_,
                                                           *context_.transport, peak_bytes_));
      if (!fault.empty()) context_.warn(fault);
    }
    if (is_reporter()) publish(result_);
    if (context_.watch) context_.watch(nullptr);
    enter("the clean-up after its run");
    return Status();
  }

 private:
  Status start() {
    const RunRequest& request = setup_.request;
    StageOptions options{.archive = setup_.archive.get(),
                         .graph = &setup_.graph,
                         .partition = &setup_.partition,
                         .initial = setup_.initial.has_value() ? &*setup_.initial : nullptr,
                         .stage = context_.rank % setup_.plan.pp,
                         .replica = context_.rank / setup_.plan.pp,
                         .dp = setup_.plan.dp,
                         .seed = request.seed,
                         .clip_norm = request.clip_norm,
                         .optimizer = {},
                         .buckets = setup_.buckets,
                         .num_threads = request.threads};
    TRIREME_TRY(load_operator_libraries(request.operator_libraries));
    TRIREME_TRY(check_library_operators(setup_.graph, request.operator_libraries));
    if (request.is_training) {
      options.optimizer = request.optimizer;
      options.num_weight_versions = num_weight_versions(setup_.plan);
      // Reads the first step while the weights are loaded.
      training_inputs_ = open_pipeline(*setup_.data, *setup_.batches, setup_.num_steps);
    }
    TRIREME_TRY(kernels_, StageKernels::make(options));
    if (setup_.eval_model.has_value()) {
      options.archive = setup_.eval_model->archive.get();
      options.graph = &setup_.eval_model->graph;
      options.partition = &setup_.eval_model->partition;
      options.initial = nullptr;
      options.optimizer = {};
      options.buckets = {};
      options.num_weight_versions = 1;
      TRIREME_TRY(eval_kernels_, StageKernels::make(options));
    }
    executor_ = std::make_unique<Executor>(context_.rank, *kernels_, *context_.transport);
    if (context_.watch) context_.watch(executor_.get());
    const std::vector<int32_t> full(setup_.plan.dp, setup_.plan.micro_batches);
    TRIREME_TRY(const Schedule* schedule,
                schedule_of(true, full, NormExchange::kNone, StepPlace::kAlone));
    TRIREME_TRY(executor_->join(*schedule));
    if (request.is_training) {
      if (context_.knows_memory) {  // threads of one process have no links
        TRIREME_TRY(replanning_,
                    Replanning::make(setup_, context_.rank, *kernels_, *context_.transport));
      }
      TRIREME_TRY(recorder_, start_recording(setup_, context_.rank, *schedule));
    }
    if (is_reporter()) {
      TRIREME_TRY(metrics_, MetricsFile::create(request.metrics));
    }
    enter("the pause between two steps");
    reset_tensor_memory_peak();
    return Status();
  }

  Status train() {
    const RunRequest& request = setup_.request;
    for (int64_t step = 1; step <= setup_.num_steps && fault_.empty(); ++step) {
      const bool is_last = step == setup_.num_steps;
      TRIREME_TRY(train_step(step));
      // A fault is found a step late where steps overlap: what has begun comes to its end.
      for (int64_t next = step + 1; !fault_.empty() && overlap_.follows; ++next) {
        TRIREME_TRY(train_step(next));
      }
      if (!fault_.empty()) break;
      const bool evaluates = evaluates_after(step);
      const bool saves = saves_after(step);
      if (saves) TRIREME_TRY(save(step));
      if (is_last && is_reporter() && !request.grad_norms.empty()) {
        note_output(
            write_gradient_norms(request.grad_norms, setup_.graph, kernels_->gradient_norms()));
      }
      if (evaluates) TRIREME_TRY(evaluate(step));
    }
    if (replanning_ != nullptr) {
      TRIREME_TRY(replanning_->finish());
      note(replanning_->links_text());
    }
    if (!fault_.empty() && !request.save.empty() && fault_step_ > 1) {
      const Status saved = save(fault_step_ - 1);
      if (!saved.ok()) return while_doing(fault_, saved.error());
    }
    if (fault_.empty()) fault_ = output_fault_;
    // All ranks know a fault that is not one of writing; the one that writes speaks once it has
    // written, and that ends the others.
    if (fault_.empty() || !is_reporter()) return Status();
    return Error{fault_ + saved_text()};
  }

  [[nodiscard]] bool evaluates_after(int64_t step) const {
    const std::optional<int64_t> every = setup_.request.eval_every;
    return setup_.eval_data != nullptr &&
           (step == setup_.num_steps || (every.has_value() && step % *every == 0));
  }

  [[nodiscard]] bool saves_after(int64_t step) const {
    const std::optional<int64_t> every = setup_.request.save_every;
    // What an evaluation finds wrong with its data, the first one finds.
    return !setup_.request.save.empty() &&
           (step == setup_.num_steps || (evaluates_after(step) && !has_evaluated_) ||
            (every.has_value() && step % *every == 0));
  }

  [[nodiscard]] NormExchange norms_of(int64_t step) const {
    const bool writes_norms = step == setup_.num_steps && !setup_.request.grad_norms.empty();
    return setup_.request.clip_norm.has_value() || writes_norms ? NormExchange::kSquaredNorms
                                                                : NormExchange::kNone;
  }

  // Whether the step runs passes of the next one ahead and leaves it its update. Evaluations and
  // files need the newest weights; a batch of few micro-batches has nothing to run ahead.
  [[nodiscard]] bool overlaps_next(int64_t step) const {
    if (num_weight_versions(setup_.plan) == 1 || step >= setup_.num_steps || !fault_.empty()) {
      return false;
    }
    if (evaluates_after(step) || saves_after(step) || norms_of(step) != norms_of(step + 1)) {
      return false;
    }
    const int32_t ahead = replanning_ == nullptr ? num_forwards_ahead(setup_.plan)
                                                 : replanning_->num_forwards_ahead(step);
    for (const int64_t each : {step, step + 1}) {
      const std::vector<int32_t> counts = shares(*setup_.batches, each - 1).num_micro_batches;
      if (std::ranges::min(counts) < ahead) return false;
    }
    return true;
  }

  [[nodiscard]] StepInputs training_inputs(int64_t step) const {
    return {.step = step - 1,
            .is_training = true,
            .lr = learning_rate(setup_.learning_rate, step),
            .pipeline = training_inputs_.get(),
            .shares = shares(*setup_.batches, step - 1)};
  }

  // Whether the step at hand overlaps with the one before and with the next.
  struct Overlap {
    bool follows = false;
    bool is_followed = false;
  };

  Result<const Schedule*> training_schedule(int64_t step, const Overlap& overlap) {
    const StepPlace place = overlap.follows
                                ? (overlap.is_followed ? StepPlace::kBetween : StepPlace::kLast)
                                : (overlap.is_followed ? StepPlace::kFirst : StepPlace::kAlone);
    return schedule_of(true, shares(*setup_.batches, step - 1).num_micro_batches, norms_of(step),
                       place,
                       replanning_ == nullptr ? std::nullopt : replanning_->extra_warm_ups(step));
  }

  Status train_step(int64_t step) {
    const Status ran = run_training_step(step);
    return ran.ok() ? ran : Status(while_doing(fmt::format("step {}", step), ran.error()));
  }

  Status run_training_step(int64_t step) {
    const auto begin = std::chrono::steady_clock::now();
    if (replanning_ != nullptr) {
      TRIREME_TRY(const std::string change, replanning_->begin_step(step));
      note(change);
    }
    // What follows a step knows already whether another one follows it.
    if (!overlap_.follows) overlap_.is_followed = overlaps_next(step);
    const Overlap next{.follows = overlap_.is_followed,
                       .is_followed = overlap_.is_followed && overlaps_next(step + 1)};
    TRIREME_TRY(const Schedule* schedule, training_schedule(step, overlap_));
    const Schedule* next_schedule = nullptr;
    if (next.follows) {
      TRIREME_TRY(next_schedule, training_schedule(step + 1, next));
    }
    executor_->use(replanning_ == nullptr ? *kernels_ : replanning_->kernels());
    executor_->record(recorder_.get());
    if (recorder_ != nullptr) recorder_->set_step(static_cast<int32_t>(step));
    const int64_t place = recorder_ == nullptr ? -1 : recorder_->begin(EventClass::kInput, {});
    if (overlap_.follows) {
      kernels_->go_on();
    } else {
      TRIREME_TRY(kernels_->begin_step(with_schedule(training_inputs(step), *schedule)));
    }
    if (next.follows) {
      TRIREME_TRY(kernels_->begin_ahead(with_schedule(training_inputs(step + 1), *next_schedule)));
    }
    if (recorder_ != nullptr) recorder_->end(place);
    const double cpu_before = executor_->compute_cpu_seconds();
    TRIREME_TRY(executor_->run_step(*schedule, next_schedule));
    own_cpu_seconds_.push_back(executor_->compute_cpu_seconds() - cpu_before);
    seconds_ = std::chrono::steady_clock::now() - begin;
    if (step == setup_.num_steps && context_.knows_memory) {
      TRIREME_TRY(peak_bytes_, gather(tensor_memory_now().peak_bytes));
      TRIREME_TRY(compute_cpu_seconds_, gather(median_after_warm_up(own_cpu_seconds_)));
    }
    const bool updates_at_end = schedule->communication.updates_at_end;
    if (overlap_.follows && !updates_at_end) report(step - 1, kernels_->outcome(-1));
    if (!overlap_.is_followed || updates_at_end) report(step, kernels_->outcome());
    overlap_ = next;
    return Status();
  }

  template <typename T>
  Result<std::vector<T>> gather(T own) const {
    return gather_values(own, context_.rank, setup_.num_ranks(), *context_.transport);
  }

  // Of a step whose update has come.
  void report(int64_t step, const StepOutcome& outcome) {
    if (!fault_.empty()) return;
    const bool is_last = step == setup_.num_steps;
    if (is_reporter()) {
      StepMetrics metrics{.step = step,
                          .loss = outcome.loss,
                          .items = outcome.items,
                          .seconds = seconds_.count(),
                          .lr = learning_rate(setup_.learning_rate, step),
                          .grad_norm = {},
                          .peak_bytes = {}};
      if (is_last) {
        metrics.peak_bytes = peak_bytes_;
        metrics.compute_cpu_seconds = compute_cpu_seconds_;
        if (replanning_ != nullptr) metrics.links = replanning_->links();
      }
      if (setup_.request.clip_norm.has_value()) metrics.grad_norm = outcome.gradient_norm;
      note_output(metrics_.write_step(metrics));
      publish_step(metrics);
      result_["steps"] = step;
      result_["loss"] = outcome.loss;
      step_seconds_.push_back(metrics.seconds);
      if (is_last) add_measured(setup_, step_seconds_, metrics, result_);
    }
    fault_ = step_fault(setup_, step, outcome);
    if (!fault_.empty()) fault_step_ = step;
  }

  // A disk that is full takes away no training: the run goes on, and fails at its end.
  void note_output(const Status& written) {
    if (written.ok() || !output_fault_.empty()) return;
    output_fault_ = written.error().message;
    context_.warn(output_fault_ + "; training goes on");
  }

  [[nodiscard]] std::string saved_text() const {
    if (saved_step_ == 0) return "";
    return fmt::format("; the weights of step {} are in {}", saved_step_, setup_.request.save);
  }

  struct EvalOutcome {
    double loss = 0;
    double items = 0;
    std::string fault;  // in the data or the weights; empty: none
  };

  Result<EvalOutcome> run_evaluation() {
    double weighted = 0;
    double total = 0;
    const std::unique_ptr<InputPipeline> pipeline =
        open_pipeline(*setup_.eval_data, *setup_.eval_batches, setup_.num_eval_batches);
    if (eval_kernels_ != nullptr) {
      enter("copying the trained weights to --eval-model");
      TRIREME_TRY(copy_trained_weights(setup_, context_.rank, *kernels_, *eval_kernels_,
                                       *context_.transport));
      enter("the pause between two steps");
    }
    for (int64_t batch = 0; batch < setup_.num_eval_batches; ++batch) {
      StepInputs inputs{.step = batch,
                        .is_training = false,
                        .lr = 0,
                        .pipeline = pipeline.get(),
                        .shares = shares(*setup_.eval_batches, batch)};
      Result<StepOutcome> ran = run_evaluation_step(std::move(inputs));
      if (!ran.ok()) {
        return while_doing(fmt::format("batch {} of the evaluation", batch + 1), ran.error());
      }
      const StepOutcome& outcome = ran.value();
      weighted += outcome.loss * outcome.items;
      total += outcome.items;
      if (!setup_.request.is_training && is_reporter()) {
        publish({{"event", "step"},
                 {"step", batch + 1},
                 {"steps", setup_.num_eval_batches},
                 {"loss", outcome.loss}});
      }
    }
    EvalOutcome outcome{.loss = weighted / total, .items = total, .fault = {}};
    if (total == 0) {
      outcome.fault = "the evaluation data has no items: every target is ignored";
    } else if (!std::isfinite(outcome.loss)) {
      outcome.fault = "the loss of the evaluation is not finite";
    }
    return outcome;
  }

  // Training goes on after an evaluation without a loss; the run fails if the last one has none.
  Status evaluate(int64_t step) {
    has_evaluated_ = true;
    const int64_t place = recorder_ == nullptr ? -1 : recorder_->begin(EventClass::kEvaluation, {});
    Result<EvalOutcome> evaluated = run_evaluation();
    if (!evaluated.ok()) return Error{evaluated.error().message + saved_text()};
    if (recorder_ != nullptr) recorder_->end(place);
    const EvalOutcome& outcome = evaluated.value();
    const bool is_last = step == setup_.num_steps;
    if (is_last) fault_ = outcome.fault;
    if (!is_reporter()) return Status();
    note_output(metrics_.write_eval(step, outcome.loss));
    if (!outcome.fault.empty()) {
      if (!is_last) {
        context_.warn(fmt::format("after step {}: {}; training goes on", step, outcome.fault));
      }
      return Status();
    }
    result_["eval_loss"] = outcome.loss;
    publish({{"event", "eval"}, {"step", step}, {"eval_loss", outcome.loss}});
    return Status();
  }

  Status evaluate_only() {
    TRIREME_TRY(EvalOutcome outcome, run_evaluation());
    if (is_reporter()) TRIREME_TRY(metrics_.write_eval(0, outcome.loss));
    fault_ = outcome.fault;
    if (!fault_.empty() && is_reporter()) return Error{fault_};
    result_["eval_loss"] = outcome.loss;
    result_["items"] = outcome.items;
    return Status();
  }

  Status save(int64_t step) {
    enter("saving " + setup_.request.save);
    TRIREME_TRY(
        save_weights(setup_.request.save, setup_, context_.rank, *kernels_, *context_.transport));
    saved_step_ = step;
    enter("the pause between two steps");
    note(fmt::format("saved {}", setup_.request.save));
    return Status();
  }

  [[nodiscard]] StepShares shares(const Batches& batches, int64_t step) const {
    return share_step(batches.num_samples(step), setup_.plan.dp, setup_.plan.micro_batches);
  }

  std::unique_ptr<InputPipeline> open_pipeline(const Feed& feed, const Batches& batches,
                                               int64_t num_steps) const {
    const int32_t stage = context_.rank % setup_.plan.pp;
    const bool is_training = &feed == setup_.data.get();
    return std::make_unique<InputPipeline>(InputPipelineOptions{
        .feed = &feed,
        .replica = context_.rank / setup_.plan.pp,
        .inputs = is_training
                      ? user_inputs(setup_.graph, setup_.partition.stages[stage])
                      : user_inputs(setup_.eval_graph(), setup_.eval_partition().stages[stage]),
        .samples =
            [this, &batches](int64_t step) {
              return StepSamples{.samples = batches.samples(step), .shares = shares(batches, step)};
            },
        .num_steps = num_steps});
  }

  [[nodiscard]] StepInputs with_schedule(StepInputs inputs, const Schedule& schedule) const {
    inputs.splits_backward = std::ranges::any_of(
        schedule.ranks[context_.rank],
        [](const Action& action) { return action.kind == ActionKind::kInputGradient; });
    return inputs;
  }

  Result<StepOutcome> run_evaluation_step(StepInputs inputs) {
    TRIREME_TRY(const Schedule* schedule, schedule_of(false, inputs.shares.num_micro_batches,
                                                      NormExchange::kNone, StepPlace::kAlone));
    StageKernels& kernels = eval_kernels_ == nullptr ? *kernels_ : *eval_kernels_;
    executor_->use(kernels);
    executor_->record(nullptr);
    TRIREME_TRY(kernels.begin_step(std::move(inputs)));
    TRIREME_TRY(executor_->run_step(*schedule));
    return kernels.outcome();
  }

  // Schedules are built and verified once for each shape of a step.
  Result<const Schedule*> schedule_of(bool is_training, const std::vector<int32_t>& counts,
                                      NormExchange norms, StepPlace place,
                                      const std::optional<ExtraWarmUps>& warm_ups = {}) {
    const Key key(is_training, counts, norms, place, warm_ups);
    const auto found = schedules_.find(key);
    if (found != schedules_.end()) return static_cast<const Schedule*>(&found->second);
    TRIREME_TRY(Schedule schedule,
                step_schedule(setup_, is_training, counts, norms, place, warm_ups));
    return static_cast<const Schedule*>(
        &schedules_.emplace(key, std::move(schedule)).first->second);
  }

  [[nodiscard]] bool is_reporter() const { return context_.rank == 0; }

  void enter(std::string phase) const {
    if (context_.phase) context_.phase(std::move(phase));
  }

  void publish(const nlohmann::ordered_json& event) const {
    if (context_.publish) context_.publish(json_text(event));
  }

  // Of the reporter, where there is anything to say.
  void note(const std::string& text) const {
    if (is_reporter() && !text.empty()) publish({{"event", "note"}, {"text", text}});
  }

  void publish_step(const StepMetrics& metrics) const {
    publish({{"event", "step"},
             {"step", metrics.step},
             {"steps", setup_.num_steps},
             {"loss", metrics.loss},
             {"items", metrics.items},
             {"seconds", metrics.seconds},
             {"lr", metrics.lr}});
  }

  using Key =
      std::tuple<bool, std::vector<int32_t>, NormExchange, StepPlace, std::optional<ExtraWarmUps>>;
  const RunSetup& setup_;
  const RankContext context_;
  std::unique_ptr<InputPipeline> training_inputs_;
  std::unique_ptr<StageKernels> kernels_;
  std::unique_ptr<StageKernels> eval_kernels_;  // of --eval-model
  std::unique_ptr<Replanning> replanning_;      // null: nothing is measured
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Recorder> recorder_;  // null: no timeline
  MetricsFile metrics_;
  int64_t saved_step_ = 0;  // the last one whose weights were saved
  bool has_evaluated_ = false;
  Overlap overlap_;                           // of the next step to run
  std::chrono::duration<double> seconds_{0};  // of the last one that ran
  std::vector<double> own_cpu_seconds_;       // of the passes of each step
  std::vector<double> step_seconds_;          // of the reporter
  std::vector<int64_t> peak_bytes_;           // of the reporter, after the last step: by rank
  std::vector<double> compute_cpu_seconds_;   // the same
  int64_t fault_step_ = 0;                    // the step of fault_
  std::string fault_;         // in what all ranks computed together: why the run fails
  std::string output_fault_;  // of the reporter: the first file that could not be written
  nlohmann::ordered_json result_ = {{"event", "result"}};
  std::map<Key, Schedule> schedules_;
};

}  // namespace

RankOutcome run_rank(const RunSetup& setup, const RankContext& context) {
  auto loop = std::make_unique<RankLoop>(setup, context);
  RankOutcome outcome{.status = loop->run(), .is_own = false};
  outcome.is_own = loop->has_fault();
  // Other threads may still write into the buffers of a step that failed, and read its action.
  if (!outcome.status.ok()) static_cast<void>(loop.release());
  return outcome;
}

}  // namespace trireme
