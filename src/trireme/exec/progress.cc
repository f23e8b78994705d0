#include "trireme/exec/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace trireme {
namespace {

using nlohmann::json;

constexpr size_t kNumRecentSteps = 20;
constexpr std::chrono::milliseconds kRedrawPeriod(100);  // faster than anyone reads
constexpr std::chrono::seconds kShortestPause(2);
constexpr std::chrono::seconds kLongestPause(60);
// A plain line a 1/50 of the time so far: some hundreds of lines for a run of any length.
constexpr int kPauseShare = 50;
constexpr const char* kClearLine = "\r\x1b[K";

std::optional<double> number(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string step_text(const json& event) {
  const std::optional<double> step = number(event, "step");
  const std::optional<double> steps = number(event, "steps");
  if (!step.has_value()) return "";
  return steps.has_value() ? fmt::format("step {:.0f}/{:.0f}", *step, *steps)
                           : fmt::format("step {:.0f}", *step);
}

// Four significant digits, trailing zeros too: digits that come and go make a line jump.
std::string loss_text(double loss) {
  std::string text = fmt::format("{:#.4g}", loss);
  if (text.back() == '.') text.pop_back();
  return text;
}

// One line of a published text: a control character would move the cursor.
std::string printable(std::string line) {
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return line;
}

}  // namespace

std::string rate_text(double per_second) {
  constexpr std::array<const char*, 5> kUnits = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  // 999.5 would be written 1e+03.
  while (per_second >= 999.5 && unit + 1 < kUnits.size()) {
    per_second /= 1000;
    ++unit;
  }
  const int num_decimals = per_second >= 99.95 ? 0 : per_second >= 9.995 ? 1 : 2;
  std::string digits = fmt::format("{:.{}f}", per_second, num_decimals);
  if (digits.find('.') != std::string::npos) {
    digits.erase(digits.find_last_not_of('0') + 1);
    if (digits.back() == '.') digits.pop_back();
  }
  return digits + kUnits[unit];
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e12)));
  const int64_t hours = whole / 3600;
  const int64_t minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string Progress::show(std::string_view published, TimePoint now) {
  if (style_ == ProgressStyle::kQuiet) return "";
  const json event = json::parse(published, nullptr, false);
  if (!event.is_object()) return "";
  const std::string kind = text(event, "event");
  if (kind == "note") return show_line(printable(text(event, "text")));
  const std::string step = step_text(event);
  if (kind == "eval") {
    const std::optional<double> loss = number(event, "eval_loss");
    if (!loss.has_value()) return "";
    return show_line(
        fmt::format("{}{}eval loss {}", step, step.empty() ? "" : "  ", loss_text(*loss)));
  }
  if (kind != "step" || step.empty()) return "";

  step_line_ = step;
  if (const auto loss = number(event, "loss")) step_line_ += "  loss " + loss_text(*loss);
  if (const auto seconds = number(event, "seconds")) {
    recent_.push_back({.items = number(event, "items").value_or(0), .seconds = *seconds});
    if (recent_.size() > kNumRecentSteps) recent_.pop_front();
  }
  StepTime total;
  for (const StepTime& each : recent_) {
    total.items += each.items;
    total.seconds += each.seconds;
  }
  if (total.items > 0 && total.seconds > 0) {
    step_line_ += "  items/s " + rate_text(total.items / total.seconds);
  }
  const double left = number(event, "steps").value_or(0) - *number(event, "step");
  is_last_step_ = number(event, "steps").has_value() && left <= 0;
  if (left > 0 && total.seconds > 0) {
    const double seconds_a_step = total.seconds / static_cast<double>(recent_.size());
    step_line_ += "  eta " + duration_text(left * seconds_a_step);
  }
  step_is_shown_ = false;
  return show_step(now);
}

bool Progress::is_due(TimePoint now) const {
  if (!has_shown_ || is_last_step_) return true;
  if (style_ == ProgressStyle::kTerminal) return now - last_shown_ >= kRedrawPeriod;
  const auto share = (last_shown_ - first_shown_) / kPauseShare;
  const auto pause = std::clamp<TimePoint::duration>(share, kShortestPause, kLongestPause);
  return now - last_shown_ >= pause;
}

std::string Progress::show_step(TimePoint now) {
  if (!is_due(now)) return "";
  if (!has_shown_) first_shown_ = now;
  has_shown_ = true;
  last_shown_ = now;
  step_is_shown_ = true;
  return style_ == ProgressStyle::kTerminal ? hide() + unhide() : step_line_ + "\n";
}

// A line that stays, above the one that is rewritten.
std::string Progress::show_line(const std::string& line) const {
  return hide() + line + "\n" + unhide();
}

std::string Progress::hide() const {
  return style_ == ProgressStyle::kTerminal && has_shown_ ? kClearLine : "";
}

std::string Progress::unhide() const {
  if (style_ != ProgressStyle::kTerminal || !has_shown_) return "";
  // The last column stays free: some terminals wrap when it is written.
  return step_line_.substr(0, static_cast<size_t>(std::max(num_columns_ - 1, 10)));
}

std::string Progress::end() {
  std::string text;
  if (style_ == ProgressStyle::kTerminal && has_shown_) text = hide() + unhide() + "\n";
  if (style_ == ProgressStyle::kLines && !step_line_.empty() && !step_is_shown_) {
    text = step_line_ + "\n";
  }
  has_shown_ = false;
  step_line_.clear();
  return text;
}

}  // namespace trireme
