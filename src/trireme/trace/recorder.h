// Recorder: keeps the last events of one rank in memory that outlives its process.
//
//   Recorder recorder = create({.path = "run.timeline.rank0", ...})
//   recorder.set_step(12);
//   const int64_t place = recorder.begin(EventClass::kForward, {ActionKind::kForward, 3});
//   ...
//   recorder.end(place);
//
// The events lie in a ring of fixed size in a mapped file, its part of the timeline: nothing is
// allocated or written while a step runs, and when the process is killed the kernel keeps what is
// in the file. An event is in the ring from its begin on, so that a part says what its rank was
// doing. join_parts() (timeline_files.h) makes a Timeline of
// the parts of all ranks.
//
// One thread records. Ends of events that the ring has lost are ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trireme/base/result.h"
#include "trireme/trace/timeline.h"

namespace trireme {

struct RecorderOptions {
  std::string path;        // of the part; it is overwritten
  int32_t num_steps = 1;   // that the timeline is to have at most
  int64_t num_events = 0;  // that the ring holds, at least 2
  int32_t rank = 0;
  std::string host;
  std::string clock;  // ranks with the same one share a clock
  // Of the run; its events stay empty.
  Timeline header;
};

class Recorder {
 public:
  // Error when the file cannot be made or its folder is full.
  static Result<std::unique_ptr<Recorder>> create(const RecorderOptions& options);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Of the events to come.
  void set_step(int32_t step) { step_ = step; }
  // Now. An event of a batch of the step before or of the next is an event of that step. Returns
  // what end() takes.
  int64_t begin(EventClass event_class, const Action& action, int32_t peer = -1, int64_t bytes = 0);
  void end(int64_t place);

  [[nodiscard]] std::span<const std::byte> part() const;

 private:
  Recorder(std::byte* bytes, size_t size) : bytes_(bytes), size_(size) {}
  void measure_cost();

  std::byte* bytes_;
  size_t size_;
  int32_t step_ = 0;
};

}  // namespace trireme
