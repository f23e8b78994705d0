// Transports that stand before another one, for tests.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/exec/transport.h"

namespace trireme {

// Passes every call on.
class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(Transport& inner) : inner_(inner) {}
  Result<CommunicatorId> join(const std::string& name, std::vector<int32_t> members) override {
    return inner_.join(name, std::move(members));
  }
  Result<Ticket> post_send(int32_t peer, int32_t tag, std::span<const std::byte> bytes) override {
    return inner_.post_send(peer, tag, bytes);
  }
  Result<Ticket> post_receive(int32_t peer, int32_t tag, std::span<std::byte> bytes) override {
    return inner_.post_receive(peer, tag, bytes);
  }
  Result<Ticket> post_all_reduce(CommunicatorId communicator, DType dtype,
                                 std::span<std::byte> bytes) override {
    return inner_.post_all_reduce(communicator, dtype, bytes);
  }
  Status wait(Ticket ticket) override { return inner_.wait(ticket); }
  void set_urgency(std::optional<Urgency> urgency) override { inner_.set_urgency(urgency); }
  std::optional<MeasuredLink> take_measured(int32_t peer) override {
    return inner_.take_measured(peer);
  }

 private:
  Transport& inner_;
};

// Yields now and then, so that ranks meet in other orders.
class DelayingTransport : public ForwardingTransport {
 public:
  DelayingTransport(Transport& inner, uint64_t seed) : ForwardingTransport(inner), random_(seed) {}
  Result<Ticket> post_send(int32_t peer, int32_t tag, std::span<const std::byte> bytes) override {
    delay();
    return ForwardingTransport::post_send(peer, tag, bytes);
  }
  Result<Ticket> post_receive(int32_t peer, int32_t tag, std::span<std::byte> bytes) override {
    delay();
    return ForwardingTransport::post_receive(peer, tag, bytes);
  }
  Result<Ticket> post_all_reduce(CommunicatorId communicator, DType dtype,
                                 std::span<std::byte> bytes) override {
    delay();
    return ForwardingTransport::post_all_reduce(communicator, dtype, bytes);
  }
  Status wait(Ticket ticket) override {
    delay();
    return ForwardingTransport::wait(ticket);
  }

 private:
  void delay() {
    for (uint64_t count = random_() % 8 == 0 ? random_() % 64 : 0; count > 0; --count) {
      std::this_thread::yield();
    }
  }
  std::mt19937_64 random_;
};

}  // namespace trireme
