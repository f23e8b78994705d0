#include "trireme/torch/launcher_store.h"

#include <chrono>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "trireme/exec/stream_socket.h"
#include "trireme/torch/guard.h"

namespace trireme {
namespace {

constexpr std::chrono::seconds kTimeout(60);

}  // namespace

Result<std::string> share_text(const LauncherStore& store, const std::string& key,
                               const std::optional<std::string>& text) {
  if (!store.serves) {
    // TCPStore says at length, and late, what is wrong with an address.
    TRIREME_TRY(const FileDescriptor reached,
                connect_until({.host = store.host, .port = store.port},
                              std::chrono::steady_clock::now() + kTimeout));
  }
  return guard([&]() -> Result<std::string> {
    c10d::TCPStoreOptions options;
    options.port = store.port;
    options.isServer = store.serves;
    options.waitWorkers = false;
    options.multiTenant = true;
    options.timeout = kTimeout;
    static_assert(sizeof(options.port) == 2);
    auto tcp = c10::make_intrusive<c10d::TCPStore>(store.host, options);
    // A server that goes takes the text with it: it stays for the life of the process.
    if (store.serves) tcp.release();
    c10::intrusive_ptr<c10d::TCPStore> client = store.serves ? nullptr : tcp;
    if (store.serves) {
      options.isServer = false;
      client = c10::make_intrusive<c10d::TCPStore>(store.host, options);
    }
    c10d::PrefixStore prefixed(store.prefix, client);
    if (text.has_value()) {
      prefixed.set(key, std::vector<uint8_t>(text->begin(), text->end()));
      return *text;
    }
    const std::vector<uint8_t> bytes = prefixed.get(key);
    return std::string(bytes.begin(), bytes.end());
  });
}

}  // namespace trireme
