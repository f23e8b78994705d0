#include "trireme/trace/report_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/base/json_text.h"

namespace trireme {
namespace {

constexpr size_t kNumRanksShown = 64;
constexpr size_t kNumPiecesShown = 10;

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

std::string counted(int64_t count, std::string_view name) {
  return fmt::format("{} {}{}", count, name, count == 1 ? "" : "s");
}

// The longest pieces first.
std::vector<PathPiece> longest(const std::vector<PathPiece>& path) {
  std::vector<PathPiece> pieces = path;
  const auto length = [](const PathPiece& piece) { return piece.begin - piece.end; };
  std::ranges::stable_sort(pieces, {}, length);
  pieces.resize(std::min(pieces.size(), kNumPiecesShown));
  return pieces;
}

std::string piece_text(const PathPiece& piece) {
  if (piece.slice == Slice::kEvaluation) return fmt::format("rank {} evaluates", piece.rank);
  if (piece.slice == Slice::kIdle) return fmt::format("rank {} idle", piece.rank);
  if (piece.slice == Slice::kTransfer && is_collective(piece.action.kind)) {
    return fmt::format("{} once rank {} has come", to_text(piece.action), piece.rank);
  }
  if (piece.slice == Slice::kTransfer && piece.peer >= 0) {
    return fmt::format("{} from rank {} to rank {}", to_text(piece.action), piece.rank, piece.peer);
  }
  const std::string_view word = piece.slice == Slice::kPeer    ? "waits for "
                                : piece.slice == Slice::kInput ? "input of "
                                                               : "";
  return fmt::format("rank {} {}{}", piece.rank, word, to_text(piece.action));
}

const LinkStatistics* busiest(const TimelineStatistics& statistics) {
  const auto found = std::ranges::max_element(statistics.links, {}, &LinkStatistics::busy);
  return found == statistics.links.end() ? nullptr : &*found;
}

std::string slice_table(const TimelineStatistics& statistics) {
  std::string text = fmt::format("{:>6}", "rank");
  for (const std::string_view name : kSliceNames) text += fmt::format("{:>11}", name);
  text += "\n";
  const auto row = [&](std::string_view name, const std::array<double, kNumSlices>& slices) {
    text += fmt::format("{:>6}", name);
    for (const double slice : slices) {
      text += fmt::format("{:>10.1f}%", 100 * share(slice, static_cast<double>(statistics.wall)));
    }
    text += "\n";
  };
  std::array<double, kNumSlices> mean = {};
  for (size_t rank = 0; rank < statistics.ranks.size(); ++rank) {
    std::array<double, kNumSlices> own = {};
    for (size_t slice = 0; slice < kNumSlices; ++slice) {
      own[slice] = static_cast<double>(statistics.ranks[rank].slices[slice]);
      mean[slice] += own[slice] / static_cast<double>(statistics.ranks.size());
    }
    if (rank < kNumRanksShown) row(fmt::format("{}", rank), own);
  }
  if (statistics.ranks.size() > kNumRanksShown) {
    text += fmt::format("   ... {} more ranks; --json has them all\n",
                        statistics.ranks.size() - kNumRanksShown);
  }
  if (statistics.ranks.size() > 1) row("mean", mean);
  return text;
}

nlohmann::ordered_json statistics_json(const Timeline& timeline,
                                       const TimelineStatistics& statistics) {
  nlohmann::ordered_json json = {{"source", timeline.source},
                                 {"schedule", timeline.builder},
                                 {"stages", timeline.num_stages},
                                 {"replicas", timeline.num_replicas},
                                 {"first_step", statistics.first_step},
                                 {"steps", statistics.num_steps},
                                 {"step_ns", statistics.step_time},
                                 {"wall_ns", statistics.wall},
                                 {"bubble_rate", statistics.bubble_rate},
                                 {"recording_share", statistics.recording_share},
                                 {"event_cost_ns", timeline.event_cost},
                                 {"dropped_events", timeline.dropped_events},
                                 {"ranks", nlohmann::ordered_json::array()},
                                 {"links", nlohmann::ordered_json::array()},
                                 {"critical_path", nlohmann::ordered_json::array()}};
  for (const RankStatistics& rank : statistics.ranks) {
    nlohmann::ordered_json slices;
    for (size_t i = 0; i < kNumSlices; ++i) {
      slices[fmt::format("{}_ns", kSliceNames[i])] = rank.slices[i];
    }
    json["ranks"].push_back(slices);
  }
  for (const LinkStatistics& link : statistics.links) {
    json["links"].push_back({{"name", link.name},
                             {"transfers", link.num_transfers},
                             {"bytes", link.bytes},
                             {"busy_ns", link.busy},
                             {"hidden_ns", link.hidden},
                             {"exposed_ns", link.exposed}});
  }
  for (const PathPiece& piece : longest(statistics.critical_path)) {
    json["critical_path"].push_back({{"what", piece_text(piece)},
                                     {"step", piece.step},
                                     {"begin_ns", piece.begin},
                                     {"length_ns", piece.end - piece.begin}});
  }
  if (!timeline.peak_bytes.empty()) json["peak_bytes"] = timeline.peak_bytes;
  return json;
}

}  // namespace

Comparison compare(const TimelineStatistics& measured, const TimelineStatistics& predicted) {
  TRIREME_CHECK(measured.ranks.size() == predicted.ranks.size(), "timelines of as many ranks");
  Comparison comparison{.predicted_step = predicted.step_time, .measured_step = measured.step_time};
  comparison.step_error = share(static_cast<double>(predicted.step_time - measured.step_time),
                                static_cast<double>(measured.step_time));
  const auto fill = [](const TimelineStatistics& statistics,
                       std::array<double, kNumSlices>& slices) {
    const double parts = static_cast<double>(statistics.ranks.size()) *
                         std::max(1.0, static_cast<double>(statistics.num_steps));
    for (const RankStatistics& rank : statistics.ranks) {
      for (size_t i = 0; i < kNumSlices; ++i) {
        if (i == static_cast<size_t>(Slice::kEvaluation)) continue;
        slices[i] += static_cast<double>(rank.slices[i]) / parts;
      }
    }
  };
  fill(measured, comparison.measured_slices);
  fill(predicted, comparison.predicted_slices);
  return comparison;
}

std::string time_text(double nanoseconds) {
  struct Unit {
    double size;
    std::string_view name;
  };
  for (const auto& [size, name] : {Unit{1e9, "s"}, Unit{1e6, "ms"}, Unit{1e3, "us"}}) {
    if (std::abs(nanoseconds) >= size) return fmt::format("{:.4g} {}", nanoseconds / size, name);
  }
  return fmt::format("{:.4g} ns", nanoseconds);
}

std::string report_table(const Timeline& timeline, const Timeline* prediction) {
  const TimelineStatistics statistics = statistics_of(timeline);
  const auto time = [](SimTime t) { return time_text(static_cast<double>(t)); };
  const auto percent = [](double part) { return fmt::format("{:.1f}%", 100 * part); };
  std::string text =
      fmt::format("{} {}, {} x {}: {} from step {} in {}, {} a step, bubble rate {}\n\n",
                  timeline.source, timeline.builder, counted(timeline.num_stages, "stage"),
                  counted(timeline.num_replicas, "replica"), counted(statistics.num_steps, "step"),
                  statistics.first_step, time(statistics.wall), time(statistics.step_time),
                  percent(statistics.bubble_rate));
  text += slice_table(statistics);
  if (const LinkStatistics* link = busiest(statistics); link != nullptr) {
    text += fmt::format(
        "\nbusiest link {}: {} of the time, {} transfers, {} bytes, {} exposed, {} hidden\n",
        link->name,
        percent(share(static_cast<double>(link->busy), static_cast<double>(statistics.wall))),
        link->num_transfers, link->bytes, time(link->exposed), time(link->hidden));
  }
  if (!timeline.peak_bytes.empty()) {
    const auto most = std::ranges::max_element(timeline.peak_bytes);
    text += fmt::format("most memory: {} bytes on rank {}\n", *most,
                        most - timeline.peak_bytes.begin());
  }
  text +=
      fmt::format("\ncritical path of {} pieces, the longest:\n", statistics.critical_path.size());
  for (const PathPiece& piece : longest(statistics.critical_path)) {
    const bool is_of_a_step = piece.slice != Slice::kIdle && piece.slice != Slice::kEvaluation;
    text += fmt::format("{:>11}  {}{}\n", time(piece.end - piece.begin), piece_text(piece),
                        is_of_a_step ? fmt::format(", step {}", piece.step) : "");
  }
  if (timeline.event_cost > 0) {
    text += fmt::format("\nrecording took {:.3f}% of the time, {} ns an event\n",
                        100 * statistics.recording_share, timeline.event_cost);
  }
  if (prediction != nullptr) {
    const Comparison both = compare(statistics, statistics_of(*prediction));
    text += fmt::format("\npredicted step {}, found {}: {:+.1f}%\n\n{:>11}{:>13}{:>13}{:>10}\n",
                        time(both.predicted_step), time(both.measured_step), 100 * both.step_error,
                        "a step", "predicted", "found", "error");
    for (size_t i = 0; i < kNumSlices; ++i) {
      const double predicted = both.predicted_slices[i];
      const double found = both.measured_slices[i];
      if (predicted == 0 && found == 0) continue;
      text += fmt::format("{:>11}{:>13}{:>13}{:>10}\n", kSliceNames[i], time_text(predicted),
                          time_text(found),
                          found == 0 ? "" : fmt::format("{:+.1f}%", 100 * (predicted / found - 1)));
    }
  }
  const std::vector<std::string> doings = last_doings(timeline);
  if (!doings.empty()) text += "\nthe run did not end by itself:\n";
  for (const std::string& line : doings) text += "  " + line + "\n";
  return text;
}

std::string report_json(const Timeline& timeline, const Timeline* prediction) {
  const TimelineStatistics statistics = statistics_of(timeline);
  nlohmann::ordered_json json = statistics_json(timeline, statistics);
  json["not_over"] = last_doings(timeline);
  if (prediction != nullptr) {
    const TimelineStatistics predicted = statistics_of(*prediction);
    const Comparison both = compare(statistics, predicted);
    json["step_error"] = both.step_error;
    for (size_t i = 0; i < kNumSlices; ++i) {
      json["slices"][std::string(kSliceNames[i])] = {{"predicted_ns", both.predicted_slices[i]},
                                                     {"found_ns", both.measured_slices[i]}};
    }
    json["prediction"] = statistics_json(*prediction, predicted);
  }
  return json_text(json, 1) + "\n";
}

}  // namespace trireme
