#include "trireme/exec/loopback_transport.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/exec/loopback_network.h"

namespace trireme {
namespace {

class LoopbackTransport : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<LoopbackNetwork> network, int32_t rank)
      : network_(std::move(network)), rank_(rank) {}
  LoopbackTransport(const LoopbackTransport&) = delete;
  LoopbackTransport& operator=(const LoopbackTransport&) = delete;
  ~LoopbackTransport() override { network_->leave(rank_); }

  Result<CommunicatorId> join(const std::string& name, std::vector<int32_t> members) override {
    return network_->join(rank_, name, members);
  }
  Result<Ticket> post_send(int32_t peer, int32_t tag, std::span<const std::byte> bytes) override {
    return network_->post_transfer(rank_, peer, tag, {.rank = rank_, .source = bytes});
  }
  Result<Ticket> post_receive(int32_t peer, int32_t tag, std::span<std::byte> bytes) override {
    return network_->post_transfer(peer, rank_, tag, {.rank = rank_, .target = bytes});
  }
  Result<Ticket> post_all_reduce(CommunicatorId communicator, DType dtype,
                                 std::span<std::byte> bytes) override {
    return network_->post_all_reduce(communicator,
                                     {.rank = rank_, .target = bytes, .dtype = dtype});
  }
  Status wait(Ticket ticket) override { return network_->wait(rank_, ticket); }

 private:
  std::shared_ptr<LoopbackNetwork> network_;
  int32_t rank_;
};

}  // namespace

std::shared_ptr<LoopbackNetwork> make_loopback_network(int32_t num_ranks) {
  return std::make_shared<LoopbackNetwork>(num_ranks);
}

std::unique_ptr<Transport> make_loopback_transport(std::shared_ptr<LoopbackNetwork> network,
                                                   int32_t rank) {
  TRIREME_CHECK(rank >= 0 && rank < network->num_ranks(), "a rank outside the network");
  return std::make_unique<LoopbackTransport>(std::move(network), rank);
}

void shut_down(LoopbackNetwork& network, const std::string& message) { network.shut_down(message); }

}  // namespace trireme
