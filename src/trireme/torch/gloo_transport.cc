#include "trireme/torch/gloo_transport.h"

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include <fmt/format.h>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/torch/guard.h"
#include "trireme/torch/hub_store.h"
#include "trireme/torch/tensors.h"

namespace trireme {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

class GlooTransport : public Transport {
 public:
  GlooTransport(GlooOptions options, ControlClient& client)
      : options_(std::move(options)),
        store_(c10::make_intrusive<HubStore>(client, options_.timeout)) {}

  Status connect() {
    return guard([&] {
      device_ = c10d::ProcessGroupGloo::createDeviceForHostname(options_.host, /*lazyInit=*/false);
      point_to_point_ = make_group("p2p", options_.rank, options_.num_ranks);
    });
  }

  Result<CommunicatorId> join(const std::string& name, std::vector<int32_t> members) override {
    return guard([&]() -> Result<CommunicatorId> {
      int32_t index = -1;
      for (size_t i = 0; i < members.size(); ++i) {
        if (members[i] == options_.rank) index = static_cast<int32_t>(i);
      }
      TRIREME_CHECK(index >= 0, "a rank joins a communicator that it is no member of");
      groups_.push_back(make_group(name, index, static_cast<int32_t>(members.size())));
      return CommunicatorId(static_cast<int64_t>(groups_.size()) - 1);
    });
  }

  Result<Ticket> post_send(int32_t peer, int32_t tag, std::span<const std::byte> bytes) override {
    return post(
        [&](std::vector<at::Tensor>& tensors) { return point_to_point_->send(tensors, peer, tag); },
        as_tensor({const_cast<std::byte*>(bytes.data()), bytes.size()}, DType::kUint8));
  }

  Result<Ticket> post_receive(int32_t peer, int32_t tag, std::span<std::byte> bytes) override {
    const bool is_marked = bytes.size() >= sizeof mark_;
    if (is_marked) std::memcpy(end_of(bytes), &mark_, sizeof mark_);
    TRIREME_TRY(const Ticket ticket, post(
                                         [&](std::vector<at::Tensor>& tensors) {
                                           return point_to_point_->recv(tensors, peer, tag);
                                         },
                                         as_tensor(bytes, DType::kUint8)));
    if (is_marked) pending_[ticket.value].marked = bytes;
    return ticket;
  }

  Result<Ticket> post_all_reduce(CommunicatorId communicator, DType dtype,
                                 std::span<std::byte> bytes) override {
    return post(
        [&](std::vector<at::Tensor>& tensors) {
          return groups_[communicator.value]->allreduce(tensors);
        },
        as_tensor(bytes, dtype));
  }

  Status wait(Ticket ticket) override {
    auto entry = pending_.find(ticket.value);
    TRIREME_CHECK(entry != pending_.end(), "a ticket is waited for twice");
    Pending pending = std::move(entry->second);
    pending_.erase(entry);
    if (pending.work == nullptr) return Status();
    return guard([&]() -> Status {
      // False after an abort: the transfer did not take place.
      if (!pending.work->wait()) return Error{"the transfer was aborted"};
      if (!pending.marked.empty() &&
          std::memcmp(end_of(pending.marked), &mark_, sizeof mark_) == 0) {
        return Error{fmt::format("a message of {} bytes was expected, a shorter one came",
                                 pending.marked.size())};
      }
      return Status();
    });
  }

 private:
  struct Pending {
    c10::intrusive_ptr<c10d::Work> work;
    std::vector<at::Tensor> tensors;  // alive while the work is
    std::span<std::byte> marked;      // of a receive: what ends in mark_ until it is complete
  };

  std::byte* end_of(std::span<std::byte> bytes) const {
    return bytes.data() + bytes.size() - sizeof mark_;
  }

  Group make_group(const std::string& name, int32_t rank, int32_t size) {
    auto options = c10d::ProcessGroupGloo::Options::create(options_.timeout);
    options->devices.push_back(device_);
    options->threads = 2;
    return c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo/" + name, store_), rank, size, options);
  }

  static at::Tensor as_tensor(std::span<std::byte> bytes, DType dtype) {
    const int64_t count = static_cast<int64_t>(bytes.size()) / dtype_info(dtype).size_bytes;
    return at::from_blob(bytes.data(), {count}, at::TensorOptions().dtype(scalar_type(dtype)));
  }

  template <typename Issue>
  Result<Ticket> post(Issue issue, at::Tensor tensor) {
    return guard([&]() -> Result<Ticket> {
      const Ticket ticket(next_ticket_++);
      Pending& pending = pending_[ticket.value];
      // Nothing travels for no bytes: both ends know the size.
      if (tensor.numel() == 0) return ticket;
      pending.tensors = {std::move(tensor)};
      pending.work = issue(pending.tensors);
      return ticket;
    });
  }

  GlooOptions options_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<::gloo::transport::Device> device_;
  Group point_to_point_;
  std::vector<Group> groups_;
  std::map<int32_t, Pending> pending_;
  int32_t next_ticket_ = 0;
  // Random, so that no data ends like this but once in 2^64 messages.
  uint64_t mark_ = std::random_device{}() | uint64_t{std::random_device{}()} << 32;
};

}  // namespace

Result<std::unique_ptr<Transport>> make_gloo_transport(const GlooOptions& options,
                                                       ControlClient& client) {
  auto transport = std::make_unique<GlooTransport>(options, client);
  TRIREME_TRY(transport->connect());
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace trireme
