#include "trireme/worker/rendezvous.h"

#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "trireme/torch/launcher_store.h"

namespace trireme {
namespace {

Result<int64_t> number_variable(const std::function<const char*(const char*)>& variable,
                                const char* name) {
  const char* text = variable(name);
  if (text == nullptr) {
    return Error{fmt::format("{} is not set; start ranks by trireme train, or by torchrun "
                             "--no-python",
                             name)};
  }
  int64_t number = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, code] = std::from_chars(text, end, number);
  if (code != std::errc() || stop != end || number < 0) {
    return Error{fmt::format("{} is '{}', not a number", name, text)};
  }
  return number;
}

std::string text_variable(const std::function<const char*(const char*)>& variable,
                          const char* name) {
  const char* text = variable(name);
  return text == nullptr ? std::string() : std::string(text);
}

}  // namespace

Result<RankEnvironment> read_rank_environment(
    const std::function<const char*(const char*)>& variable) {
  RankEnvironment environment;
  TRIREME_TRY(int64_t rank, number_variable(variable, "RANK"));
  TRIREME_TRY(int64_t size, number_variable(variable, "WORLD_SIZE"));
  if (rank >= size) return Error{fmt::format("RANK is {}, but WORLD_SIZE is {}", rank, size)};
  environment.rank = static_cast<int32_t>(rank);
  environment.num_processes = static_cast<int32_t>(size);
  environment.hub = text_variable(variable, "TRIREME_HUB");
  environment.token = text_variable(variable, "TRIREME_TOKEN");
  if (environment.is_supervised()) return environment;
  environment.master_host = text_variable(variable, "MASTER_ADDR");
  if (environment.master_host.empty()) {
    return Error{"MASTER_ADDR is not set; start ranks by trireme train, or by torchrun --no-python"};
  }
  TRIREME_TRY(int64_t port, number_variable(variable, "MASTER_PORT"));
  environment.master_port = static_cast<uint16_t>(port);
  environment.agent_serves_store =
      text_variable(variable, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  environment.attempt = fmt::format("{}.{}", text_variable(variable, "TORCHELASTIC_RUN_ID"),
                                    text_variable(variable, "TORCHELASTIC_RESTART_COUNT"));
  return environment;
}

Result<Rendezvous> rendezvous(const RankEnvironment& environment, const DescribeRank& describe_rank,
                              std::function<std::string()> where,
                              std::function<void(const std::string&)> on_lost) {
  Rendezvous result;
  ClientOptions options{.address = environment.hub,
                        .token = environment.token,
                        .rank = environment.rank,
                        .where = std::move(where),
                        .on_lost = std::move(on_lost)};
  if (!environment.is_supervised()) {
    const LauncherStore store{.host = environment.master_host,
                              .port = environment.master_port,
                              .serves = !environment.agent_serves_store && environment.rank == 0,
                              .prefix = "trireme/" + environment.attempt};
    std::optional<std::string> address;
    if (environment.rank == 0) {
      HubOptions hub_options{.watch = {.num_ranks = environment.num_processes},
                             .bind_host = environment.master_host,
                             .token = make_control_token(),
                             .describe_rank = describe_rank};
      options.token = hub_options.token;
      TRIREME_TRY(result.hub, ControlHub::start(std::move(hub_options), [](const HubEvent&) {}));
      address = options.token + "@" + result.hub->address();
    }
    TRIREME_TRY(std::string shared, share_text(store, "hub", address));
    const size_t at = shared.find('@');
    options.token = shared.substr(0, at);
    options.address = shared.substr(at + 1);
    options.hub_name = describe_rank(0);
  }
  TRIREME_TRY(result.client, ControlClient::connect(std::move(options)));
  return result;
}

}  // namespace trireme
