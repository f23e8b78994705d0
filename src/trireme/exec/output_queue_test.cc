#include "trireme/exec/output_queue.h"

#include <array>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "trireme/exec/file_descriptor.h"

namespace trireme {
namespace {

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    reading = FileDescriptor(ends[0]);
    writing = FileDescriptor(ends[1]);
  }
  [[nodiscard]] std::string read() const {
    std::array<char, 1 << 16> bytes;
    const ssize_t got = ::read(reading.get(), bytes.data(), bytes.size());
    return got > 0 ? std::string(bytes.data(), static_cast<size_t>(got)) : "";
  }
  FileDescriptor reading;
  FileDescriptor writing;
};

TEST(OutputQueue, TextsGoOutInOrderWhereverTheyGo) {
  const Pipe a;
  const Pipe b;
  OutputQueue queue;
  queue.add(a.writing.get(), "one ");
  queue.add(b.writing.get(), "two");
  queue.add(a.writing.get(), "three");
  queue.add(a.writing.get(), "");
  EXPECT_EQ(queue.fd(), a.writing.get());
  queue.write_some();
  EXPECT_EQ(queue.fd(), b.writing.get());
  queue.flush_for(std::chrono::seconds(5));
  EXPECT_EQ(queue.fd(), -1);
  EXPECT_EQ(a.read(), "one three");
  EXPECT_EQ(b.read(), "two");
}

TEST(OutputQueue, APipeThatNobodyReadsIsGivenUpInTime) {
  const Pipe pipe;
  OutputQueue queue;
  queue.add(pipe.writing.get(), std::string(size_t{1} << 20, 'x'));
  EXPECT_TRUE(queue.is_full());
  const auto start = std::chrono::steady_clock::now();
  queue.flush_for(std::chrono::milliseconds(50));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_EQ(queue.fd(), pipe.writing.get());
}

TEST(OutputQueue, AReaderThatIsGoneCostsItsTextOnly) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe gone;
  const Pipe other;
  gone.reading.reset();
  OutputQueue queue;
  queue.add(gone.writing.get(), "lost");
  queue.add(other.writing.get(), "kept");
  queue.flush_for(std::chrono::seconds(5));
  EXPECT_EQ(other.read(), "kept");
  ::signal(SIGPIPE, SIG_DFL);
}

}  // namespace
}  // namespace trireme
