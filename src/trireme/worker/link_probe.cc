#include "trireme/worker/link_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include <sys/resource.h>

#include "trireme/base/median.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<int64_t, 5> kSizes = {8, 4 << 10, 64 << 10, 1 << 20, 8 << 20};
constexpr size_t kAlwaysTimed = 3;  // sizes: bytes must count beside the latency
constexpr int64_t kWarmUps = 2;
constexpr int64_t kFewest = 3;
constexpr int64_t kMost = 400;
constexpr int32_t kControlTag = 1;
constexpr int32_t kPingTag = 2;
constexpr int32_t kPongTag = 3;

// What the first rank tells the others before each batch of messages; 0 bytes: it is over.
struct Batch {
  int64_t bytes = 0;
  int64_t count = 0;
};

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Of each message of a batch.
struct Times {
  std::vector<double> seconds;
  std::vector<double> cpu_seconds;
};

// Times what is between begin() and end().
class MessageTimer {
 public:
  void begin() {
    cpu_ = cpu_seconds();
    begin_ = Clock::now();
  }
  void end(double share) {
    const std::chrono::duration<double> lasted = Clock::now() - begin_;
    times_.seconds.push_back(share * lasted.count());
    times_.cpu_seconds.push_back(share * (cpu_seconds() - cpu_));
  }
  [[nodiscard]] Times take() { return std::move(times_); }

 private:
  double cpu_ = 0;
  Clock::time_point begin_;
  Times times_;
};

// Runs batches of each size, as the first rank sees it.
using RunBatch = std::function<Result<Times>(const Batch&)>;
Result<LinkSamples> time_sizes(double budget_s, const RunBatch& run) {
  LinkSamples samples;
  const double share = budget_s / static_cast<double>(kSizes.size());
  for (size_t i = 0; i < kSizes.size(); ++i) {
    // Messages of the next size take at most as many times as long as they are longer.
    if (i >= kAlwaysTimed) {
      const double growth = static_cast<double>(kSizes[i]) / static_cast<double>(kSizes[i - 1]);
      const double expected = growth * median(samples.sizes.back().seconds);
      if (expected * (kWarmUps + kFewest) > budget_s / 2) break;  // there and back
    }
    TRIREME_TRY(const Times first, run({kSizes[i], kWarmUps}));
    const double expected = std::max(first.seconds.back(), 1e-7);
    const int64_t count = std::clamp(static_cast<int64_t>(share / expected), kFewest, kMost);
    TRIREME_TRY(Times times, run({kSizes[i], count}));
    samples.cpu_per_byte = median(std::move(times.cpu_seconds)) / static_cast<double>(kSizes[i]);
    samples.sizes.push_back({static_cast<double>(kSizes[i]), std::move(times.seconds)});
  }
  return samples;
}

Status wait_for(Transport& transport, Result<Ticket> ticket) {
  if (!ticket.ok()) return ticket.error();
  return transport.wait(ticket.value());
}

template <typename T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

class PingPong {
 public:
  PingPong(Transport& transport, int32_t peer)
      : transport_(transport), peer_(peer), outgoing_(kSizes.back()), incoming_(kSizes.back()) {}

  Result<LinkSamples> lead(double budget_s) {
    TRIREME_TRY(LinkSamples samples,
                time_sizes(budget_s, [this](const Batch& batch) { return run_first(batch); }));
    TRIREME_TRY(tell({}));
    return samples;
  }

  Status follow() {
    while (true) {
      Batch batch;
      TRIREME_TRY(
          wait_for(transport_, transport_.post_receive(peer_, kControlTag, bytes_of(batch))));
      if (batch.bytes == 0) return Status();
      TRIREME_TRY(run_second(batch));
    }
  }

 private:
  Status tell(Batch batch) {
    return wait_for(transport_, transport_.post_send(peer_, kControlTag, bytes_of(batch)));
  }
  static std::span<std::byte> part(std::vector<std::byte>& buffer, const Batch& batch) {
    return std::span(buffer).first(static_cast<size_t>(batch.bytes));
  }

  Result<Times> run_first(const Batch& batch) {
    TRIREME_TRY(tell(batch));
    MessageTimer timer;
    // The second rank has posted its receive when it says so.
    TRIREME_TRY(
        wait_for(transport_, transport_.post_receive(peer_, kControlTag, bytes_of(ready_))));
    for (int64_t i = 0; i < batch.count; ++i) {
      TRIREME_TRY(const Ticket pong,
                  transport_.post_receive(peer_, kPongTag, part(incoming_, batch)));
      timer.begin();
      TRIREME_TRY(const Ticket ping, transport_.post_send(peer_, kPingTag, part(outgoing_, batch)));
      TRIREME_TRY(transport_.wait(ping));
      TRIREME_TRY(transport_.wait(pong));
      timer.end(0.5);
    }
    return timer.take();
  }

  Status run_second(const Batch& batch) {
    TRIREME_TRY(Ticket ping, transport_.post_receive(peer_, kPingTag, part(incoming_, batch)));
    TRIREME_TRY(wait_for(transport_, transport_.post_send(peer_, kControlTag, bytes_of(ready_))));
    for (int64_t i = 0; i < batch.count; ++i) {
      TRIREME_TRY(transport_.wait(ping));
      if (i + 1 < batch.count) {
        TRIREME_TRY(ping, transport_.post_receive(peer_, kPingTag, part(incoming_, batch)));
      }
      TRIREME_TRY(
          wait_for(transport_, transport_.post_send(peer_, kPongTag, part(outgoing_, batch))));
    }
    return Status();
  }

  Transport& transport_;
  const int32_t peer_;
  std::vector<std::byte> outgoing_;
  std::vector<std::byte> incoming_;
  int64_t ready_ = 0;
};

// All members count the same batches: the first one's numbers are the only ones that are not 0.
class AllReduces {
 public:
  AllReduces(Transport& transport, CommunicatorId communicator)
      : transport_(transport),
        communicator_(communicator),
        buffer_(kSizes.back() / sizeof(float)) {}

  Result<LinkSamples> lead(double budget_s) {
    TRIREME_TRY(LinkSamples samples,
                time_sizes(budget_s, [this](const Batch& batch) -> Result<Times> {
                  TRIREME_TRY(const Batch agreed, agree(batch));
                  return run(agreed);
                }));
    TRIREME_TRY(agree({}));
    return samples;
  }

  Status follow() {
    while (true) {
      TRIREME_TRY(const Batch batch, agree({}));
      if (batch.bytes == 0) return Status();
      TRIREME_TRY(run(batch));
    }
  }

 private:
  Result<Batch> agree(const Batch& own) {
    std::array<double, 2> numbers = {static_cast<double>(own.bytes),
                                     static_cast<double>(own.count)};
    TRIREME_TRY(wait_for(transport_,
                         transport_.post_all_reduce(communicator_, DType::kFloat64,
                                                    std::as_writable_bytes(std::span(numbers)))));
    return Batch{static_cast<int64_t>(numbers[0]), static_cast<int64_t>(numbers[1])};
  }

  Result<Times> run(const Batch& batch) {
    const std::span<float> numbers =
        std::span(buffer_).first(static_cast<size_t>(batch.bytes) / sizeof(float));
    MessageTimer timer;
    for (int64_t i = 0; i < batch.count; ++i) {
      timer.begin();
      TRIREME_TRY(
          wait_for(transport_, transport_.post_all_reduce(communicator_, DType::kFloat32,
                                                          std::as_writable_bytes(numbers))));
      timer.end(1);
    }
    return timer.take();
  }

  Transport& transport_;
  const CommunicatorId communicator_;
  std::vector<float> buffer_;
};

}  // namespace

Result<LinkSamples> probe_pair(Transport& transport, int32_t rank, int32_t first, int32_t second,
                               double budget_s) {
  if (rank == first) return PingPong(transport, second).lead(budget_s);
  TRIREME_TRY(PingPong(transport, first).follow());
  return LinkSamples();
}

Result<LinkSamples> probe_all_reduce(Transport& transport, CommunicatorId communicator,
                                     bool is_first, double budget_s) {
  AllReduces all_reduces(transport, communicator);
  if (is_first) return all_reduces.lead(budget_s);
  TRIREME_TRY(all_reduces.follow());
  return LinkSamples();
}

}  // namespace trireme
