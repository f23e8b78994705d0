#include "trireme/sim/agenda.h"

#include "trireme/trace/timeline.h"

namespace trireme {

void Agenda::add(const Entry& entry) {
  is_too_long_ = is_too_long_ || entry.time > kMaxTime;
  entries_.push({entry, order_++});
}

void Agenda::start_flow(SimTime now, const std::vector<LinkUse>& path, int64_t bytes,
                        const Entry& end, int32_t priority) {
  if (free_flows_.empty()) {
    free_flows_.push_back(static_cast<int32_t>(ends_.size()));
    ends_.emplace_back();
  }
  const int32_t flow = free_flows_.back();
  free_flows_.pop_back();
  ends_[flow] = end;
  network_.start(now, flow, path, static_cast<double>(bytes), priority);
}

std::optional<Agenda::Entry> Agenda::take() {
  if (is_too_long_) return std::nullopt;
  const auto flow = network_.next();
  if (flow.has_value() && (entries_.empty() || flow->time <= entries_.top().entry.time)) {
    if (flow->time > kMaxTime) return std::nullopt;
    const FluidNetwork::Completion completion = network_.pop();
    free_flows_.push_back(completion.flow);
    Entry end = ends_[completion.flow];
    end.time = completion.time;
    ++num_taken_;
    return end;
  }
  if (entries_.empty()) return std::nullopt;
  const Entry entry = entries_.top().entry;
  entries_.pop();
  ++num_taken_;
  return entry;
}

}  // namespace trireme
