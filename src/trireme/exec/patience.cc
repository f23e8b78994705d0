#include "trireme/exec/patience.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace trireme {
namespace {

constexpr std::chrono::seconds kFirstNotice(5);
constexpr std::chrono::seconds kNoticePeriod(30);
constexpr std::chrono::milliseconds kResolvePause(500);

}  // namespace

Patience::Patience(std::chrono::milliseconds timeout,
                   std::function<void(const std::string&)> on_waiting)
    : timeout_(timeout),
      on_waiting_(std::move(on_waiting)),
      deadline_(Clock::now() + timeout),
      next_notice_(Clock::now() + kFirstNotice) {}

Patience::Clock::time_point Patience::next() const { return std::min(deadline_, next_notice_); }

bool Patience::goes_on(const std::string& what) {
  const Clock::time_point now = Clock::now();
  if (now >= deadline_) return false;
  if (now >= next_notice_) {
    next_notice_ = now + kNoticePeriod;
    if (on_waiting_) on_waiting_(what);
  }
  return true;
}

Error Patience::given_up(const std::string& what) const {
  return Error{
      fmt::format("{}, for {:g} s", what, std::chrono::duration<double>(timeout_).count())};
}

Result<FileDescriptor> connect_patiently(const SocketAddress& address, Patience& patience,
                                         UnknownName unknown_name) {
  while (true) {
    if (const Status known = check_resolves(address); !known.ok()) {
      const std::string& what = known.error().message;
      if (unknown_name == UnknownName::kIsWrong) return known.error();
      if (!patience.goes_on(what)) return patience.given_up(what);
      std::this_thread::sleep_for(kResolvePause);
      continue;
    }
    Result<FileDescriptor> socket = connect_until(address, patience.next());
    if (socket.ok()) return socket;
    const std::string& what = socket.error().message;
    if (!patience.goes_on(what)) return patience.given_up(what);
  }
}

}  // namespace trireme
