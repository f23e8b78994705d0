#include "trireme/torch/operator_libraries.h"

#include <exception>
#include <filesystem>
#include <mutex>
#include <span>

#include <dlfcn.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/graph/aliasing.h"
#include "trireme/graph/op_rules.h"
#include "trireme/torch/guard.h"
#include "trireme/torch/native_operators.h"
#include "trireme/torch/operator_call.h"

namespace trireme {
namespace {

// The libraries up to the one that is being loaded. Whoever ends the process has no other way to
// know; ranks that are threads load one after the other.
struct Loading {
  std::mutex mutex;
  std::span<const std::string> paths;
};
Loading& loading() {
  static Loading state;
  return state;
}

// What a registration throws cannot pass the system's loader and ends the process, which would
// print a stack trace.
[[noreturn]] void leave_with_a_sentence() {
  const Status why = guard([] {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  });
  const std::span<const std::string> paths = loading().paths;
  const std::string text = fmt::format(
      "--operator-library {} cannot be loaded{}: {}\n", paths.back(),
      paths.size() == 1 ? ""
                        : fmt::format(" after {}", fmt::join(paths.first(paths.size() - 1), ", ")),
      why.ok() ? "no reason given" : why.error().message);
  static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
  _exit(1);
}

Status load(const std::string& path) {
  std::error_code error;
  // dlopen would look for a bare name in the system's folders.
  const std::string absolute = std::filesystem::absolute(path, error).string();
  return guard([&]() -> Status {
    // Its operators stay registered as long as the process lives.
    const std::terminate_handler before = std::set_terminate(leave_with_a_sentence);
    void* const library = ::dlopen(absolute.c_str(), RTLD_NOW | RTLD_GLOBAL);
    std::set_terminate(before);
    if (library != nullptr) return Status();
    const char* why = ::dlerror();
    return Error{fmt::format("it cannot be loaded: {}", why == nullptr ? "no reason given" : why)};
  });
}

std::string where(const std::vector<std::string>& paths) {
  return fmt::format("--operator-library {}", fmt::join(paths, ", "));
}

}  // namespace

Status load_operator_libraries(const std::vector<std::string>& paths) {
  const std::lock_guard lock(loading().mutex);
  for (size_t i = 0; i < paths.size(); ++i) {
    loading().paths = std::span(paths).first(i + 1);
    if (Status status = load(paths[i]); !status.ok()) {
      return while_doing("--operator-library " + paths[i], status.error());
    }
  }
  return register_native_operators();
}

Status check_library_operators(const Graph& graph, const std::vector<std::string>& paths) {
  for (const Node& node : graph.nodes) {
    if (is_aten(node.op)) continue;
    const std::optional<c10::OperatorHandle> handle = find_operator(node.op);
    if (!handle.has_value()) {
      return Error{
          fmt::format("{} does not register the operator {}", where(paths), describe_node(node))};
    }
    if (Result<OperatorCall> call = OperatorCall::make(node, Mode::kTraining); !call.ok()) {
      return paths.empty() ? call.error() : while_doing(where(paths), call.error());
    }
    const bool says_so = !written_values(node).empty();
    for (const c10::Argument& formal : handle->schema().arguments()) {
      const c10::AliasInfo* alias = formal.alias_info();
      if (alias == nullptr || !alias->isWrite() || says_so) continue;
      return Error{fmt::format(
          "{} changes its argument {} in place, which is supported only of the "
          "first argument of an operator whose name ends in _; return a new tensor instead",
          describe_node(node), formal.name())};
    }
  }
  return Status();
}

}  // namespace trireme
