// Progress: turns what rank 0 publishes into what a person sees of a running training.
//
//   {"event":"step","step":12,"steps":200,"loss":3.214,"items":4096,"seconds":0.4,"lr":1e-3}
//   {"event":"eval","step":12,"eval_loss":3.1}
//   {"event":"note","text":"saved out.safetensors"}
//
// become
//
//   step 12/200  loss 3.214  items/s 10.2k  eta 1:15
//   step 12  eval loss 3.100
//   saved out.safetensors
//
// On a terminal the step is one line that is rewritten in place; elsewhere it is a plain line for
// the first step, the last one, and in between ever more rarely (every 2 s at first, every minute
// in the end). Absent or foreign keys leave their part out; other lines are ignored. Rate and time
// left are means over the last steps.
//
// Nothing is written here: every method returns the text to write. Time is an argument.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace trireme {

enum class ProgressStyle { kTerminal, kLines, kQuiet };

class Progress {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Lines on a terminal are cut to its width, so that they can be rewritten.
  Progress(ProgressStyle style, int32_t num_columns) : style_(style), num_columns_(num_columns) {}

  [[nodiscard]] std::string show(std::string_view published, TimePoint now);
  // Around other output on the same terminal: takes the line away, and puts it back.
  [[nodiscard]] std::string hide() const;
  [[nodiscard]] std::string unhide() const;
  // The last step, if it has not been shown, and the end of its line.
  [[nodiscard]] std::string end();

 private:
  struct StepTime {
    double items = 0;
    double seconds = 0;
  };

  [[nodiscard]] std::string show_line(const std::string& line) const;
  [[nodiscard]] std::string show_step(TimePoint now);
  [[nodiscard]] bool is_due(TimePoint now) const;

  ProgressStyle style_;
  int32_t num_columns_;
  std::deque<StepTime> recent_;
  std::string step_line_;       // the newest
  bool step_is_shown_ = false;  // step_line_ has been written
  bool is_last_step_ = false;
  bool has_shown_ = false;
  TimePoint first_shown_;
  TimePoint last_shown_;
};

// "532", "10.2k", "1.25M": three significant digits.
[[nodiscard]] std::string rate_text(double per_second);
// "0:31", "12:05", "3:00:07"; days count as hours.
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace trireme
