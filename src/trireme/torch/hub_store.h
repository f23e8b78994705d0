// HubStore: the key-value store of the control channel as a c10d::Store.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/exec/control_client.h"

namespace trireme {

// Failures of the channel are thrown, as c10d expects. `client` outlives the store.
class HubStore : public c10d::Store {
 public:
  explicit HubStore(ControlClient& client, std::chrono::milliseconds timeout)
      : c10d::Store(timeout), client_(client) {}

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  ControlClient& client_;
};

}  // namespace trireme
