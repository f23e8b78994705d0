#include "trireme/worker/rendezvous.h"

#include <array>
#include <utility>

#include <arpa/inet.h>
#include <unistd.h>

#include <fmt/format.h>

#include "trireme/exec/network_interfaces.h"
#include "trireme/exec/stream_socket.h"
#include "trireme/torch/launcher_store.h"

namespace trireme {
namespace {

constexpr std::chrono::seconds kFirstNotice(5);

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

bool is_number(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

bool is_of_this_host(const std::string& host) { return listen_on({.host = host, .port = 0}).ok(); }

// Where the hub of rank 0 listens. A name may be one that only others resolve to an address of
// this host (a service, a name that /etc/hosts gives to the loopback), so the hub listens
// everywhere then.
struct HubPlace {
  std::string bind_host;
  std::string own_host;  // for this rank's own client
  std::string for_others;
};

HubPlace hub_place(const std::string& master_host) {
  const bool is_plain = is_number(master_host) || master_host == "localhost";
  if (is_plain && is_of_this_host(master_host)) return {master_host, master_host, master_host};
  const std::string everywhere = is_of_this_host("::") ? "::" : "0.0.0.0";
  const std::string for_others = address_for_others();
  return {everywhere, "127.0.0.1", for_others.empty() ? "127.0.0.1" : for_others};
}

// Keeps ranks of another job out that meets at the same place by mistake; it is no secret.
std::string token_of_job(const RankEnvironment& environment) {
  return "job " + environment.job.substr(0, 200);
}

Error cannot_listen(const RankEnvironment& environment, const Error& error) {
  if (environment.agent_serves_store) return error;
  return Error{
      fmt::format("{}; another program or job may have this port: set MASTER_PORT to "
                  "another one for all ranks",
                  error.message)};
}

}  // namespace

std::string host_suffix(const RankEnvironment& environment) {
  const bool has_others = !environment.is_supervised() && !is_loopback(environment.master_host);
  return has_others ? " on " + host_name() : "";
}

Result<Rendezvous> rendezvous(const RankEnvironment& environment, RendezvousOptions options) {
  Rendezvous result;
  ClientOptions client{.address = environment.hub,
                       .token = environment.token,
                       .rank = environment.rank,
                       .silence_timeout = options.silence_timeout,
                       .where = std::move(options.where),
                       .on_lost = std::move(options.on_lost),
                       .on_hub_lost = std::move(options.on_hub_lost)};
  if (environment.is_supervised()) {
    client.hub_name = options.supervisor;
  } else {
    client.connect_timeout = options.timeout;
    client.on_waiting = options.on_notice;
    client.name_may_come = environment.name_may_come;
    client.host = host_name();
    client.hub_name = options.describe_rank(0);
    if (!is_loopback(environment.master_host)) client.hub_name += " at " + environment.master_host;
    client.token = token_of_job(environment);
    client.address =
        to_text(SocketAddress{.host = environment.master_host, .port = environment.master_port});
  }
  std::optional<std::string> shared;  // by rank 0
  if (environment.owns_hub()) {
    const HubPlace place = hub_place(environment.master_host);
    if (environment.agent_serves_store) client.token = make_control_token();
    HubOptions hub{.watch = {.num_ranks = environment.num_processes,
                             .connect_timeout = options.timeout,
                             .silence_timeout = options.silence_timeout,
                             .notice_after = kFirstNotice},
                   .bind_host = place.bind_host,
                   .port = environment.agent_serves_store ? uint16_t{0} : environment.master_port,
                   .token = client.token,
                   .describe_rank = options.describe_rank,
                   .on_notice = options.on_notice};
    Result<std::unique_ptr<ControlHub>> started =
        ControlHub::start(std::move(hub), std::move(options.on_hub_event));
    if (!started.ok()) return cannot_listen(environment, started.error());
    result.hub = std::move(started).value();
    const uint16_t port = result.hub->port();
    client.address = to_text(SocketAddress{.host = place.own_host, .port = port});
    shared = client.token + "@" + to_text(SocketAddress{.host = place.for_others, .port = port});
    result.own_host = place.for_others;
  }
  if (environment.agent_serves_store) {
    const LauncherStore store{.host = environment.master_host,
                              .port = environment.master_port,
                              .prefix = "trireme/" + environment.job,
                              .timeout = options.timeout,
                              .on_waiting = options.on_notice};
    TRIREME_TRY(const std::string told, share_text(store, "hub", shared));
    if (!environment.owns_hub()) {
      const size_t at = told.find('@');
      client.token = told.substr(0, at);
      client.address = told.substr(at + 1);
    }
  }
  TRIREME_TRY(result.client, ControlClient::connect(std::move(client)));
  if (result.own_host.empty()) result.own_host = result.client->local_host();
  if (!options.interface_host.empty()) result.own_host = options.interface_host;
  return result;
}

}  // namespace trireme
