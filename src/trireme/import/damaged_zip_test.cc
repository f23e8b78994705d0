// Archives whose ZIP structure is damaged, or is not one of torch.export.save.

#include <filesystem>

#include <sys/stat.h>

#include <gtest/gtest.h>

#include "trireme/import/damaged_archive.h"
#include "trireme/import/scratch_directory.h"
#include "trireme/import/zip_writer.h"

namespace trireme {
namespace {

constexpr std::string_view kModel = "mlp/models/model.json";

class DamagedZip : public testing::Test {
 protected:
  // The error, behind the path of the file.
  std::string error_of(std::string_view content) {
    std::string message = open_and_read(directory_.write("m.pt2", content));
    const std::string path = directory_.path("m.pt2");
    return message.starts_with(path) ? message.substr(path.size()) : message;
  }
  ZipRecord& record(std::string_view suffix) { return find_record(records_, suffix); }
  std::string error_of_records(const ZipEnd& end = {}) { return error_of(zip_file(records_, end)); }

  ScratchDirectory directory_;
  std::vector<ZipRecord> records_ = zip_records(zoo("mlp"));
};

TEST_F(DamagedZip, IsWholeWhenNothingIsDamaged) {
  EXPECT_EQ(error_of_records(), "");
  EXPECT_EQ(error_of_records({.is_zip64 = true}), "");
  ZipRecord& model = record("model.json");
  model.extra = zip64_extra({model.data.size(), model.data.size()});
  model.size = 0xFFFFFFFF;
  EXPECT_EQ(error_of_records(), "");
}

TEST_F(DamagedZip, IsRefusedWhenARecordIsCompressedOrEncrypted) {
  record("model.json").method = 8;
  EXPECT_EQ(error_of_records(),
            ": record mlp/models/model.json is compressed; write the archive with "
            "torch.export.save and do not repack it");
  record("model.json").method = 0;
  record("model.json").flags = 1;
  EXPECT_EQ(error_of_records(), ": record mlp/models/model.json is encrypted");
}

TEST_F(DamagedZip, IsRefusedWhenARecordIsNotWhereTheDirectorySays) {
  const std::string kMisplaced =
      " is corrupted: record mlp/models/model.json is not where its directory says";
  for (const uint32_t offset : {1u, 40000u, 0xFFFFFFFFu, 0u}) {
    record("model.json").offset = offset;
    EXPECT_EQ(error_of_records(), kMisplaced) << offset;
  }
  record("model.json").extra = zip64_extra({UINT64_MAX - 8});
  record("model.json").offset = 0xFFFFFFFF;
  EXPECT_EQ(error_of_records(), kMisplaced);
  record("model.json") = {.name = std::string(kModel), .data = "{}", .local_name = "mlp/models/x"};
  EXPECT_EQ(error_of_records(), kMisplaced);
}

TEST_F(DamagedZip, IsRefusedWhenARecordEndsOutsideTheFile) {
  const std::string kOutside = " is truncated: record mlp/models/model.json ends outside the file";
  record("model.json").size = 40000;
  EXPECT_EQ(error_of_records(), kOutside);
  record("model.json").size = 0xFFFFFFFF;
  EXPECT_EQ(error_of_records(), kOutside);
  for (const uint64_t size : {UINT64_MAX, UINT64_MAX - 100, uint64_t{1} << 63}) {
    record("model.json").extra = zip64_extra({size, size});
    EXPECT_EQ(error_of_records(), kOutside) << size;
  }
  record("model.json") = {.name = std::string(kModel), .data = "{}", .local_extra_size = 0xFFFF};
  EXPECT_EQ(error_of_records(), kOutside);
}

TEST_F(DamagedZip, IsRefusedWhenRecordsOverlapOrShareAName) {
  record("model.json").size = static_cast<uint32_t>(record("model.json").data.size()) + 31;
  // Records lie in the order of their names: behind the program nothing but the directory.
  EXPECT_EQ(error_of_records(),
            " is truncated: record mlp/models/model.json ends outside the file");
  record("model.json").size = std::nullopt;
  record("weight_0").size = 800;
  EXPECT_EQ(error_of_records(),
            " is corrupted: its records mlp/data/weights/weight_0 and mlp/data/weights/weight_1 "
            "overlap");
  record("weight_0").size = std::nullopt;
  records_.push_back(record("weight_0"));
  EXPECT_EQ(error_of_records(), " is corrupted: it has two records mlp/data/weights/weight_0");
}

TEST_F(DamagedZip, IsRefusedWhenItsDirectoryIsDamaged) {
  const std::string kDamaged = " is corrupted: its ZIP directory is damaged";
  for (const size_t index : {size_t{0}, records_.size() - 1}) {
    for (const uint16_t name_size : {uint16_t{0xFFFF}, uint16_t{300}}) {
      records_[index].name_size = name_size;
      EXPECT_EQ(error_of_records(), kDamaged) << index << " " << name_size;
      records_[index].name_size = std::nullopt;
    }
  }
  EXPECT_EQ(error_of_records({.count = 17}), kDamaged);
  EXPECT_EQ(error_of_records({.count = 15}),
            " is corrupted: its ZIP directory has more than the 15 records that it counts");
  record("model.json").extra = std::string("\x01\x00\xFF\x00zzzz", 8);  // ends outside the field
  EXPECT_EQ(error_of_records(), kDamaged);
  record("model.json").extra = zip64_extra({});  // lacks the number that it is there for
  record("model.json").size = 0xFFFFFFFF;
  EXPECT_EQ(error_of_records(), kDamaged);
}

TEST_F(DamagedZip, IsRefusedWhenItsDirectoryLiesOutsideTheFile) {
  const std::string kOutside = " is truncated: its ZIP directory lies outside the file";
  EXPECT_EQ(error_of_records({.directory_size = 100000}), kOutside);
  EXPECT_EQ(error_of_records({.directory_offset = 100000}), kOutside);
  EXPECT_EQ(error_of_records({.directory_offset = 0xFFFFFFFE}), kOutside);
  for (const uint32_t number : {0u, 50u}) {
    const std::string kMisplaced = " is corrupted: its ZIP directory is not where it says";
    EXPECT_EQ(error_of_records({.directory_offset = number}), kMisplaced);
    EXPECT_EQ(error_of_records({.directory_size = number}), kMisplaced);
  }
  for (const uint64_t number : {UINT64_MAX, uint64_t{1} << 63, uint64_t{100000}}) {
    EXPECT_EQ(error_of_records({.is_zip64 = true, .zip64_directory_size = number}), kOutside);
    EXPECT_EQ(error_of_records({.is_zip64 = true, .zip64_directory_offset = number}), kOutside);
    EXPECT_EQ(error_of_records({.is_zip64 = true, .zip64_offset = number}),
              " is corrupted: its ZIP64 directory is not where it says");
    EXPECT_EQ(error_of_records({.is_zip64 = true, .zip64_count = number}),
              " is corrupted: its ZIP directory is damaged");
  }
  EXPECT_EQ(error_of_records({.directory_offset = 0xFFFFFFFF}),
            " is corrupted: its ZIP64 directory is missing");
}

TEST_F(DamagedZip, IsRefusedWhenAChecksumIsWrong) {
  record("model.json").checksum = 0x12345678;
  EXPECT_EQ(
      error_of_records(),
      " is corrupted: the checksum of record mlp/models/model.json is d387c06e, not 12345678");
  record("model.json").checksum = std::nullopt;
  record("weight_0").checksum = 0;  // found when the weight is read
  EXPECT_EQ(error_of_records(),
            " is corrupted: the checksum of record mlp/data/weights/weight_0 is 72509511, not "
            "00000000");
}

TEST_F(DamagedZip, IsRefusedWithoutTheRecordsThatMatter) {
  const auto without = [&](std::string_view suffix) {
    std::vector<ZipRecord> records = records_;
    std::erase_if(records, [&](const ZipRecord& r) { return r.name.ends_with(suffix); });
    EXPECT_EQ(records.size() + 1, records_.size());
    return error_of(zip_file(records));
  };
  EXPECT_EQ(without("archive_format"), " is a ZIP file but not a .pt2 of torch.export.save");
  EXPECT_EQ(without("model.json"), " holds 0 programs, not one; save one program an archive");
  EXPECT_EQ(without("model_weights_config.json"),
            " is corrupted: nothing says where model.0.weight is stored");
  EXPECT_EQ(without("weight_0"), " has no record mlp/data/weights/weight_0");
  EXPECT_EQ(without("byteorder"), "");
  EXPECT_EQ(error_of(zip_file({})), " is a ZIP file but not a .pt2 of torch.export.save");
  records_.push_back({.name = "mlp/models/other.json", .data = "{}"});
  EXPECT_EQ(error_of_records(), " holds 2 programs, not one; save one program an archive");
}

TEST_F(DamagedZip, IsRefusedWhenAWeightIsTooShort) {
  record("weight_0").data.pop_back();
  EXPECT_EQ(error_of_records(),
            ": record mlp/data/weights/weight_0 has 767 bytes, too few for its tensor");
}

TEST_F(DamagedZip, IsRefusedWhenItIsAnotherKindOfFile) {
  record("archive_format").data = "ts";
  EXPECT_EQ(error_of_records(), " is a 'ts' archive, not a .pt2 of torch.export.save");
  record("archive_format").data = "a\nb";
  EXPECT_EQ(error_of_records(), " is a 'a\\x0ab' archive, not a .pt2 of torch.export.save");
  const std::string kNoExport = " file, not a .pt2; export the model with trireme.export";
  EXPECT_EQ(error_of(zip_file({{.name = "m/data.pkl", .data = "x"},
                               {.name = "m/constants.pkl", .data = "x"},
                               {.name = "m/code/__torch__.py", .data = "x"}})),
            " is a TorchScript" + kNoExport);
  EXPECT_EQ(error_of(zip_file({{.name = "m/code/__torch__/m.py", .data = "x", .method = 8}})),
            " is a TorchScript" + kNoExport);
  EXPECT_EQ(error_of(zip_file({{.name = "m/data.pkl", .data = "x"},
                               {.name = "m/byteorder", .data = "little"},
                               {.name = "m/data/0", .data = "x"}})),
            " is a torch.save" + kNoExport);
  const std::string kNoZip = " is not a ZIP file, so not an archive of torch.export.save";
  EXPECT_EQ(error_of(""), kNoZip);
  EXPECT_EQ(error_of("P"), kNoZip);
  EXPECT_EQ(error_of("import torch\n"), kNoZip);
  EXPECT_EQ(error_of(std::string(100000, '\0')), kNoZip);
}

TEST_F(DamagedZip, IsRefusedWhenItIsNoFileToRead) {
  const std::string missing = directory_.path("none.pt2");
  EXPECT_EQ(open_and_read(missing), "cannot open " + missing + ": No such file or directory");
  std::filesystem::create_directory(directory_.path("d.pt2"));
  EXPECT_EQ(open_and_read(directory_.path("d.pt2")),
            directory_.path("d.pt2") + " is not a regular file");
  // Nobody writes to it: waiting for its writer would be a hang.
  ASSERT_EQ(mkfifo(directory_.path("pipe.pt2").c_str(), 0600), 0);
  EXPECT_EQ(open_and_read(directory_.path("pipe.pt2")),
            directory_.path("pipe.pt2") + " is not a regular file");
}

TEST_F(DamagedZip, KeepsItsMessageOnOneLineWhateverARecordIsCalled) {
  records_.push_back({.name = "mlp/a\nb\x1b[2J", .data = "x", .method = 8});
  EXPECT_EQ(error_of_records(), " is corrupted: its ZIP directory is damaged");
  records_.back().name = std::string(60000, 'n');
  EXPECT_TRUE(error_of_records().ends_with("nnn [cut]")) << error_of_records();
}

}  // namespace
}  // namespace trireme
