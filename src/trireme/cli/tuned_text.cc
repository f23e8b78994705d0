#include "trireme/cli/tuned_text.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/base/json_text.h"
#include "trireme/schedule/communication.h"

namespace trireme {
namespace {

bool can_run(const TriedPolicy& tried) { return find_communication(tried.row->name).ok(); }

std::string sizes_text(const PolicyOptions& options) {
  if (options.bucket_bytes > 0)
    return fmt::format("buckets of {} MB", options.bucket_bytes / 1'000'000);
  if (options.chunk_bytes > 0)
    return fmt::format("pieces of {} MB", options.chunk_bytes / 1'000'000);
  return "its own sizes";
}

std::string ms(SimTime time) { return fmt::format("{:.3f} ms", 1e3 * to_seconds(time)); }

SimTime exposed(const TriedPolicy& tried, bool of_messages) {
  SimTime sum = 0;
  for (size_t kind = 0; kind < kNumTransferKinds; ++kind) {
    if (is_message(static_cast<TransferKind>(kind)) == of_messages) sum += tried.exposed[kind];
  }
  return sum;
}

nlohmann::ordered_json json_of(const TriedPolicy& tried) {
  nlohmann::ordered_json json = {{"policy", tried.row->name}};
  if (tried.options.bucket_bytes > 0) json["bucket_bytes"] = tried.options.bucket_bytes;
  if (tried.options.chunk_bytes > 0) json["piece_bytes"] = tried.options.chunk_bytes;
  if (tried.options.credit_bytes > 0) json["credit_bytes"] = tried.options.credit_bytes;
  json["step_ns"] = tried.step;
  json["exposed_sums_ns"] = exposed(tried, false);
  json["exposed_messages_ns"] = exposed(tried, true);
  return json;
}

}  // namespace

const TriedPolicy& pick(const std::vector<TriedPolicy>& tried) {
  const auto best = std::ranges::find_if(tried, can_run);
  TRIREME_CHECK(best != tried.end(), "no policy can run");
  const auto plain = std::ranges::find_if(tried, [](const TriedPolicy& one) {
    return one.row->name == kDefaultCommunication && one.options == PolicyOptions();
  });
  const bool is_as_good = plain != tried.end() && plain->step - best->step <= best->step / 1000;
  return is_as_good ? *plain : *best;
}

int64_t bucket_bytes_of(const TriedPolicy& tried) {
  return std::max(tried.options.bucket_bytes, tried.options.chunk_bytes);
}

std::string tuned_table(const std::vector<TriedPolicy>& tried, SimTime compute,
                        const std::vector<std::string>& notes) {
  std::string text = fmt::format("{:<18}  {:<17}  {:>13}  {:>14}  {:>18}\n", "policy", "with",
                                 "step", "waits for sums", "waits for messages");
  std::set<std::string_view> shown;
  for (const TriedPolicy& one : tried) {
    if (!shown.insert(one.row->name).second) continue;
    text += fmt::format("{:<18}  {:<17}  {:>13}  {:>14}  {:>18}{}\n", one.row->name,
                        sizes_text(one.options), ms(one.step), ms(exposed(one, false)),
                        ms(exposed(one, true)), can_run(one) ? "  *" : "");
  }
  const TriedPolicy& picked = pick(tried);
  const int64_t bytes = bucket_bytes_of(picked);
  text += fmt::format(
      "{} steps simulated; without communication a step takes {}; * --comm has it\n"
      "pick: --comm {}{}, {} a step\n",
      tried.size(), ms(compute), picked.row->name,
      bytes > 0 ? fmt::format(" --bucket-bytes {}", bytes) : "", ms(picked.step));
  for (const std::string& note : notes) text += fmt::format("note: {}\n", note);
  return text;
}

std::string tuned_json(const std::vector<TriedPolicy>& tried, SimTime compute,
                       const std::vector<std::string>& notes) {
  nlohmann::ordered_json json = {{"compute_ns", compute}, {"pick", json_of(pick(tried))}};
  json["tried"] = nlohmann::ordered_json::array();
  for (const TriedPolicy& one : tried) json["tried"].push_back(json_of(one));
  if (!notes.empty()) json["notes"] = notes;
  return json_text(json, 1) + "\n";
}

}  // namespace trireme
