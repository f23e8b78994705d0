#include "trireme/torch/launcher_store.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trireme/exec/patience.h"
#include "trireme/exec/stream_socket.h"
#include "trireme/torch/guard.h"

namespace trireme {
namespace {

// Of one request to a store that is there.
constexpr std::chrono::seconds kRequestTimeout(60);
constexpr std::chrono::milliseconds kPause(20);

}  // namespace

Result<std::string> share_text(const LauncherStore& store, const std::string& key,
                               const std::optional<std::string>& text) {
  Patience patience(store.timeout, store.on_waiting);
  // TCPStore says at length, and late, what is wrong with an address.
  TRIREME_TRY(const FileDescriptor reached,
              connect_patiently({.host = store.host, .port = store.port}, patience));
  return guard([&]() -> Result<std::string> {
    c10d::TCPStoreOptions options;
    options.port = store.port;
    options.waitWorkers = false;
    options.timeout = kRequestTimeout;
    static_assert(sizeof(options.port) == 2);
    c10d::PrefixStore prefixed(store.prefix,
                               c10::make_intrusive<c10d::TCPStore>(store.host, options));
    if (text.has_value()) {
      prefixed.set(key, std::vector<uint8_t>(text->begin(), text->end()));
      return *text;
    }
    while (!prefixed.check({key})) {
      const std::string what =
          fmt::format("rank 0 has not told {}:{} its address", store.host, store.port);
      if (!patience.goes_on(what)) return patience.given_up(what);
      std::this_thread::sleep_for(kPause);
    }
    const std::vector<uint8_t> bytes = prefixed.get(key);
    return std::string(bytes.begin(), bytes.end());
  });
}

}  // namespace trireme
