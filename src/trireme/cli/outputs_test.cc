#include "trireme/cli/outputs.h"

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/import/scratch_directory.h"

namespace trireme {
namespace {

std::string refusal(const std::string& path, WriteKind kind = WriteKind::kInPlace) {
  const Status status = check_writable("--metrics", path, kind);
  return status.ok() ? "" : status.error().message;
}

TEST(Outputs, AFileInAFolderThatExistsIsFineAndNothingIsCreated) {
  const ScratchDirectory directory;
  const std::string path = directory.path("m.jsonl");
  EXPECT_EQ(refusal(path), "");
  EXPECT_EQ(refusal(path, WriteKind::kReplaced), "");
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(refusal("m.jsonl"), "");
}

TEST(Outputs, AnExistingFileStaysAsItIs) {
  const ScratchDirectory directory;
  const std::string path = directory.path("m.jsonl");
  std::ofstream(path) << "old";
  EXPECT_EQ(refusal(path), "");
  EXPECT_EQ(std::filesystem::file_size(path), 3U);
}

TEST(Outputs, NoFileIsNamedTwice) {
  const ScratchDirectory directory;
  const std::string model = directory.path("m.pt2");
  const std::string fresh = directory.path("fresh");
  std::ofstream(model) << "model";
  std::filesystem::create_symlink("m.pt2", directory.path("link"));
  const auto refusal = [&](const std::vector<NamedFile>& outputs) {
    const Status status = check_distinct(outputs, {{"MODEL", model}, {"--plan", ""}});
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(refusal({{"--save", fresh}, {"--metrics", ""}, {"--grad-norms", ""}}), "");
  EXPECT_EQ(refusal({{"--save", "/dev/null"}, {"--metrics", "/dev/null"}}), "");
  const std::string link = directory.path("link");
  EXPECT_EQ(refusal({{"--save", link}}), fmt::format("--save {} would overwrite MODEL", link));
  EXPECT_EQ(refusal({{"--save", fresh}, {"--metrics", fresh}}),
            fmt::format("--metrics {} would overwrite --save", fresh));
}

TEST(Outputs, RefusesAMissingFolderAFolderAndWhatIsReadOnly) {
  const ScratchDirectory directory;
  const std::string folder = directory.path("folder");
  EXPECT_EQ(refusal(folder + "/m.jsonl"),
            fmt::format("--metrics {0}/m.jsonl: there is no folder {0}", folder));
  std::filesystem::create_directory(folder);
  EXPECT_EQ(refusal(folder), fmt::format("--metrics {}: this is a folder, not a file", folder));
  const std::string file = folder + "/old";
  std::ofstream(file) << "old";
  EXPECT_EQ(refusal(file + "/m.jsonl"),
            fmt::format("--metrics {0}/m.jsonl: there is no folder {0}", file));
  if (::geteuid() == 0) return;  // root may write everything
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  EXPECT_EQ(refusal(file),
            fmt::format("--metrics {}: cannot write the file: Permission denied", file));
  std::filesystem::permissions(
      folder, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  EXPECT_EQ(
      refusal(folder + "/m.jsonl"),
      fmt::format("--metrics {}/m.jsonl: cannot write to the folder: Permission denied", folder));
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace trireme
