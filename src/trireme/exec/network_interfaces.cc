#include "trireme/exec/network_interfaces.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <fmt/format.h>

namespace trireme {
namespace {

struct Interface {
  std::string name;
  bool is_up = false;
  bool is_loopback = false;
  std::string ipv4;
  std::string ipv6;  // one that is not for this link alone, where there is one
};

std::string numeric(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  const int failure =
      ::getnameinfo(address, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return failure == 0 ? host.data() : "";
}

void add_address(Interface& interface, const sockaddr* address) {
  if (address == nullptr) return;
  if (address->sa_family == AF_INET && interface.ipv4.empty()) {
    interface.ipv4 = numeric(address, sizeof(sockaddr_in));
  } else if (address->sa_family == AF_INET6) {
    const auto& ipv6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (!interface.ipv6.empty() && IN6_IS_ADDR_LINKLOCAL(&ipv6)) return;
    interface.ipv6 = numeric(address, sizeof(sockaddr_in6));
  }
}

// In the order of the kernel.
std::vector<Interface> all_interfaces() {
  std::vector<Interface> interfaces;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    Interface* known = nullptr;
    for (Interface& each : interfaces) {
      if (each.name == entry->ifa_name) known = &each;
    }
    if (known == nullptr) known = &interfaces.emplace_back();
    known->name = entry->ifa_name;
    known->is_up = (entry->ifa_flags & IFF_UP) != 0;
    known->is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    add_address(*known, entry->ifa_addr);
  }
  ::freeifaddrs(list);
  return interfaces;
}

}  // namespace

Result<std::string> address_of_interface(const std::string& name) {
  std::string names;
  for (const Interface& each : all_interfaces()) {
    names += (names.empty() ? "" : ", ") + each.name;
    if (each.name != name) continue;
    if (!each.is_up) return Error{fmt::format("interface {} of this host is down", name)};
    if (!each.ipv4.empty()) return each.ipv4;
    if (!each.ipv6.empty()) return each.ipv6;
    return Error{fmt::format("interface {} of this host has no address", name)};
  }
  return Error{fmt::format("this host has no interface {}; it has {}", name, names)};
}

std::string address_for_others() {
  for (const Interface& each : all_interfaces()) {
    if (!each.is_up || each.is_loopback) continue;
    if (!each.ipv4.empty()) return each.ipv4;
    if (!each.ipv6.empty()) return each.ipv6;
  }
  return "";
}

}  // namespace trireme
