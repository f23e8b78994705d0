// What anybody can send to the control port, and what a rank that is admitted can ask of the store.
// The first byte says into what pieces the network cuts the rest.

#include <algorithm>

#include "trireme/exec/control_protocol.h"
#include "trireme/exec/control_store.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = data[0] == 0 ? size : data[0];
  std::string_view bytes = fuzz::text_of(data + 1, size - 1);
  FrameReader reader(kMaxHelloBytes);
  ControlStore store;
  while (!bytes.empty()) {
    reader.append(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (true) {
      const auto next = reader.next();
      if (!fuzz::is_accepted(next)) return 0;
      if (!next.value().has_value()) break;
      const ControlMessage& message = *next.value();
      FrameReader again(kMaxFrameBytes);
      again.append(encode_frame(message));
      TRIREME_CHECK(again.next().value() == message, "a frame does not survive");
      if (!ControlStore::serves(message.kind)) continue;
      for (const StoreAnswer& answer : store.serve(1, message)) {
        TRIREME_CHECK(answer.reply.kind == MessageKind::kReply ||
                          answer.reply.kind == MessageKind::kReplyError,
                      "an answer is none");
      }
    }
  }
  return 0;
}
