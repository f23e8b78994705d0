// transport_bench WHO BYTES MESSAGES BATCHES: one rank sends messages to another one on this host,
// several posted at once. WHO is shm or tcp, the direct transport with and without shared memory,
// gloo, or raw: a blocking loop over one socket. Prints, as JSON, the seconds of a message in each
// batch as the receiver sees them.
//
// transport_bench busy-WHO BYTES MESSAGES BATCHES: both ranks compute, and between two passes each
// receives a message and sends one, as the stages of a pipeline do. Prints the seconds of processor
// time that a message takes beside the passes, both its ends together, in each batch.
//
// transport_bench urgent BYTES BULK_BYTES ROUNDS: a message behind one of bulk over the direct
// transport by TCP: the seconds from its post until it has arrived, and those of the bulk for each
// frame.
// bench/transport.py reads them.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/exec/control_client.h"
#include "trireme/exec/control_hub.h"
#include "trireme/exec/stream_socket.h"
#include "trireme/torch/gloo_transport.h"
#include "trireme/transport/direct_transport.h"
#include "trireme/transport/wire.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

// What a rank computes between two messages, and how many receives it posts ahead.
constexpr double kPassSeconds = 1e-3;
constexpr size_t kAhead = 3;

struct Bench {
  std::string who;
  bool computes = false;  // between its messages
  size_t bytes = 0;
  size_t count = 0;  // messages a batch; of `urgent`: bytes of bulk
  size_t batches = 0;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void print(const char* name, const std::vector<double>& seconds, const char* end) {
  std::printf("\"%s\": [", name);
  for (size_t i = 0; i < seconds.size(); ++i) std::printf("%s%.9f", i == 0 ? "" : ", ", seconds[i]);
  std::printf("]%s", end);
}

// As many as hide a round trip, in memory that does not grow with the size.
size_t window(const Bench& bench) { return bench.bytes < (1 << 20) ? 16 : 4; }

Result<std::unique_ptr<Transport>> make_transport(const Bench& bench, int32_t rank,
                                                  ControlClient& client) {
  if (bench.who == "gloo") return make_gloo_transport({.rank = rank, .num_ranks = 2}, client);
  TRIREME_TRY(std::unique_ptr<DirectTransport> transport,
              make_direct_transport(
                  {.rank = rank, .num_ranks = 2, .shares_memory = bench.who == "shm"}, client));
  return std::unique_ptr<Transport>(std::move(transport));
}

Status stream(const Bench& bench, int32_t rank, Transport& transport) {
  std::vector<std::vector<std::byte>> buffers(window(bench), std::vector<std::byte>(bench.bytes));
  std::deque<Ticket> tickets;
  std::vector<double> seconds;
  for (size_t batch = 0; batch < bench.batches; ++batch) {
    const Clock::time_point begin = Clock::now();
    for (size_t i = 0; i < bench.count; ++i) {
      if (tickets.size() == buffers.size()) {
        TRIREME_TRY(transport.wait(tickets.front()));
        tickets.pop_front();
      }
      const size_t slot = i % buffers.size();
      const auto tag = static_cast<int32_t>(slot);
      TRIREME_TRY(const Ticket ticket, rank == 0 ? transport.post_send(1, tag, buffers[slot])
                                                 : transport.post_receive(0, tag, buffers[slot]));
      tickets.push_back(ticket);
    }
    for (; !tickets.empty(); tickets.pop_front()) TRIREME_TRY(transport.wait(tickets.front()));
    seconds.push_back(seconds_since(begin) / static_cast<double>(bench.count));
  }
  if (rank == 0) return Status();
  std::printf("{");
  print("seconds", seconds, "}\n");
  return Status();
}

// Processor time, which neither a wait nor another process adds to.
double processor_seconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void compute() {
  const double end = processor_seconds(CLOCK_THREAD_CPUTIME_ID) + kPassSeconds;
  while (processor_seconds(CLOCK_THREAD_CPUTIME_ID) < end) {
  }
}

// Each rank is the sender of one message and the receiver of another between two passes.
Status compute_between(const Bench& bench, int32_t rank, Transport& transport) {
  std::vector<std::vector<std::byte>> sent(kAhead, std::vector<std::byte>(bench.bytes));
  std::vector<std::vector<std::byte>> received = sent;
  std::deque<Ticket> sends;
  std::deque<Ticket> receives;
  std::vector<double> seconds;
  for (size_t batch = 0; batch < bench.batches; ++batch) {
    const double begin = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
    const auto post_receive = [&](size_t i) -> Status {
      if (i >= bench.count) return Status();
      const size_t slot = i % kAhead;
      TRIREME_TRY(const Ticket ticket,
                  transport.post_receive(1 - rank, static_cast<int32_t>(slot), received[slot]));
      receives.push_back(ticket);
      return Status();
    };
    for (size_t i = 0; i < kAhead; ++i) TRIREME_TRY(post_receive(i));
    for (size_t i = 0; i < bench.count; ++i) {
      compute();
      if (sends.size() == kAhead) {
        TRIREME_TRY(transport.wait(sends.front()));
        sends.pop_front();
      }
      const size_t slot = i % kAhead;
      TRIREME_TRY(const Ticket ticket,
                  transport.post_send(1 - rank, static_cast<int32_t>(slot), sent[slot]));
      sends.push_back(ticket);
      TRIREME_TRY(transport.wait(receives.front()));
      receives.pop_front();
      TRIREME_TRY(post_receive(i + kAhead));
    }
    for (; !sends.empty(); sends.pop_front()) TRIREME_TRY(transport.wait(sends.front()));
    const double all = processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - begin;
    seconds.push_back(all / static_cast<double>(bench.count) - kPassSeconds);
  }
  if (rank == 0) return Status();
  std::printf("{");
  print("processor_seconds", seconds, "}\n");
  return Status();
}

// Both clocks are that of this host, so a message can carry when it was posted.
Status be_urgent(const Bench& bench, int32_t rank, Transport& transport) {
  std::vector<std::byte> bulk(bench.count);
  std::vector<std::byte> message(bench.bytes);
  std::vector<double> delays;
  std::vector<double> frames;
  for (size_t round = 0; round < bench.batches; ++round) {
    const Clock::time_point begin = Clock::now();
    transport.set_urgency(Urgency::kBulk);
    TRIREME_TRY(const Ticket large,
                rank == 0 ? transport.post_send(1, 0, bulk) : transport.post_receive(0, 0, bulk));
    transport.set_urgency(Urgency::kUrgent);
    Clock::time_point posted;
    // The bulk is on its way.
    if (rank == 0) ::usleep(2000);
    if (rank == 0) {
      posted = Clock::now();
      std::copy_n(reinterpret_cast<const std::byte*>(&posted), sizeof posted, message.begin());
    }
    TRIREME_TRY(const Ticket small, rank == 0 ? transport.post_send(1, 1, message)
                                              : transport.post_receive(0, 1, message));
    TRIREME_TRY(transport.wait(small));
    const Clock::time_point arrived = Clock::now();
    std::copy_n(message.begin(), sizeof posted, reinterpret_cast<std::byte*>(&posted));
    TRIREME_TRY(transport.wait(large));
    delays.push_back(std::chrono::duration<double>(arrived - posted).count());
    frames.push_back(seconds_since(begin) / static_cast<double>(bench.count / kMaxFrameData));
  }
  if (rank == 0) return Status();
  std::printf("{");
  print("delays", delays, ", ");
  print("frames", frames, "}\n");
  return Status();
}

Status be_rank(const Bench& bench, int32_t rank, const std::string& address) {
  TRIREME_TRY(const std::unique_ptr<ControlClient> client,
              ControlClient::connect({.address = address, .token = "bench", .rank = rank}));
  TRIREME_TRY(const std::unique_ptr<Transport> transport, make_transport(bench, rank, *client));
  TRIREME_TRY(bench.who == "urgent" ? be_urgent(bench, rank, *transport)
              : bench.computes      ? compute_between(bench, rank, *transport)
                                    : stream(bench, rank, *transport));
  return client->finish();
}

Status be_raw(const Bench& bench, int32_t rank, const std::string& address,
              const FileDescriptor& listener) {
  TRIREME_TRY(const SocketAddress place, parse_socket_address(address));
  FileDescriptor socket;
  if (rank == 1) {
    TRIREME_TRY(socket, connect_until(place, Clock::now() + std::chrono::seconds(10)));
  }
  while (!socket.is_open()) socket = accept_one(listener);
  std::vector<std::vector<std::byte>> buffers(window(bench), std::vector<std::byte>(bench.bytes));
  // The sockets of this program do not block; the loop is to.
  const int flags = ::fcntl(socket.get(), F_GETFL);
  ::fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK);
  std::vector<double> seconds;
  for (size_t batch = 0; batch < bench.batches; ++batch) {
    const Clock::time_point begin = Clock::now();
    for (size_t i = 0; i < bench.count; ++i) {
      std::vector<std::byte>& buffer = buffers[i % buffers.size()];
      const ssize_t moved = rank == 0
                                ? ::send(socket.get(), buffer.data(), buffer.size(), MSG_NOSIGNAL)
                                : ::recv(socket.get(), buffer.data(), buffer.size(), MSG_WAITALL);
      if (moved != static_cast<ssize_t>(buffer.size())) return Error{"the socket has ended"};
    }
    seconds.push_back(seconds_since(begin) / static_cast<double>(bench.count));
  }
  if (rank == 0) return Status();
  std::printf("{");
  print("seconds", seconds, "}\n");
  return Status();
}

int report(const Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "transport_bench: %s\n", status.error().message.c_str());
  return 1;
}

// The child is rank 1 and forked before there is a thread.
int run(const Bench& bench) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return 1;
  const pid_t child = ::fork();
  std::array<char, 64> text{};
  if (child == 0) {
    if (::read(ends[0], text.data(), text.size() - 1) <= 0) return 1;
    const std::string address = text.data();
    return report(bench.who == "raw" ? be_raw(bench, 1, address, FileDescriptor())
                                     : be_rank(bench, 1, address));
  }
  std::string address;
  FileDescriptor listener;
  std::unique_ptr<ControlHub> hub;
  if (bench.who == "raw") {
    listener = listen_on({.host = "127.0.0.1", .port = 0}).value();
    address = to_text({.host = "127.0.0.1", .port = bound_port(listener).value()});
  } else {
    hub = ControlHub::start({.watch = {.num_ranks = 2}, .token = "bench"}, [](const HubEvent&) {
          }).value();
    address = hub->address();
  }
  if (::write(ends[1], address.c_str(), address.size() + 1) < 0) return 1;
  const int own =
      report(bench.who == "raw" ? be_raw(bench, 0, address, listener) : be_rank(bench, 0, address));
  int status = 0;
  ::waitpid(child, &status, 0);
  return own != 0 || status != 0 ? 1 : 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  constexpr std::string_view kBusy = "busy-";
  std::string_view who = argv[1];
  const bool computes = who.starts_with(kBusy);
  if (computes) who.remove_prefix(kBusy.size());
  const int status = trireme::run({.who = std::string(who),
                                   .computes = computes,
                                   .bytes = std::stoul(argv[2]),
                                   .count = std::stoul(argv[3]),
                                   .batches = std::stoul(argv[4])});
  std::fflush(stdout);
  ::_exit(status);  // libtorch's destructors take their time
}
