#include "trireme/cli/commands/host_options.h"

#include <map>
#include <string>

#include "trireme/cli/validators.h"

namespace trireme {
namespace {

constexpr int64_t kMaxSeconds = 1'000'000;

}  // namespace

void add_host_options(CLI::App& app, RunRequest& run) {
  app.add_option("--rendezvous-timeout", run.rendezvous_timeout_s,
                 "seconds in which all ranks must have come")
      ->capture_default_str()
      ->transform(whole_number(1, kMaxSeconds))
      ->group("Hosts");
  app.add_option("--silence-timeout", run.silence_timeout_s,
                 "seconds after which a rank that is not heard is lost")
      ->capture_default_str()
      ->transform(whole_number(2, kMaxSeconds))
      ->group("Hosts");
  static const std::map<std::string, TransportKind> transports = {
      {"gloo", TransportKind::kGloo}, {"direct", TransportKind::kDirect}};
  app.add_option_function<std::string>(
         "--transport", [&run](const std::string& name) { run.transport = transports.at(name); },
         "what carries the bytes between ranks: direct, Trireme's own wire, whose sums depend on "
         "no "
         "timing, or gloo")
      ->check(CLI::IsMember({"direct", "gloo"}))
      ->default_str("direct")
      ->group("Hosts");
  app.add_flag("!--no-shared-memory", run.shares_memory,
               "ranks of one host send each other by TCP, too, over the direct transport")
      ->group("Hosts");
  app.add_option("--interface", run.interface,
                 "network interface for what ranks send each other: eth1 [the one to rank 0]")
      ->check(not_empty())
      ->group("Hosts");
}

}  // namespace trireme
