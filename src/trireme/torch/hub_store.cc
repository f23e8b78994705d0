#include "trireme/torch/hub_store.h"

#include <c10/util/Exception.h>

namespace trireme {
namespace {

template <typename T>
T value_or_throw(Result<T> result) {
  TORCH_CHECK(result.ok(), result.ok() ? std::string() : result.error().message);
  return std::move(result).value();
}

void ok_or_throw(const Status& status) {
  TORCH_CHECK(status.ok(), status.ok() ? std::string() : status.error().message);
}

}  // namespace

c10::intrusive_ptr<c10d::Store> HubStore::clone() {
  return c10::make_intrusive<HubStore>(client_, timeout_);
}

void HubStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  ok_or_throw(client_.set(key, value));
}

std::vector<uint8_t> HubStore::compareSet(const std::string& key,
                                          const std::vector<uint8_t>& expected,
                                          const std::vector<uint8_t>& desired) {
  return value_or_throw(client_.compare_set(key, expected, desired));
}

std::vector<uint8_t> HubStore::get(const std::string& key) {
  return value_or_throw(client_.get(key, timeout_));
}

int64_t HubStore::add(const std::string& key, int64_t value) {
  return value_or_throw(client_.add(key, value));
}

bool HubStore::deleteKey(const std::string& key) { return value_or_throw(client_.delete_key(key)); }

bool HubStore::check(const std::vector<std::string>& keys) {
  return value_or_throw(client_.check(keys));
}

int64_t HubStore::getNumKeys() { return value_or_throw(client_.num_keys()); }

void HubStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void HubStore::wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) {
  ok_or_throw(client_.wait(keys, timeout));
}

}  // namespace trireme
