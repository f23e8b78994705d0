#include "trireme/worker/rank_recording.h"

#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

#include "trireme/trace/timeline_files.h"

namespace trireme {
namespace {

constexpr int32_t kPartTag = 0;  // nothing else travels between two steps

std::string host_name() {
  std::array<char, 256> name = {};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

// What has the same is on one kernel, and has one monotonic clock.
std::string clock_name() {
  std::string name;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> name;
  return name;
}

Status send(std::span<const std::byte> bytes, Transport& transport) {
  TRIREME_TRY(Ticket ticket, transport.post_send(0, kPartTag, bytes));
  return transport.wait(ticket);
}

Status receive(int32_t from, std::span<std::byte> bytes, Transport& transport) {
  TRIREME_TRY(Ticket ticket, transport.post_receive(from, kPartTag, bytes));
  return transport.wait(ticket);
}

Status join_and_write(const std::vector<std::span<const std::byte>>& parts,
                      const std::vector<int64_t>& peak_bytes, const std::string& path) {
  TRIREME_TRY(Timeline timeline, join_parts(parts));
  timeline.peak_bytes = peak_bytes;
  return write_timeline(path, timeline);
}

}  // namespace

Result<std::unique_ptr<Recorder>> start_recording(const RunSetup& setup, int32_t rank,
                                                  const Schedule& schedule) {
  const std::string& path = setup.request.timeline;
  if (path.empty()) return std::unique_ptr<Recorder>();
  std::error_code ignored;
  if (rank == 0) std::filesystem::remove(path, ignored);
  // A transfer and a collective are two events, what computes is one; the inputs of the step, its
  // evaluation, and norms that only some steps exchange, come on top.
  const auto num_actions = static_cast<int64_t>(schedule.ranks[static_cast<size_t>(rank)].size());
  const int64_t num_events = (setup.request.timeline_steps + 1) * (2 * num_actions + 5);
  return Recorder::create({.path = part_path(path, rank),
                           .num_steps = static_cast<int32_t>(setup.request.timeline_steps),
                           .num_events = num_events,
                           .rank = rank,
                           .host = host_name(),
                           .clock = clock_name(),
                           .header = {.builder = schedule.builder,
                                      .num_stages = schedule.num_stages,
                                      .num_replicas = setup.plan.dp,
                                      .num_chunks = schedule.num_chunks}});
}

Result<std::string> gather_timeline(const RunSetup& setup, int32_t rank, const Recorder& recorder,
                                    Transport& transport, const std::vector<int64_t>& peak_bytes) {
  std::string fault;
  const std::string& path = setup.request.timeline;
  int64_t size = static_cast<int64_t>(recorder.part().size());
  const std::span<std::byte> size_bytes = std::as_writable_bytes(std::span(&size, 1));
  if (rank != 0) {
    TRIREME_TRY(send(size_bytes, transport));
    TRIREME_TRY(send(recorder.part(), transport));
  } else {
    std::vector<std::vector<std::byte>> received;
    for (int32_t other = 1; other < setup.num_ranks(); ++other) {
      TRIREME_TRY(receive(other, size_bytes, transport));
      received.emplace_back(static_cast<size_t>(size));
      TRIREME_TRY(receive(other, received.back(), transport));
    }
    std::vector<std::span<const std::byte>> parts = {recorder.part()};
    parts.insert(parts.end(), received.begin(), received.end());
    const Status written = join_and_write(parts, peak_bytes, path);
    if (!written.ok()) fault = while_doing("--timeline", written.error()).message;
  }
  std::error_code ignored;
  std::filesystem::remove(part_path(path, rank), ignored);
  return fault;
}

}  // namespace trireme
