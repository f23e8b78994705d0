#include "trireme/transport/direct_ranks.h"

#include <chrono>
#include <utility>

#include <gtest/gtest.h>

#include "trireme/exec/control_client.h"
#include "trireme/exec/control_hub.h"
#include "trireme/exec/run_ranks.h"

namespace trireme {

std::vector<std::unique_ptr<DirectTransport>> make_direct_ranks(
    int32_t num_ranks, const std::function<void(DirectOptions&)>& change) {
  auto started = ControlHub::start({.watch = {.num_ranks = num_ranks}, .token = "secret"},
                                   [](const HubEvent&) {});
  EXPECT_TRUE(started.ok()) << started.error().message;
  std::vector<std::unique_ptr<ControlClient>> clients(static_cast<size_t>(num_ranks));
  std::vector<std::unique_ptr<DirectTransport>> ranks(static_cast<size_t>(num_ranks));
  const std::vector<Status> outcomes = run_ranks(num_ranks, [&](int32_t rank) -> Status {
    const auto index = static_cast<size_t>(rank);
    TRIREME_TRY(clients[index],
                ControlClient::connect(
                    {.address = started.value()->address(), .token = "secret", .rank = rank}));
    DirectOptions options{.rank = rank,
                          .num_ranks = num_ranks,
                          .host = clients[index]->local_host(),
                          .connect_timeout = std::chrono::seconds(20),
                          .timeout = std::chrono::seconds(20)};
    if (change) change(options);
    TRIREME_TRY(ranks[index], make_direct_transport(options, *clients[index]));
    return Status();
  });
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.error().message;
  return ranks;
}

}  // namespace trireme
