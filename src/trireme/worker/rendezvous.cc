#include "trireme/worker/rendezvous.h"

#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "trireme/torch/launcher_store.h"

namespace trireme {
namespace {

constexpr int64_t kMaxRanks = 1'000'000;

// At most `largest`.
Result<int64_t> number_variable(const std::function<const char*(const char*)>& variable,
                                const char* name, int64_t largest) {
  const char* text = variable(name);
  if (text == nullptr) {
    return Error{
        fmt::format("{} is not set; start ranks by trireme train, or by torchrun "
                    "--no-python",
                    name)};
  }
  int64_t number = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, code] = std::from_chars(text, end, number);
  if (code != std::errc() || stop != end || number < 0 || number > largest) {
    return Error{fmt::format("{} is '{}', not a number from 0 to {}", name, text, largest)};
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
  TRIREME_TRY(int64_t rank, number_variable(variable, "RANK", kMaxRanks));
  TRIREME_TRY(int64_t size, number_variable(variable, "WORLD_SIZE", kMaxRanks));
  if (rank >= size) return Error{fmt::format("RANK is {}, but WORLD_SIZE is {}", rank, size)};
  environment.rank = static_cast<int32_t>(rank);
  environment.num_processes = static_cast<int32_t>(size);
  environment.hub = text_variable(variable, "TRIREME_HUB");
  environment.token = text_variable(variable, "TRIREME_TOKEN");
  if (environment.is_supervised()) return environment;
  environment.master_host = text_variable(variable, "MASTER_ADDR");
  if (environment.master_host.empty()) {
    return Error{
        "MASTER_ADDR is not set; start ranks by trireme train, or by torchrun --no-python"};
  }
  TRIREME_TRY(int64_t port, number_variable(variable, "MASTER_PORT", UINT16_MAX));
  environment.master_port = static_cast<uint16_t>(port);
  environment.agent_serves_store =
      text_variable(variable, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  environment.attempt = fmt::format("{}.{}", text_variable(variable, "TORCHELASTIC_RUN_ID"),
                                    text_variable(variable, "TORCHELASTIC_RESTART_COUNT"));
  return environment;
}

Result<Rendezvous> rendezvous(const RankEnvironment& environment, RendezvousOptions options) {
  Rendezvous result;
  ClientOptions client{.address = environment.hub,
                       .token = environment.token,
                       .rank = environment.rank,
                       .where = std::move(options.where),
                       .on_lost = std::move(options.on_lost),
                       .on_hub_lost = std::move(options.on_hub_lost)};
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
                             .describe_rank = options.describe_rank};
      client.token = hub_options.token;
      TRIREME_TRY(result.hub,
                  ControlHub::start(std::move(hub_options), std::move(options.on_hub_event)));
      address = client.token + "@" + result.hub->address();
    }
    TRIREME_TRY(std::string shared, share_text(store, "hub", address));
    const size_t at = shared.find('@');
    client.token = shared.substr(0, at);
    client.address = shared.substr(at + 1);
    client.hub_name = options.describe_rank(0);
  }
  TRIREME_TRY(result.client, ControlClient::connect(std::move(client)));
  return result;
}

}  // namespace trireme
