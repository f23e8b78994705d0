#include "trireme/cli/run_setup.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "trireme/base/one_line.h"
#include "trireme/cli/notes.h"
#include "trireme/cli/own_order.h"
#include "trireme/cli/plan_choice.h"
#include "trireme/cli/weights.h"
#include "trireme/cost/step_costs_of.h"
#include "trireme/data/size_bounds.h"
#include "trireme/graph/cuts.h"
#include "trireme/graph/draws.h"
#include "trireme/graph/input_layout.h"
#include "trireme/graph/name_pattern.h"
#include "trireme/graph/op_rules.h"
#include "trireme/plan/gradients.h"
#include "trireme/schedule/communication.h"

namespace trireme {
namespace {

// The parameters, as indices into Graph::inputs, whose name `option` selects; none when it is not
// given. Error: an expression that is malformed, or found nowhere.
Result<std::vector<size_t>> select_parameters(const Graph& graph, const char* option,
                                              const std::string& expression) {
  std::vector<size_t> selected;
  if (expression.empty()) return selected;
  Result<NamePattern> pattern = NamePattern::make(expression);
  if (!pattern.ok()) return while_doing(option, pattern.error());
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphInput& input = graph.inputs[i];
    if (input.kind == GraphInput::Kind::kParameter && pattern.value().matches_any(input.names)) {
      selected.push_back(i);
    }
  }
  if (!selected.empty()) return selected;
  return Error{
      fmt::format("{} '{}' is found in no parameter's name; trireme inspect lists the "
                  "parameters",
                  option, expression)};
}

Status freeze(Graph& graph, const std::string& expression) {
  TRIREME_TRY(std::vector<size_t> selected, select_parameters(graph, "--freeze", expression));
  for (const size_t i : selected) graph.inputs[i].requires_grad = false;
  return Status();
}

// --jagged and --batch-dim: how the samples lie in the inputs.
Status mark_inputs(Graph& graph, const RunRequest& request) {
  for (const auto& [values, offsets] : request.jagged) {
    const auto doing = fmt::format("--jagged {}={}", values, offsets);
    for (const std::string& name : {values, offsets}) {
      const Result<size_t> found = find_user_input(graph, name);
      if (!found.ok()) return while_doing(doing, found.error());
    }
    if (values == offsets) return Error{fmt::format("{} cuts an input by itself", doing)};
    TRIREME_TRY(const size_t index, find_user_input(graph, values));
    graph.inputs[index].offsets = offsets;
  }
  for (const auto& [name, dim] : request.batch_dims) {
    const auto doing = fmt::format("--batch-dim {}={}", name, dim);
    const Result<size_t> found = find_user_input(graph, name);
    if (!found.ok()) return while_doing(doing, found.error());
    const TensorType& type = graph.values[graph.inputs[found.value()].value.value].type;
    if (dim >= type.sizes.size() || !type.sizes[dim].is_symbol()) {
      return Error{fmt::format("{} is no symbolic dim of {}", doing, to_text(type))};
    }
    const std::string& symbol = type.sizes[dim].name;
    const bool is_first = &name == &request.batch_dims.front().first;
    if (!is_first && graph.batch != symbol) {
      return Error{fmt::format("{} is the size {}, but the batch of {} is {}", doing, symbol,
                               request.batch_dims.front().first, graph.batch)};
    }
    graph.batch = symbol;
  }
  return Status();
}

Status check_model(const Graph& graph, const std::string& path, bool is_training) {
  for (const GraphInput& input : graph.inputs) {
    const DType dtype = graph.values[input.value.value].type.dtype;
    const bool is_complex = dtype == DType::kComplex64 || dtype == DType::kComplex128;
    if (input.kind == GraphInput::Kind::kParameter && is_complex) {
      return Error{
          fmt::format("{}: parameter '{}' is {}; complex parameters are not supported, "
                      "store it as a real one and call torch.view_as_complex",
                      path, input.names[0], dtype_info(dtype).name)};
    }
  }
  if (!batch_symbol(graph).has_value()) {
    return Error{
        fmt::format("{}: the batch is not one symbolic size of every input ({}); export it with "
                    "trireme.export, or with one shared Dim for all inputs, or say where it is by "
                    "--batch-dim INPUT=DIM and --jagged VALUES=OFFSETS",
                    path, describe_inputs(graph))};
  }
  if (const auto layouts = input_layouts(graph); !layouts.ok()) {
    return while_doing(path, layouts.error());
  }
  for (const Node& node : graph.nodes) {
    if (!(is_training ? is_random(node) : is_random_in_evaluation(node))) continue;
    if (const std::string why = why_no_draw(node); !why.empty()) {
      return Error{fmt::format("{}: {}", path, why)};
    }
  }
  if (!is_training) return Status();
  const std::vector<bool> gets = gets_gradient(graph);
  if (std::find(gets.begin(), gets.end(), true) == gets.end()) {
    return Error{fmt::format(
        "{}: the loss reaches no parameter that is trained; freeze fewer of them", path)};
  }
  return Status();
}

// Refuses before any rank starts what every rank would refuse. An operator outside of aten that has
// a rule has a native replacement.
Status check_operator_libraries(const RunRequest& request, const Graph& graph) {
  for (const std::string& path : request.operator_libraries) {
    std::error_code error;
    if (std::filesystem::is_regular_file(path, error)) continue;
    return Error{fmt::format("--operator-library {}: there is no such file", path)};
  }
  if (!request.operator_libraries.empty()) return Status();
  for (const Node& node : graph.nodes) {
    if (is_aten(node.op) || find_op_rule(node.op) != nullptr) continue;
    return Error{fmt::format(
        "{}: {} is no operator of aten; give the library that registers it by "
        "--operator-library LIB.so, or, where it exists in Python only, replace it in the model",
        request.model, describe_node(node))};
  }
  return Status();
}

Result<RunSetup> open_model(const RunRequest& request) {
  RunSetup setup;
  setup.request = request;
  TRIREME_TRY(Archive archive, Archive::open(request.model));
  setup.archive = std::make_unique<Archive>(std::move(archive));
  setup.graph = setup.archive->graph();
  TRIREME_TRY(check_operator_libraries(request, setup.graph));
  TRIREME_TRY(freeze(setup.graph, request.freeze));
  TRIREME_TRY(mark_inputs(setup.graph, request));
  TRIREME_TRY(check_model(setup.graph, request.model, request.is_training));
  TRIREME_TRY(select_parameters(setup.graph, "--no-decay", request.optimizer.no_decay));
  return setup;
}

Status check_workers(const RunRequest& request, int32_t num_ranks) {
  const int32_t workers = request.workers.value_or(num_ranks);
  if (workers == 1 && num_ranks > 1 && request.transport.has_value()) {
    return Error{
        "--transport is for ranks as processes, with --workers 1 they are threads: leave one out"};
  }
  if (workers == num_ranks || workers == 1) return Status();
  return Error{fmt::format("--workers {} is neither 1 nor pp x dp = {}", workers, num_ranks)};
}

// More threads than this only wait for each other, and many more cannot be started.
Status check_threads(const RunRequest& request) {
  constexpr int64_t kMostPerCore = 8;
  const int64_t num_cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  if (request.threads <= kMostPerCore * num_cores) return Status();
  return Error{
      fmt::format("--threads {} is more than {}, {} for each of the {} cores of this machine",
                  request.threads, kMostPerCore * num_cores, kMostPerCore, num_cores)};
}

// The micro-batches of a whole batch, and of the shorter one at the end of the data.
Status check_step_sizes(const RunSetup& setup, const Graph& graph, int64_t num_samples,
                        LastBatch last_batch) {
  const RunRequest& request = setup.request;
  const int64_t rest = last_batch == LastBatch::kDropped ? 0 : num_samples % request.batch;
  for (const int64_t samples : {std::min(request.batch, num_samples), rest}) {
    if (samples == 0) continue;
    TRIREME_TRY(check_micro_batch_sizes(graph, samples, setup.plan.dp, setup.plan.micro_batches));
  }
  return Status();
}

Status prepare_data(RunSetup& setup) {
  const RunRequest& request = setup.request;
  const auto open = [&](const std::string& data,
                        const Graph& graph) -> Result<std::unique_ptr<Feed>> {
    TRIREME_TRY(
        std::unique_ptr<Feed> feed,
        Feed::open(graph, {.data = data, .seq_len = request.seq_len, .lengths = request.lengths}));
    const bool drops = request.drops_last && &data == &request.data;
    TRIREME_TRY(check_step_sizes(setup, graph, feed->num_samples(),
                                 drops ? LastBatch::kDropped : LastBatch::kKept));
    return feed;
  };
  TRIREME_TRY(setup.data,
              open(request.data, request.is_training ? setup.graph : setup.eval_graph()));
  TRIREME_TRY(
      Batches batches,
      Batches::make({.num_samples = setup.data->num_samples(),
                     .batch = request.batch,
                     .seed = request.seed,
                     .order = request.shuffles ? SampleOrder::kShuffled : SampleOrder::kSequential,
                     .last_batch = request.drops_last ? LastBatch::kDropped : LastBatch::kKept}));
  setup.batches = batches;
  if (request.is_training && request.batch > setup.data->num_samples()) {
    return Error{fmt::format("--batch {} is more than the {} samples of --data {}", request.batch,
                             setup.data->num_samples(), request.data)};
  }
  const int64_t micro_batches = int64_t{setup.plan.dp} * setup.plan.micro_batches;
  if (request.batch < micro_batches) {
    return Error{fmt::format("--batch {} has fewer samples than dp x micro-batches = {} x {} = {}",
                             request.batch, setup.plan.dp, setup.plan.micro_batches,
                             micro_batches)};
  }
  setup.num_steps =
      request.is_training
          ? request.steps.value_or(request.epochs.value_or(0) * batches.batches_per_epoch())
          : 0;
  if (!request.is_training) {
    setup.eval_data = std::move(setup.data);
    setup.eval_batches = batches;
  } else if (!request.eval_data.empty()) {
    TRIREME_TRY(setup.eval_data, open(request.eval_data, setup.eval_graph()));
    TRIREME_TRY(setup.eval_batches, Batches::make({.num_samples = setup.eval_data->num_samples(),
                                                   .batch = request.batch,
                                                   .order = SampleOrder::kSequential}));
  }
  if (setup.eval_batches.has_value()) {
    setup.num_eval_batches =
        std::min(request.eval_batches.value_or(INT64_MAX), setup.eval_batches->batches_per_epoch());
  }
  return Status();
}

// Of what the forward pass changes there is one version. Parameters have two, and of the statistics
// that replicas combine when a step ends, those of two batches would be summed at once.
Status check_changed_state(const RunSetup& setup) {
  const auto name_of = [&](int32_t input) {
    return in_quotes(setup.graph.inputs[static_cast<size_t>(input)].names[0]);
  };
  for (const VirtualStage& stage : setup.partition.virtual_stages) {
    const std::vector<int32_t> changed = changed_parameters(setup.graph, stage);
    if (changed.empty()) continue;
    return Error{fmt::format(
        "schedule {} keeps two versions of parameter {}, which the forward pass changes; use "
        "another schedule",
        setup.plan.schedule, name_of(changed[0]))};
  }
  if (setup.plan.dp == 1) return Status();
  for (const Stage& stage : setup.partition.stages) {
    TRIREME_TRY(const std::vector<MovingBuffer> moving,
                moving_buffers(setup.graph, stage, setup.plan.dp));
    const auto found = std::ranges::find(moving, false, &MovingBuffer::is_count);
    if (found == moving.end()) continue;
    return Error{fmt::format(
        "schedule {} with --dp {}: replicas cannot combine {}, which the forward pass changes, "
        "while their steps overlap; use --dp 1 or another schedule",
        setup.plan.schedule, setup.plan.dp, name_of(found->input))};
  }
  return Status();
}

Status prepare_schedules(RunSetup& setup) {
  if (setup.request.is_training) {
    setup.buckets = bucket_options(setup.graph, setup.plan, setup.partition, setup.request.batch);
  }
  TRIREME_TRY(setup.schedule, schedule_options(setup.graph, setup.plan, setup.partition,
                                               setup.buckets, setup.request.is_training));
  const std::vector<int32_t> full(setup.plan.dp, setup.plan.micro_batches);
  TRIREME_TRY(Schedule schedule, step_schedule(setup, true, full, NormExchange::kNone));
  if (num_weight_versions(setup.plan) == 1 || !setup.request.is_training) return Status();
  TRIREME_TRY(schedule, step_schedule(setup, true, full, NormExchange::kNone, StepPlace::kBetween));
  return check_changed_state(setup);
}

// Micro-batches differ by a sample at most; a step waits for the largest.
Status predict(RunSetup& setup) {
  const RunRequest& request = setup.request;
  const int64_t num_micro_batches = int64_t{setup.plan.dp} * setup.plan.micro_batches;
  TRIREME_TRY(
      setup.prediction,
      predict_step(setup.graph, setup.plan,
                   {.sources = {.profile = request.profile, .cluster = request.cluster},
                    .optimizer = request.optimizer,
                    .micro_batch = (request.batch + num_micro_batches - 1) / num_micro_batches,
                    .clips_norm = request.clip_norm.has_value(),
                    .threads = request.threads,
                    .sharing = request.transport_kind() == TransportKind::kDirect
                                   ? LinkSharing::kTransfersFirst
                                   : LinkSharing::kMaxMinFair}));
  return Status();
}

}  // namespace

std::string RunSetup::describe_rank(int32_t rank) const {
  return fmt::format("rank {} (stage {}, replica {})", rank, rank % plan.pp, rank / plan.pp);
}

std::vector<std::string> RunSetup::notes() const {
  if (rehearsal.has_value()) return rehearsal->step.notes;
  if (request.probe.has_value()) return {};
  std::vector<std::string> notes = {note_on_samples(*archive, plan)};
  if (request.is_training) {
    notes.push_back(note_on_micro_batches(graph, plan.micro_batches));
    if (plan.dp > 1 && !request.is_quiet) notes.push_back(note_on_row_tables(graph, buckets));
  }
  const bool evaluates = !request.is_training || !request.eval_data.empty();
  if (evaluates && !eval_model.has_value()) notes.push_back(note_on_draws(graph));
  std::erase(notes, "");
  return notes;
}

Result<ScheduleOptions> schedule_options(const Graph& graph, const Plan& plan,
                                         const Partition& partition, const BucketOptions& buckets,
                                         bool is_training) {
  const std::vector<bool> gets = gets_gradient(graph);
  ScheduleOptions options{
      .num_stages = plan.pp, .num_chunks = plan.chunks, .placement = plan.placement};
  TRIREME_TRY(options.communication, find_communication(plan.communication));
  TRIREME_TRY(options.order, own_order_of(plan));
  options.extra_warm_ups = plan.extra_warm_ups;
  for (const Partition::TiedParameter& tied : partition.tied) {
    if (gets[tied.input]) options.tied_groups.push_back(tied.stages);
  }
  for (const Stage& stage : partition.stages) {
    Reductions reductions;  // an evaluation has none
    if (is_training) {
      TRIREME_TRY(reductions, reductions_of(graph, stage, plan.dp, buckets));
    }
    options.num_buckets.push_back(reductions.num);
    options.num_tied_buckets.push_back(reductions.num_tied);
    options.num_row_tables.push_back(reductions.num_row_tables);
  }
  if (std::ranges::max(options.num_row_tables) == 0) options.num_row_tables.clear();
  if (options.tied_groups.empty()) options.num_tied_buckets.clear();
  return options;
}

Result<Schedule> step_schedule(const RunSetup& setup, bool is_training,
                               std::vector<int32_t> num_micro_batches, NormExchange norms,
                               StepPlace place, const std::optional<ExtraWarmUps>& warm_ups) {
  ScheduleOptions options = setup.schedule;
  options.num_micro_batches = std::move(num_micro_batches);
  if (!is_training) return build_schedule("forward-only", options);
  options.clips_norm = norms == NormExchange::kSquaredNorms;
  options.place = place;
  if (warm_ups.has_value()) {
    options.extra_warm_ups = warm_ups->own;
    options.found_extra_warm_ups = warm_ups->found;
    options.least_look_ahead = warm_ups->least_look_ahead;
  }
  return build_schedule(setup.plan.schedule, options);
}

RunSetup make_probe_setup(const RunRequest& request) {
  RunSetup setup;
  setup.request = request;
  setup.plan.dp = request.workers.value_or(kProbeWorkers);
  return setup;
}

Result<RunSetup> make_run_setup(const RunRequest& request, std::optional<int32_t> rank) {
  if (request.rehearsal.has_value()) return make_rehearsal_setup(request);
  if (request.probe.has_value()) return make_probe_setup(request);
  TRIREME_TRY(RunSetup setup, open_model(request));
  TRIREME_TRY(setup.plan, choose_plan(setup.graph, request.model, request.plan));
  TRIREME_TRY(setup.plan.sparse, sparse_choice(setup.plan, request.optimizer));
  TRIREME_TRY(setup.partition, partition_by_plan(setup.plan, setup.graph));
  if (!request.eval_model.empty()) {
    TRIREME_TRY(setup.eval_model,
                open_eval_model(request.eval_model, setup.graph, setup.plan, request));
    TRIREME_TRY(mark_inputs(setup.eval_model->graph, request));
    TRIREME_TRY(check_model(setup.eval_model->graph, request.eval_model, /*is_training=*/false));
  }
  TRIREME_TRY(check_workers(request, setup.num_ranks()));
  TRIREME_TRY(check_threads(request));
  if (!request.init.empty()) {
    TRIREME_TRY(setup.initial, InitialWeights::open(request.init));
  }
  TRIREME_TRY(prepare_weights(setup, rank));
  TRIREME_TRY(prepare_data(setup));
  TRIREME_TRY(prepare_schedules(setup));
  if (request.predicts && rank.value_or(0) == 0) TRIREME_TRY(predict(setup));
  setup.learning_rate = {.kind = request.lr_schedule,
                         .peak = request.lr,
                         .warmup_steps = request.warmup_steps,
                         .num_steps = setup.num_steps};
  if (request.is_training && request.warmup_steps > setup.num_steps) {
    return Error{fmt::format("--warmup-steps {} is more than the {} steps of the run",
                             request.warmup_steps, setup.num_steps)};
  }
  return setup;
}

// Of a step of a profile where no plan says how many: the first one finds its memory out of the
// caches.
constexpr int32_t kLeastTimedMicroBatches = 3;

Result<RunSetup> make_profile_setup(ProfileRequest& request) {
  TRIREME_TRY(RunSetup setup, open_model(request.run));
  TRIREME_TRY(check_threads(request.run));
  TRIREME_TRY(setup.plan, choose_plan(setup.graph, request.run.model, request.run.plan));
  TRIREME_TRY(setup.partition, partition_by_plan(setup.plan, setup.graph));
  setup.plan.dp = 1;
  const PlanChoice& choice = request.run.plan;
  if (choice.plan_path.empty() && !choice.micro_batches.has_value() && setup.plan.order.empty()) {
    const int32_t own = setup.plan.micro_batches;  // of which some schedules take multiples only
    setup.plan.micro_batches = own * ((kLeastTimedMicroBatches + own - 1) / own);
  }
  TRIREME_TRY(setup.schedule, schedule_options(setup.graph, setup.plan, setup.partition, {},
                                               /*is_training=*/true));
  TRIREME_TRY(setup.data, Feed::open(setup.graph, {.data = request.run.data,
                                                   .seq_len = request.run.seq_len,
                                                   .lengths = request.run.lengths}));
  const auto check_size = [&](int64_t samples) {
    return check_micro_batch_sizes(setup.graph, samples, 1, 1);
  };
  for (const int64_t samples : request.micro_batches) TRIREME_TRY(check_size(samples));
  if (!request.micro_batches.empty()) return setup;
  Status fits;
  for (const int64_t samples : {1, 2, 4}) {
    fits = check_size(samples);
    if (fits.ok()) request.micro_batches.push_back(samples);
  }
  if (request.micro_batches.empty()) return fits.error();
  return setup;
}

}  // namespace trireme
