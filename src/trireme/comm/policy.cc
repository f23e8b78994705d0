#include "trireme/comm/policy.h"

namespace trireme {

int64_t bytes_of(const Unit& unit) {
  int64_t bytes = 0;
  for (const UnitPart& part : unit.parts) bytes += part.bytes;
  return bytes;
}

}  // namespace trireme
