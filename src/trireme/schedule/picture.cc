#include "trireme/schedule/picture.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/schedule/peers.h"
#include "trireme/schedule/verify.h"

namespace trireme {
namespace {

using enum ActionKind;

struct Kind {
  ActionKind kind;
  std::string_view name;
  std::string_view colour;  // readable in print and with any colour vision, under black text
};

constexpr std::array<Kind, 6> kKinds = {
    {{kForward, "forward", "#6baed6"},
     {kForwardKeepingInput, "forward, keeps its input", "#9ecae1"},
     {kRecompute, "recomputation", "#c7b3dd"},
     {kBackward, "backward", "#74c476"},
     {kInputGradient, "input gradients", "#a1d99b"},
     {kWeightGradient, "weight gradients", "#fdae6b"}}};

// Pixels.
constexpr double kLabelWidth = 64;
constexpr double kLanesWidth = 1120;
constexpr double kLaneHeight = 24;
constexpr double kBoxHeight = 20;
constexpr double kTop = 34;
constexpr double kMargin = 12;
constexpr double kDigitWidth = 6.4;
constexpr double kWidestUnit = 28;

// XML keeps no control characters, and a name may have any.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c < ' ' || c > '~' ? '?' : c;
    }
  }
  return result;
}

double opacity_of(int32_t chunk, int32_t num_chunks) {
  return num_chunks == 1 ? 1.0 : 1.0 - 0.65 * chunk / (num_chunks - 1);
}

class Picture {
 public:
  Picture(const Schedule& schedule, const PassCosts& costs)
      : schedule_(schedule), table_(timetable(schedule, costs)), end_(makespan(table_)) {
    const double width = static_cast<double>(std::max<int64_t>(end_, 1));
    pixels_per_unit_ =
        std::min(kLanesWidth / width, kWidestUnit * static_cast<double>(unit(costs)));
  }

  std::string text() {
    draw_title();
    for (size_t rank = 0; rank < table_.size(); ++rank) draw_lane(rank);
    const double bottom = kTop + kLaneHeight * static_cast<double>(table_.size());
    draw_axis(bottom);
    draw_legend(bottom + 44);
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
        "height=\"{1}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{2}</svg>\n",
        kMargin + kLabelWidth + kLanesWidth + kMargin, bottom + 60, elements_);
  }

 private:
  // Pixels a unit where the shortest pass is as wide as boxes get.
  static double unit(const PassCosts& costs) {
    int64_t least = 0;
    for (const int64_t cost : {costs.forward, costs.input_gradient, costs.weight_gradient}) {
      if (cost > 0 && (least == 0 || cost < least)) least = cost;
    }
    return least == 0 ? 1.0 : 1.0 / static_cast<double>(least);
  }
  [[nodiscard]] double x_of(int64_t time) const {
    return kMargin + kLabelWidth + static_cast<double>(time) * pixels_per_unit_;
  }

  void draw_title() {
    int64_t busy = 0;
    for (const std::vector<TimedAction>& lane : table_) {
      for (const TimedAction& timed : lane) busy += timed.end - timed.begin;
    }
    const double all = static_cast<double>(end_) * static_cast<double>(table_.size());
    elements_ += fmt::format(
        "<text x=\"{}\" y=\"20\" font-size=\"13\"><tspan font-weight=\"bold\">{}</tspan>: {} "
        "stages{}, {} micro-batches; {} units, {:.1f} % idle; in flight at most {}</text>\n",
        kMargin, escaped(schedule_.builder), schedule_.num_stages,
        schedule_.num_chunks == 1 ? "" : fmt::format(" of {} chunks", schedule_.num_chunks),
        fmt::join(schedule_.num_micro_batches, " + "), end_,
        all > 0 ? 100 * (1 - static_cast<double>(busy) / all) : 0.0,
        std::ranges::max(peak_in_flight(schedule_)));
  }

  void draw_lane(size_t rank) {
    const double y = kTop + kLaneHeight * static_cast<double>(rank);
    elements_ += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">rank {}</text>\n"
        "<rect x=\"{}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"#f2f2f2\"/>\n",
        kMargin + kLabelWidth - 8, y + 14, rank, x_of(0), y, x_of(end_) - x_of(0), kBoxHeight);
    for (const TimedAction& timed : table_[rank]) {
      const auto kind = std::ranges::find(kKinds, timed.action.kind, &Kind::kind);
      used_.insert(kind->kind);
      const double width = x_of(timed.end) - x_of(timed.begin);
      elements_ += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" "
          "fill-opacity=\"{:.2f}\" stroke=\"#444\" stroke-width=\"0.5\"><title>{} from {} to "
          "{}</title></rect>\n",
          x_of(timed.begin), y, width, kBoxHeight, kind->colour,
          opacity_of(timed.action.chunk, schedule_.num_chunks), to_text(timed.action), timed.begin,
          timed.end);
      const std::string number = fmt::format("{}", timed.action.index);
      if (width < kDigitWidth * static_cast<double>(number.size()) + 2) continue;
      elements_ += fmt::format("<text x=\"{:.2f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                               x_of(timed.begin) + width / 2, y + 14, number);
    }
  }

  // About ten ticks at 1, 2 or 5 times a power of ten.
  void draw_axis(double y) {
    int64_t power = 1;
    while (end_ / power >= 100) power *= 10;
    const int64_t num_powers = end_ / power;
    const int64_t step = power * (num_powers > 50   ? 10
                                  : num_powers > 20 ? 5
                                  : num_powers > 10 ? 2
                                                    : 1);
    for (int64_t time = 0; time <= end_; time += step) {
      elements_ += fmt::format(
          "<line x1=\"{0:.2f}\" y1=\"{1}\" x2=\"{0:.2f}\" y2=\"{2}\" stroke=\"#444\"/>"
          "<text x=\"{0:.2f}\" y=\"{3}\" text-anchor=\"middle\" fill=\"#444\">{4}</text>\n",
          x_of(time), y, y + 4, y + 16, time);
    }
  }

  void draw_legend(double y) {
    double x = kMargin + kLabelWidth;
    const auto entry = [&](std::string_view colour, double opacity, std::string_view name) {
      elements_ += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"14\" fill=\"{}\" fill-opacity=\"{:.2f}\" "
          "stroke=\"#444\" stroke-width=\"0.5\"/><text x=\"{}\" y=\"{}\">{}</text>\n",
          x, y - 11, colour, opacity, x + 19, y, name);
      x += 40 + kDigitWidth * static_cast<double>(name.size());
    };
    for (const Kind& kind : kKinds) {
      if (used_.contains(kind.kind)) entry(kind.colour, 1.0, kind.name);
    }
    entry("#f2f2f2", 1.0, "idle");
    if (schedule_.num_chunks == 1) return;
    for (int32_t chunk = 0; chunk < schedule_.num_chunks; ++chunk) {
      entry("#444444", opacity_of(chunk, schedule_.num_chunks), fmt::format("chunk {}", chunk));
    }
  }

  const Schedule& schedule_;
  std::vector<std::vector<TimedAction>> table_;
  int64_t end_;
  double pixels_per_unit_ = 1;
  std::set<ActionKind> used_;
  std::string elements_;
};

}  // namespace

std::string svg_picture(const Schedule& schedule, const PassCosts& costs) {
  return Picture(schedule, costs).text();
}

}  // namespace trireme
