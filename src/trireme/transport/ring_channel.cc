#include "trireme/transport/ring_channel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <fmt/format.h>

namespace trireme {
namespace {

constexpr size_t kLine = 128;  // two lines of a cache: they are fetched in pairs
constexpr size_t kPage = 4096;
constexpr size_t kMemoryBytes = kPage + 2 * kRingBytes;
// After so many bytes the other side may begin with them.
constexpr size_t kPieceBytes = size_t{16} << 10;
// A receiver that sleeps is woken before all has come only where so many bytes are left: it takes
// as long to rise as they take to copy.
constexpr size_t kWorthOverlap = size_t{64} << 10;
// A sender is woken for no less room.
constexpr size_t kWorthWaking = kRingBytes / 2;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// The order of a publication and of a look at whether the other side sleeps is what keeps either
// from sleeping through the other's: hence seq_cst for both.
struct RingCounts {
  alignas(kLine) std::atomic<uint64_t> head;  // publishes bytes of the ring; set by the sender
  alignas(kLine) std::atomic<uint64_t> tail;  // publishes room; set by the receiver
};
struct Sleeper {
  alignas(kLine) std::atomic<uint32_t> wants;  // kRoom and one of the others; 0: it is awake
};
constexpr uint32_t kRoom = 1;
constexpr uint32_t kFull = 2;
constexpr uint32_t kFrames = 4;
constexpr uint32_t kBytes = 8;

uint32_t wants_of(Rest rest, bool for_room) {
  constexpr std::array<uint32_t, 4> kWants = {0, kFull, kFrames, kBytes};  // by Rest
  return kWants[static_cast<size_t>(rest)] | (for_room ? kRoom : 0);
}

struct RingPage {
  std::array<RingCounts, 2> counts;  // by the side that sends
  std::array<Sleeper, 2> sleepers;   // by side
};
static_assert(sizeof(RingPage) <= kPage);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

class Mapping {
 public:
  explicit Mapping(int memory)
      : address_(::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0)) {}
  ~Mapping() {
    if (is_there()) ::munmap(address_, kMemoryBytes);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] bool is_there() const { return address_ != MAP_FAILED; }
  // A memfd begins as zeros, which is what all counts begin with.
  [[nodiscard]] RingPage& page() const { return *static_cast<RingPage*>(address_); }
  [[nodiscard]] std::byte* ring(size_t side) const {
    return static_cast<std::byte*>(address_) + kPage + side * kRingBytes;
  }

 private:
  void* address_;
};

class RingChannel : public ByteChannel {
 public:
  RingChannel(RingConnection connection, std::unique_ptr<Mapping> mapping, size_t side)
      : socket_(std::move(connection.socket)),
        peer_wake_(std::move(connection.peer_wake)),
        mapping_(std::move(mapping)),
        out_(mapping_->page().counts[side]),
        in_(mapping_->page().counts[1 - side]),
        self_(mapping_->page().sleepers[side]),
        peer_(mapping_->page().sleepers[1 - side]),
        out_ring_(mapping_->ring(side)),
        in_ring_(mapping_->ring(1 - side)) {}

  [[nodiscard]] int fd() const override { return socket_.get(); }

  void hear(uint32_t events) override {
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) is_closing_ = true;
  }

  [[nodiscard]] bool can_send() const override {
    return sent_ - out_.tail.load(std::memory_order_acquire) != kRingBytes;
  }
  [[nodiscard]] bool can_receive() const override {
    return is_closing_ || in_.head.load(std::memory_order_acquire) != received_;
  }

  ssize_t send(std::span<iovec> parts) override {
    const uint64_t begin = sent_;
    uint64_t published = sent_;
    size_t left = 0;
    for (const iovec& part : parts) left += part.iov_len;
    for (const iovec& part : parts) {
      size_t done = 0;
      while (done < part.iov_len) {
        const size_t room = room_to_send();
        if (room > kRingBytes) return damaged();
        const size_t place = sent_ % kRingBytes;
        const size_t size = std::min({room, part.iov_len - done, kRingBytes - place, kPieceBytes});
        if (size == 0) return moved(publish_sent(published, kFrames | kBytes) - begin);
        std::memcpy(out_ring_ + place, static_cast<const std::byte*>(part.iov_base) + done, size);
        done += size;
        sent_ += size;
        left -= size;
        if (sent_ - published < kPieceBytes) continue;
        published = publish_sent(published, left >= kWorthOverlap ? kBytes : 0);
      }
    }
    return moved(publish_sent(published, kFrames | kBytes) - begin);
  }

  ssize_t receive(std::span<iovec> parts) override {
    const uint64_t begin = received_;
    for (const iovec& part : parts) {
      size_t done = 0;
      while (done < part.iov_len) {
        const uint64_t there = in_.head.load(std::memory_order_acquire) - received_;
        if (there > kRingBytes) return damaged();
        const size_t place = received_ % kRingBytes;
        const size_t size = std::min(
            {static_cast<size_t>(there), part.iov_len - done, kRingBytes - place, kPieceBytes});
        if (size == 0) return received_ == begin && is_closing_ ? 0 : moved(received_ - begin);
        std::memcpy(static_cast<std::byte*>(part.iov_base) + done, in_ring_ + place, size);
        done += size;
        received_ += size;
        publish_received(there - size);
      }
    }
    return moved(received_ - begin);
  }

  bool rest(Rest rest, bool for_room) override {
    self_.wants.store(wants_of(rest, for_room), std::memory_order_seq_cst);
    if (rest == Rest::kAwake) return true;
    if (for_room) {
      if (sent_ - out_.tail.load(std::memory_order_seq_cst) != kRingBytes) return false;
      // The peer, who may sleep until the ring is full, wakes this rank when it has read.
      wake_peer_for(kFull | kFrames | kBytes);
    }
    if (in_.head.load(std::memory_order_seq_cst) == received_) return true;
    return rest == Rest::kUntilFull && (peer_.wants.load(std::memory_order_seq_cst) & kRoom) == 0;
  }

 private:
  [[nodiscard]] size_t room_to_send() {
    if (sent_ - seen_tail_ == kRingBytes) seen_tail_ = out_.tail.load(std::memory_order_acquire);
    return kRingBytes - (sent_ - seen_tail_);
  }

  // Wakes a peer that wants one of `what`.
  uint64_t publish_sent(uint64_t published, uint32_t what) {
    if (sent_ != published) out_.head.store(sent_, std::memory_order_seq_cst);
    wake_peer_for(what);
    return sent_;
  }

  void publish_received(uint64_t left) {
    in_.tail.store(received_, std::memory_order_seq_cst);
    if (left <= kRingBytes - kWorthWaking) wake_peer_for(kRoom);
  }

  void wake_peer_for(uint32_t what) {
    if (what == 0) return;
    if ((peer_.wants.load(std::memory_order_seq_cst) & what) == 0) return;
    if (peer_.wants.exchange(0, std::memory_order_seq_cst) == 0) return;
    const uint64_t one = 1;
    // Fails only when the counter is full, and then the peer is awake already.
    [[maybe_unused]] const ssize_t written = ::write(peer_wake_.get(), &one, sizeof one);
  }

  static ssize_t moved(uint64_t num_bytes) {
    if (num_bytes > 0) return static_cast<ssize_t>(num_bytes);
    errno = EAGAIN;
    return -1;
  }
  static ssize_t damaged() {
    errno = EPROTO;
    return -1;
  }

  FileDescriptor socket_;
  FileDescriptor peer_wake_;
  std::unique_ptr<Mapping> mapping_;
  RingCounts& out_;
  RingCounts& in_;
  Sleeper& self_;
  Sleeper& peer_;
  std::byte* out_ring_;
  std::byte* in_ring_;
  // What this side has published lies here as well: the peer cannot change it.
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  uint64_t seen_tail_ = 0;
  bool is_closing_ = false;
};

Error system_error(const char* what) {
  return Error{fmt::format("{}: {}", what, std::strerror(errno))};
}

}  // namespace

Result<FileDescriptor> make_ring_memory() {
  FileDescriptor memory(::memfd_create("trireme-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.is_open()) return system_error("memfd_create");
  // Pages come as they are touched: most pairs of many ranks have little or nothing to say.
  if (::ftruncate(memory.get(), kMemoryBytes) != 0) return system_error("ftruncate");
  if (::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) return system_error("F_ADD_SEALS");
  return memory;
}

Result<std::unique_ptr<ByteChannel>> make_ring_channel(RingConnection connection, RingSide side) {
  struct stat found{};
  if (::fcntl(connection.memory.get(), F_GET_SEALS) != kSeals ||
      ::fstat(connection.memory.get(), &found) != 0 || found.st_size != kMemoryBytes) {
    return Error{"the memory that a peer shares is not sealed, or has another size"};
  }
  auto mapping = std::make_unique<Mapping>(connection.memory.get());
  if (!mapping->is_there()) return system_error("mapping memory that a peer shares");
  return std::unique_ptr<ByteChannel>(std::make_unique<RingChannel>(
      std::move(connection), std::move(mapping), static_cast<size_t>(side)));
}

}  // namespace trireme
