#include "trireme/exec/run_watch.h"

#include <algorithm>
#include <utility>

#include <sys/wait.h>

#include <fmt/format.h>

#include "trireme/base/check.h"

namespace trireme {
namespace {

constexpr std::chrono::seconds kNoticePeriod(30);

// "30 s", "1.5 s", "0.25 s".
std::string seconds_text(std::chrono::milliseconds duration) {
  return fmt::format("{:g} s", std::chrono::duration<double>(duration).count());
}

}  // namespace

RunWatch::RunWatch(RunWatchOptions options, TimePoint now)
    : options_(options),
      start_(now),
      next_notice_(options.notice_after.count() > 0 ? now + options.notice_after
                                                    : TimePoint::max()),
      ranks_(static_cast<size_t>(options.num_ranks)) {}

RunWatch::RankRecord& RunWatch::record(int32_t rank) {
  TRIREME_CHECK(rank >= 0 && static_cast<size_t>(rank) < ranks_.size(), "no such rank");
  return ranks_[static_cast<size_t>(rank)];
}

Status RunWatch::admit(int64_t rank, TimePoint now) {
  if (rank < 0 || static_cast<size_t>(rank) >= ranks_.size()) {
    return Error{fmt::format("the run has {} ranks and no rank {}", ranks_.size(), rank)};
  }
  RankRecord& entry = record(static_cast<int32_t>(rank));
  if (entry.state != RankState::kAbsent) {
    return Error{fmt::format("rank {} is or was connected already", rank)};
  }
  if (phase_ != Phase::kRunning) return Error{"the run is ending because another rank failed"};
  entry.state = RankState::kConnected;
  entry.is_connected = true;
  entry.last_heard = now;
  return Status();
}

void RunWatch::is_on(int32_t rank, std::string host) { record(rank).host = std::move(host); }

std::string RunWatch::host_to_name(int32_t rank) const {
  const std::string& host = ranks_[static_cast<size_t>(rank)].host;
  const bool is_one_of_several = std::any_of(
      ranks_.begin(), ranks_.end(),
      [&](const RankRecord& other) { return !other.host.empty() && other.host != host; });
  return is_one_of_several ? host : "";
}

void RunWatch::heard(int32_t rank, TimePoint now) { record(rank).last_heard = now; }

void RunWatch::finished(int32_t rank) {
  RankRecord& entry = record(rank);
  if (entry.state != RankState::kConnected) return;
  entry.state = RankState::kFinished;
  has_all_finished_ = std::all_of(ranks_.begin(), ranks_.end(), [](const RankRecord& each) {
    return each.state == RankState::kFinished;
  });
}

void RunWatch::failed(int32_t rank, std::string message, FailureOrigin origin, TimePoint now) {
  RankRecord& entry = record(rank);
  if (entry.state != RankState::kConnected) return;
  entry.state = RankState::kFailed;
  const bool is_certain = origin == FailureOrigin::kOwn;
  const bool is_first = phase_ == Phase::kRunning;
  if (!is_first && !(phase_ == Phase::kSettling && is_certain && !cause_is_certain_)) return;
  failure_ = {.rank = rank,
              .kind = FailureKind::kFailed,
              .reason = std::move(message),
              .host = {},
              .survivors = {}};
  cause_is_certain_ = is_certain;
  if (is_first) {
    phase_ = Phase::kSettling;
    phase_end_ = is_certain ? now : now + options_.settle_time;
  } else {
    phase_end_ = now;
  }
}

void RunWatch::answered(int32_t rank, std::string where) { record(rank).where = std::move(where); }

void RunWatch::connection_ended(int32_t rank, TimePoint now) {
  RankRecord& entry = record(rank);
  entry.is_connected = false;
  if (entry.state == RankState::kConnected) {
    lose(rank, FailureKind::kDisconnected, "its control connection ended");
  }
  tick(now);
}

void RunWatch::exited(int32_t rank, int wait_status, TimePoint now) {
  RankRecord& entry = record(rank);
  entry.is_connected = false;
  const bool is_clean = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
  const bool is_cause = phase_ != Phase::kRunning && failure_.rank == rank;
  if (is_cause && failure_.kind == FailureKind::kDisconnected) {
    failure_.kind = FailureKind::kDied;
    failure_.reason = describe_unfinished_exit(wait_status);
  } else if (entry.state == RankState::kFinished && !is_clean) {
    lose(rank, FailureKind::kDied, describe_wait_status(wait_status) + " after it had finished");
  } else if (entry.state == RankState::kConnected || entry.state == RankState::kAbsent) {
    lose(rank, FailureKind::kDied, describe_unfinished_exit(wait_status));
  }
  tick(now);
}

// The first loss is the cause, unless a failure is certain or the others have been told already.
void RunWatch::lose(int32_t rank, FailureKind kind, std::string reason) {
  record(rank).state = RankState::kLost;
  if (phase_ == Phase::kAsking || phase_ == Phase::kDecided || cause_is_certain_) return;
  failure_ = {.rank = rank, .kind = kind, .reason = std::move(reason), .host = {}, .survivors = {}};
  cause_is_certain_ = true;
  phase_ = Phase::kSettling;
  phase_end_ = TimePoint::min();  // nothing better can come
}

void RunWatch::excuse_silence(TimePoint now) {
  for (RankRecord& entry : ranks_) entry.last_heard = now;
  start_ = now;
}

void RunWatch::tick(TimePoint now) {
  for (size_t i = 0; i < ranks_.size() && phase_ == Phase::kRunning; ++i) {
    const RankRecord& entry = ranks_[i];
    const auto rank = static_cast<int32_t>(i);
    if (entry.state == RankState::kConnected &&
        now - entry.last_heard >= options_.silence_timeout) {
      lose(rank, FailureKind::kLost, "silent for " + seconds_text(options_.silence_timeout));
    } else if (entry.state == RankState::kAbsent && now - start_ >= options_.connect_timeout) {
      lose(rank, FailureKind::kLost,
           "did not connect within " + seconds_text(options_.connect_timeout));
    }
  }
  if (phase_ == Phase::kSettling && now >= phase_end_) begin_asking(now);
  if (phase_ == Phase::kAsking) {
    const bool is_answered = std::all_of(asked_.begin(), asked_.end(), [this](int32_t rank) {
      return record(rank).where.has_value() || !record(rank).is_connected;
    });
    if (is_answered || now >= phase_end_) decide();
  }
}

void RunWatch::begin_asking(TimePoint now) {
  phase_ = Phase::kAsking;
  phase_end_ = now + options_.where_timeout;
  failure_.host = host_to_name(failure_.rank);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto rank = static_cast<int32_t>(i);
    if (rank == failure_.rank || !ranks_[i].is_connected) continue;
    if (ranks_[i].state != RankState::kFinished) asked_.push_back(rank);
  }
  has_announcement_ = true;
}

void RunWatch::decide() {
  phase_ = Phase::kDecided;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto rank = static_cast<int32_t>(i);
    if (rank != failure_.rank) failure_.survivors.push_back(survivor(rank));
  }
  has_failure_ = true;
}

Survivor RunWatch::survivor(int32_t rank) const {
  const RankRecord& entry = ranks_[static_cast<size_t>(rank)];
  Survivor result{.rank = rank, .state = SurvivorState::kSilent, .where = {}, .host = {}};
  result.host = host_to_name(rank);
  if (entry.where.has_value()) {
    result.state = SurvivorState::kAnswered;
    result.where = *entry.where;
  } else if (entry.state == RankState::kFinished) {
    result.state = SurvivorState::kFinished;
  } else if (entry.state == RankState::kAbsent) {
    result.state = SurvivorState::kNotConnected;
  } else if (!entry.is_connected) {
    result.state = SurvivorState::kEnded;
  }
  return result;
}

TimePoint RunWatch::next_deadline() const {
  if (phase_ == Phase::kSettling || phase_ == Phase::kAsking) return phase_end_;
  TimePoint next = TimePoint::max();
  if (phase_ == Phase::kDecided) return next;
  const bool misses_a_rank = std::any_of(ranks_.begin(), ranks_.end(), [](const RankRecord& entry) {
    return entry.state == RankState::kAbsent;
  });
  if (misses_a_rank) next = next_notice_;
  for (const RankRecord& entry : ranks_) {
    if (entry.state == RankState::kConnected) {
      next = std::min(next, entry.last_heard + options_.silence_timeout);
    } else if (entry.state == RankState::kAbsent) {
      next = std::min(next, start_ + options_.connect_timeout);
    }
  }
  return next;
}

std::optional<RunWatch::Announcement> RunWatch::take_announcement() {
  if (!std::exchange(has_announcement_, false)) return std::nullopt;
  Announcement announcement{.cause = failure_, .to = asked_};
  // A rank that said so itself may live on, and would report the end of the hub as news.
  const RankRecord& cause = record(failure_.rank);
  if (cause.state == RankState::kFailed && cause.is_connected) {
    announcement.to.push_back(failure_.rank);
  }
  return announcement;
}

std::optional<RunFailure> RunWatch::take_failure() {
  if (!std::exchange(has_failure_, false)) return std::nullopt;
  return failure_;
}

std::optional<std::vector<int32_t>> RunWatch::take_absent(TimePoint now) {
  if (phase_ != Phase::kRunning || now < next_notice_) return std::nullopt;
  next_notice_ = now + kNoticePeriod;
  std::vector<int32_t> absent;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].state == RankState::kAbsent) absent.push_back(static_cast<int32_t>(i));
  }
  if (absent.empty()) return std::nullopt;
  return absent;
}

bool RunWatch::take_all_finished() { return std::exchange(has_all_finished_, false); }

}  // namespace trireme
