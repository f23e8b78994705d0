// The network interfaces of this host, by name.
#pragma once

#include <string>

#include "trireme/base/result.h"

namespace trireme {

// The numeric address by which others reach this host through the interface: IPv4 where it has
// one. Errors: there is no such interface (the message lists those there are), it is down, it has
// no address.
[[nodiscard]] Result<std::string> address_of_interface(const std::string& name);

// The address of the first interface that is up and no loopback. Empty when there is none.
[[nodiscard]] std::string address_for_others();

}  // namespace trireme
