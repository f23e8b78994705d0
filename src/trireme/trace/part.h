// The bytes of a part of a timeline: what a Recorder writes and join_parts() reads. A header, then
// a ring of events: event n lies at place n % num_places. In the byte order of the machine, and for
// programs of one build: parts are joined when a run ends.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "trireme/trace/timeline.h"

namespace trireme {

inline constexpr std::array<char, 8> kPartMagic = {'t', 'r', 'i', 'p', 'a', 'r', 't', '2'};

struct PartHeader {
  std::array<char, 8> magic = kPartMagic;
  int64_t num_places = 0;
  int64_t num_begun = 0;  // events so far, those included that the ring has lost
  SimTime event_cost = 0;
  int32_t num_action_kinds = kNumActionKinds;  // another number: another build
  int32_t rank = 0;
  int32_t num_stages = 1;
  int32_t num_replicas = 1;
  int32_t num_chunks = 1;
  int32_t num_steps = 1;              // that the timeline is to have, the last ones
  std::array<char, 64> builder = {};  // ends in a zero
  std::array<char, 256> host = {};    // ends in a zero
  std::array<char, 64> clock = {};    // ends in a zero
};
static_assert(std::is_trivially_copyable_v<PartHeader> && sizeof(PartHeader) % 8 == 0);

struct PartEvent {
  SimTime begin = 0;
  SimTime end = 0;
  int64_t bytes = 0;
  int32_t step = 0;
  int32_t peer = 0;
  int32_t index = 0;
  uint8_t event_class = 0;
  uint8_t kind = 0;
  uint16_t chunk = 0;
};
static_assert(std::is_trivially_copyable_v<PartEvent> && sizeof(PartEvent) == 40);

}  // namespace trireme
