#include "trireme/worker/agreement.h"

#include <chrono>
#include <string_view>

#include <fmt/format.h>

namespace trireme {
namespace {

constexpr const char* kKey = "request";
constexpr std::chrono::minutes kTimeout(2);  // as for a rank that does not connect

// FNV-1a: the same on all machines.
uint64_t digest_of(std::string_view text) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const char byte : text) digest = (digest ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return digest;
}

}  // namespace

uint64_t request_digest(const RunSetup& setup) {
  const RunRequest& request = setup.request;
  const OptimizerOptions& optimizer = request.optimizer;
  std::string text =
      setup.rehearsal.has_value()
          ? to_text(setup.rehearsal->step.schedule) + to_text(setup.rehearsal->step.costs)
      : setup.request.probe.has_value() ? fmt::format("probe {}", setup.request.probe->budget_s)
                                        : to_text(setup.graph) + to_text(setup.plan);
  const auto add = [&text](const auto&... values) { ((text += fmt::format("|{}", values)), ...); };
  add(request.is_training, request.batch, request.seed, request.shuffles, request.drops_last,
      setup.num_steps, setup.num_eval_batches, request.seq_len.value_or(0));
  add(setup.data != nullptr ? setup.data->num_samples() : 0,
      setup.eval_data != nullptr ? setup.eval_data->num_samples() : 0);
  if (setup.eval_model.has_value()) text += to_text(setup.eval_model->graph);
  add(setup.data != nullptr ? setup.data->digest() : 0,
      setup.eval_data != nullptr ? setup.eval_data->digest() : 0);
  add(request.eval_every.value_or(0), request.save_every.value_or(0), request.save.empty(),
      request.grad_norms.empty(), request.init.empty());
  add(optimizer.name, optimizer.momentum, optimizer.is_nesterov, optimizer.beta1, optimizer.beta2,
      optimizer.eps, optimizer.weight_decay.value_or(-1), optimizer.no_decay);
  add(request.lr, static_cast<int>(request.lr_schedule), request.warmup_steps,
      request.clip_norm.value_or(0));
  add(static_cast<int>(request.transport_kind()));
  return digest_of(text);
}

Status agree_with_rank_zero(const RunSetup& setup, int32_t rank, ControlClient& client) {
  const std::string own = fmt::format("{:016x}", request_digest(setup));
  if (rank == 0) return client.set(kKey, StoreBytes(own.begin(), own.end()));
  TRIREME_TRY(const StoreBytes bytes, client.get(kKey, kTimeout));
  if (std::string(bytes.begin(), bytes.end()) == own) return Status();
  return Error{
      "the model, the plan, the options or the number of samples are not those of rank 0; "
      "start all ranks with the same arguments and files"};
}

}  // namespace trireme
