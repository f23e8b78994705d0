#include "trireme/exec/control_store.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/check.h"

namespace trireme {
namespace {

bool waits_for_keys(MessageKind kind) {
  return kind == MessageKind::kGet || kind == MessageKind::kWait;
}

}  // namespace

bool ControlStore::serves(MessageKind kind) {
  return kind >= MessageKind::kSet && kind <= MessageKind::kCancel;
}

bool ControlStore::has_all(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(),
                     [this](const std::string& key) { return values_.contains(key); });
}

std::vector<StoreAnswer> ControlStore::serve(int64_t asker, const ControlMessage& request) {
  if (request.kind == MessageKind::kCancel) {
    std::erase_if(waiting_, [&](const Waiting& waiting) {
      return waiting.asker == asker && waiting.request.request == request.request;
    });
    return {};
  }
  if (waits_for_keys(request.kind) && !has_all(request.texts)) {
    waiting_.push_back({.asker = asker, .request = request});
    return {};
  }
  std::vector<StoreAnswer> answers;
  const auto add_answer = [&](int64_t to, const ControlMessage& question) {
    Result<ControlMessage> reply = answer(question);
    ControlMessage message =
        reply.ok() ? std::move(reply).value()
                   : make_message(MessageKind::kReplyError, 0, {reply.error().message});
    message.request = question.request;
    answers.push_back({.asker = to, .reply = std::move(message)});
  };
  add_answer(asker, request);
  const auto ready = std::stable_partition(
      waiting_.begin(), waiting_.end(),
      [this](const Waiting& waiting) { return !has_all(waiting.request.texts); });
  std::for_each(ready, waiting_.end(),
                [&](const Waiting& waiting) { add_answer(waiting.asker, waiting.request); });
  waiting_.erase(ready, waiting_.end());
  return answers;
}

void ControlStore::forget(int64_t asker) {
  std::erase_if(waiting_, [asker](const Waiting& waiting) { return waiting.asker == asker; });
}

Result<ControlMessage> ControlStore::answer(const ControlMessage& request) {
  ControlMessage reply = make_message(MessageKind::kReply);
  switch (request.kind) {
    case MessageKind::kSet:
      values_[request.texts[0]] = request.texts[1];
      break;
    case MessageKind::kGet:
      reply.texts = {values_.at(request.texts[0])};
      break;
    case MessageKind::kAdd: {
      TRIREME_TRY(reply.number, add(request.texts[0], request.number));
      break;
    }
    case MessageKind::kCheck:
      reply.number = has_all(request.texts) ? 1 : 0;
      break;
    case MessageKind::kDelete:
      reply.number = static_cast<int64_t>(values_.erase(request.texts[0]));
      break;
    case MessageKind::kCompareSet:
      reply.texts = {compare_set(request)};
      break;
    case MessageKind::kNumKeys:
      reply.number = static_cast<int64_t>(values_.size());
      break;
    case MessageKind::kWait:
      break;
    default:
      TRIREME_CHECK(false, "the store was asked for what it does not serve");
  }
  return reply;
}

Result<int64_t> ControlStore::add(const std::string& key, int64_t delta) {
  const auto found = values_.find(key);
  int64_t value = 0;
  if (found != values_.end()) {
    const std::string& text = found->second;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc() || end != text.data() + text.size()) {
      return Error{fmt::format("key {} of the store holds {} bytes that are no number to add to",
                               key, text.size())};
    }
  }
  // Wraps around instead of overflowing.
  value = static_cast<int64_t>(static_cast<uint64_t>(value) + static_cast<uint64_t>(delta));
  values_[key] = std::to_string(value);
  return value;
}

std::string ControlStore::compare_set(const ControlMessage& request) {
  const std::string& expected = request.texts[1];
  const std::string& desired = request.texts[2];
  const auto found = values_.find(request.texts[0]);
  if (found == values_.end()) {
    if (!expected.empty()) return expected;
    values_[request.texts[0]] = desired;
    return desired;
  }
  if (found->second == expected) found->second = desired;
  return found->second;
}

}  // namespace trireme
