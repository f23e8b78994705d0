// ControlStore: the key-value store through which the ranks of a run find each other.
//
// A plain value without threads or sockets: a request goes in, answers come out. A kGet or kWait
// whose keys are not all there stays until a later request makes them so; its answer then comes
// out together with that request's. The semantics are those that c10d::Store promises: add()
// counts from 0 and stores decimal text; compare_set() stores `desired` when the value equals
// `expected`, or when the key is absent and `expected` is empty, and answers what is there now
// (`expected` when the key is absent).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/exec/control_protocol.h"

namespace trireme {

struct StoreAnswer {
  int64_t asker = 0;
  ControlMessage reply;
};

class ControlStore {
 public:
  // Whether this kind is for the store.
  [[nodiscard]] static bool serves(MessageKind kind);

  // `asker` names the connection that gets the answer. REQUIRES: serves(request.kind).
  [[nodiscard]] std::vector<StoreAnswer> serve(int64_t asker, const ControlMessage& request);
  // Drops what the asker waits for: it is gone.
  void forget(int64_t asker);

  [[nodiscard]] size_t num_waiting() const { return waiting_.size(); }

 private:
  struct Waiting {
    int64_t asker = 0;
    ControlMessage request;
  };

  [[nodiscard]] bool has_all(const std::vector<std::string>& keys) const;
  [[nodiscard]] Result<ControlMessage> answer(const ControlMessage& request);
  [[nodiscard]] Result<int64_t> add(const std::string& key, int64_t delta);
  [[nodiscard]] std::string compare_set(const ControlMessage& request);

  std::map<std::string, std::string, std::less<>> values_;
  std::vector<Waiting> waiting_;
};

}  // namespace trireme
