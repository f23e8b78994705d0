#include "trireme/trace/recorder.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <type_traits>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "trireme/base/check.h"
#include "trireme/trace/part.h"

namespace trireme {
namespace {

SimTime now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

PartHeader header_of(const RecorderOptions& options) {
  PartHeader header;
  header.num_places = options.num_events;
  header.num_steps = options.num_steps;
  header.rank = options.rank;
  header.num_stages = options.header.num_stages;
  header.num_replicas = options.header.num_replicas;
  header.num_chunks = options.header.num_chunks;
  options.header.builder.copy(header.builder.data(), header.builder.size() - 1);
  options.host.copy(header.host.data(), header.host.size() - 1);
  options.clock.copy(header.clock.data(), header.clock.size() - 1);
  return header;
}

}  // namespace

Result<std::unique_ptr<Recorder>> Recorder::create(const RecorderOptions& options) {
  TRIREME_CHECK(options.num_events >= 2, "a ring has room for an event and the next");
  const size_t size =
      sizeof(PartHeader) + static_cast<size_t>(options.num_events) * sizeof(PartEvent);
  const auto refuse = [&](int error) {
    return Error{fmt::format("cannot make {}, a file of {} bytes for the timeline: {}",
                             options.path, size, std::strerror(error))};
  };
  const int file = ::open(options.path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return refuse(errno);
  // A page without a place on the disk would end the process when it is written.
  const int full = ::posix_fallocate(file, 0, static_cast<off_t>(size));
  void* mapped =
      full != 0 ? MAP_FAILED
                : ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  const int error = full != 0 ? full : errno;
  ::close(file);
  if (mapped == MAP_FAILED) return refuse(error);
  std::unique_ptr<Recorder> recorder(new Recorder(static_cast<std::byte*>(mapped), size));
  const PartHeader header = header_of(options);
  std::memcpy(recorder->bytes_, &header, sizeof header);
  recorder->measure_cost();
  return recorder;
}

Recorder::~Recorder() { ::munmap(bytes_, size_); }

int64_t Recorder::begin(EventClass event_class, const Action& action, int32_t peer, int64_t bytes) {
  auto& header = *reinterpret_cast<PartHeader*>(bytes_);
  const int64_t place = header.num_begun;
  PartEvent& event =
      reinterpret_cast<PartEvent*>(bytes_ + sizeof(PartHeader))[place % header.num_places];
  event = {.begin = now(),
           .end = kNotOver,
           .bytes = bytes,
           .step = step_ + action.batch,
           .peer = peer,
           .index = action.index,
           .event_class = static_cast<uint8_t>(event_class),
           .kind = static_cast<uint8_t>(action.kind),
           .chunk = static_cast<uint16_t>(action.chunk)};
  // Publishes the event: whoever reads the file of a killed process sees it whole or not at all.
  std::atomic_ref(header.num_begun).store(place + 1, std::memory_order_release);
  return place;
}

void Recorder::end(int64_t place) {
  const auto& header = *reinterpret_cast<const PartHeader*>(bytes_);
  if (place < header.num_begun - header.num_places) return;
  reinterpret_cast<PartEvent*>(bytes_ + sizeof(PartHeader))[place % header.num_places].end = now();
}

std::span<const std::byte> Recorder::part() const { return {bytes_, size_}; }

void Recorder::measure_cost() {
  constexpr int kNumEvents = 256;
  auto& header = *reinterpret_cast<PartHeader*>(bytes_);
  const SimTime start = now();
  for (int i = 0; i < kNumEvents; ++i) end(begin(EventClass::kForward, Action{}));
  header.event_cost = (now() - start + kNumEvents - 1) / kNumEvents;
  header.num_begun = 0;
}

}  // namespace trireme
