#include "trireme/import/safetensors_writer.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "trireme/import/safetensors.h"
#include "trireme/import/scratch_directory.h"

namespace trireme {
namespace {

const std::vector<SafetensorsEntry> kEntries = {{"w", DType::kFloat32, {2}}};

Status write(const std::string& path, float value) {
  TRIREME_TRY(SafetensorsWriter writer, SafetensorsWriter::create(path, kEntries));
  const std::vector<float> numbers = {value, value};
  TRIREME_TRY(writer.append(std::as_bytes(std::span(numbers))));
  return writer.commit();
}

float first_number(const std::string& path) {
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  EXPECT_TRUE(file.ok());
  float number = 0;
  std::copy_n(file.value().tensors().at("w").bytes.begin(), sizeof number,
              reinterpret_cast<std::byte*>(&number));
  return number;
}

std::vector<std::string> names_in(const ScratchDirectory& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path("."))) {
    names.push_back(entry.path().filename());
  }
  return names;
}

TEST(SafetensorsWriter, ReplacesAFileWhole) {
  const ScratchDirectory directory;
  const std::string path = directory.path("out.safetensors");
  for (const float value : {1.0F, 2.0F}) {
    const Status written = write(path, value);
    ASSERT_TRUE(written.ok()) << written.error().message;
    EXPECT_EQ(first_number(path), value);
    EXPECT_EQ(names_in(directory), std::vector<std::string>{"out.safetensors"});
  }
}

TEST(SafetensorsWriter, WithoutACommitTheOldFileAndNothingElseIsThere) {
  const ScratchDirectory directory;
  const std::string path = directory.path("out.safetensors");
  ASSERT_TRUE(write(path, 1.0F).ok());
  {
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(path, kEntries);
    ASSERT_TRUE(writer.ok());
    // While it is written as well: a process may be killed here.
    EXPECT_EQ(names_in(directory), std::vector<std::string>{"out.safetensors"});
  }
  EXPECT_EQ(names_in(directory), std::vector<std::string>{"out.safetensors"});
  EXPECT_EQ(first_number(path), 1.0F);
}

TEST(SafetensorsWriter, WritesToTheWorkingFolderByABareName) {
  const ScratchDirectory directory;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path("."));
  const Status written = write("out.safetensors", 3.0F);
  std::filesystem::current_path(before);
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(first_number(directory.path("out.safetensors")), 3.0F);
}

TEST(SafetensorsWriter, FollowsLinks) {
  const ScratchDirectory directory;
  std::filesystem::create_directory(directory.path("folder"));
  std::filesystem::create_symlink("folder/second", directory.path("first"));
  std::filesystem::create_symlink("out.safetensors", directory.path("folder/second"));
  for (const float value : {1.0F, 2.0F}) {
    ASSERT_TRUE(write(directory.path("first"), value).ok());
    EXPECT_EQ(first_number(directory.path("folder/out.safetensors")), value);
    EXPECT_TRUE(std::filesystem::is_symlink(directory.path("first")));
    EXPECT_TRUE(std::filesystem::is_symlink(directory.path("folder/second")));
  }
}

// Devices as well, which a test cannot make.
TEST(SafetensorsWriter, LeavesWhatIsNoRegularFile) {
  const ScratchDirectory directory;
  const std::string path = directory.path("pipe");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const Status written = write(path, 1.0F);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().message, "cannot write " + path + ": it is no regular file");
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

TEST(SafetensorsWriter, MakesAFolderThatHasGone) {
  const ScratchDirectory directory;
  const std::string folder = directory.path("gone");
  const std::string path = folder + "/deep/out.safetensors";
  ASSERT_TRUE(write(path, 1.0F).ok());
  EXPECT_EQ(first_number(path), 1.0F);
  Result<SafetensorsWriter> writer = SafetensorsWriter::create(path, {});
  ASSERT_TRUE(writer.ok());
  std::filesystem::remove_all(folder);
  const Status written = writer.value().commit();
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(SafetensorsWriter, AFolderThatCannotBeMadeIsAnError) {
  const std::string path = "/proc/nowhere/out.safetensors";
  const Status written = write(path, 1.0F);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().message, "cannot write " + path + ": No such file or directory");
}

}  // namespace
}  // namespace trireme
