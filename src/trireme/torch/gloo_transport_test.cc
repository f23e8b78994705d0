#include "trireme/torch/gloo_transport.h"

#include <chrono>
#include <latch>
#include <thread>
#include <utility>

#include <time.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/exec/control_client.h"
#include "trireme/exec/control_hub.h"
#include "trireme/exec/transport_acceptance.h"

namespace trireme {
namespace {

// A rank's transport with what it needs to live: its client, and the hub that all ranks share.
class GlooRank : public Transport {
 public:
  GlooRank(std::shared_ptr<ControlHub> hub, std::unique_ptr<ControlClient> client,
           std::unique_ptr<Transport> inner)
      : hub_(std::move(hub)), client_(std::move(client)), inner_(std::move(inner)) {}

  Result<CommunicatorId> join(const std::string& name, std::vector<int32_t> members) override {
    return inner_->join(name, std::move(members));
  }
  Result<Ticket> post_send(int32_t peer, int32_t tag, std::span<const std::byte> bytes) override {
    return inner_->post_send(peer, tag, bytes);
  }
  Result<Ticket> post_receive(int32_t peer, int32_t tag, std::span<std::byte> bytes) override {
    return inner_->post_receive(peer, tag, bytes);
  }
  Result<Ticket> post_all_reduce(CommunicatorId communicator, DType dtype,
                                 std::span<std::byte> bytes) override {
    return inner_->post_all_reduce(communicator, dtype, bytes);
  }
  Status wait(Ticket ticket) override { return inner_->wait(ticket); }

 private:
  std::shared_ptr<ControlHub> hub_;
  std::unique_ptr<ControlClient> client_;
  std::unique_ptr<Transport> inner_;
};

std::vector<std::unique_ptr<Transport>> make_ranks(int32_t num_ranks) {
  auto started = ControlHub::start({.watch = {.num_ranks = num_ranks}, .token = "secret"},
                                   [](const HubEvent&) {});
  EXPECT_TRUE(started.ok()) << started.error().message;
  const std::shared_ptr<ControlHub> hub = std::move(started).value();
  std::vector<std::unique_ptr<Transport>> ranks(static_cast<size_t>(num_ranks));
  const std::vector<Status> outcomes = run_ranks(num_ranks, [&](int32_t rank) -> Status {
    TRIREME_TRY(
        std::unique_ptr<ControlClient> client,
        ControlClient::connect({.address = hub->address(), .token = "secret", .rank = rank}));
    TRIREME_TRY(std::unique_ptr<Transport> transport,
                make_gloo_transport({.rank = rank,
                                     .num_ranks = num_ranks,
                                     .host = client->local_host(),
                                     .timeout = std::chrono::seconds(20)},
                                    *client));
    ranks[static_cast<size_t>(rank)] =
        std::make_unique<GlooRank>(hub, std::move(client), std::move(transport));
    return Status();
  });
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.error().message;
  return ranks;
}

INSTANTIATE_TEST_SUITE_P(
    Gloo, TransportAcceptance,
    testing::Values(TransportCase{
        .name = "gloo", .make = make_ranks, .on_larger = OnLargerMessage::kEndsTheProcess}),
    [](const auto& row) { return row.param.name; });

double process_cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

enum class Waiting { kReceive, kAllReduce };

// The share of a core that this process uses while rank 0 waits for rank 1, all threads of both.
double share_of_a_core(Waiting waiting) {
  constexpr std::chrono::milliseconds kTime(300);
  const std::vector<std::unique_ptr<Transport>> ranks = make_ranks(2);
  std::latch is_posted(1);
  double share = 1;
  const std::vector<Status> outcomes = run_ranks(2, [&](int32_t rank) -> Status {
    Transport& transport = *ranks[static_cast<size_t>(rank)];
    TRIREME_TRY(const CommunicatorId world, transport.join("world", {0, 1}));
    std::vector<float> numbers(4, 1.0F);
    if (rank == 1) {
      is_posted.wait();
      const double before = process_cpu_seconds();
      const auto start = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(kTime);
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
      share = (process_cpu_seconds() - before) / passed.count();
    }
    const auto post = [&]() -> Result<Ticket> {
      if (waiting == Waiting::kAllReduce) {
        return transport.post_all_reduce(world, DType::kFloat32, bytes_of(numbers));
      }
      return rank == 1 ? transport.post_send(0, 0, bytes_of(numbers))
                       : transport.post_receive(1, 0, bytes_of(numbers));
    };
    TRIREME_TRY(const Ticket ticket, post());
    if (rank == 0) is_posted.count_down();
    return transport.wait(ticket);
  });
  for (const Status& outcome : outcomes) EXPECT_TRUE(outcome.ok()) << outcome.error().message;
  return share;
}

TEST(GlooTransport, ARankThatWaitsLeavesItsCoreAlone) {
  const double receive = share_of_a_core(Waiting::kReceive);
  const double all_reduce = share_of_a_core(Waiting::kAllReduce);
  EXPECT_LT(receive, 0.02);
  EXPECT_LT(all_reduce, 0.02);
  RecordProperty("receive", std::to_string(receive));
  RecordProperty("all_reduce", std::to_string(all_reduce));
}

}  // namespace
}  // namespace trireme
