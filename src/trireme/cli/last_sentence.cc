#include "trireme/cli/last_sentence.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fmt/format.h>

namespace trireme {
namespace {

// A handler of std::terminate takes no arguments.
const char* the_program = "trireme";

constexpr std::string_view kRemedy = "; raise the limit of this process (ulimit -a), or use less";

// Asks for no memory, as there may be none.
void say(std::string_view what, std::string_view remedy) {
  std::array<char, 1000> line{};
  const size_t room = line.size() - 1;
  const size_t size = std::min(
      fmt::format_to_n(line.data(), room, "{}: {}{}", the_program, what, remedy).size, room);
  line.at(size) = '\n';
  static_cast<void>(!::write(STDERR_FILENO, line.data(), size + 1));
}

[[noreturn]] void leave() {
  // Several threads may find at once that they cannot go on; one speaks.
  static std::atomic_flag is_taken;  // publishes nothing
  while (is_taken.test_and_set()) ::pause();
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
    say("the system refused something that the program needs", kRemedy);
  } catch (const std::bad_alloc&) {
    say("there is no memory left", kRemedy);
  } catch (const std::system_error& error) {
    const bool is_thread = error.code() == std::errc::resource_unavailable_try_again;
    if (is_thread)
      say("the system starts no further thread", kRemedy);
    else
      say(error.what(), "");
  } catch (const std::exception& error) {
    say(error.what(), "");
  } catch (...) {
    say("an exception of unknown type ended the program", "");
  }
  ::_exit(1);
}

// Whether the address space that this process may have is used up, to what is too small for a heap
// to grow by. Only calls that a signal handler may make.
bool is_memory_used_up() {
  constexpr rlim_t kTooSmall = 4 << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::array<char, 32> text{};
  const ssize_t size = ::read(file, text.data(), text.size());
  ::close(file);
  rlim_t pages = 0;  // the first number of the line
  for (ssize_t i = 0; i < size && text.at(i) >= '0' && text.at(i) <= '9'; ++i) {
    pages = 10 * pages + static_cast<rlim_t>(text.at(i) - '0');
  }
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kTooSmall > limit.rlim_cur;
}

// What a fault ended in before: of the system, or of a sanitizer.
struct sigaction fault_before;

// The C library aborts where it needs memory itself, as for the thread-local variables of a thread;
// other libraries use what they were not given. Whoever aborts for another reason, or faults, goes
// on to do so when this returns.
void leave_without_memory(int signal) {
  if (!is_memory_used_up()) {
    if (signal == SIGSEGV) ::sigaction(SIGSEGV, &fault_before, nullptr);
    return;
  }
  say("there is no memory left", kRemedy);
  ::_exit(1);
}

}  // namespace

void end_with_a_sentence(const char* program) {
  the_program = program;
  std::set_terminate(leave);
  struct sigaction action{};
  action.sa_handler = leave_without_memory;
  ::sigaction(SIGABRT, &action, nullptr);
  ::sigaction(SIGSEGV, &action, &fault_before);
}

}  // namespace trireme
