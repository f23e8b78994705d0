// Archives that were cut short or whose bits flipped: whatever is left of them, the reader says
// what is wrong, and it neither crashes nor hangs nor reads outside the file.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/import/damaged_archive.h"
#include "trireme/import/scratch_directory.h"
#include "trireme/import/zip_writer.h"

namespace trireme {
namespace {

std::string file_content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class DamagedArchive : public testing::TestWithParam<std::string> {
 protected:
  std::string whole_ = file_content(zoo(GetParam()));
  ScratchDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(OfTheZoo, DamagedArchive, testing::Values("mlp", "tricky"),
                         [](const auto& instance) { return instance.param; });

TEST_P(DamagedArchive, IsRefusedAtEveryLengthBelowTheWhole) {
  const std::string path = directory_.write("cut.pt2", whole_);
  ASSERT_EQ(open_and_read(path), "");
  const size_t tail = whole_.size() - 3000;
  std::vector<size_t> lengths;
  for (size_t length = whole_.size() - 1; length > tail; --length) lengths.push_back(length);
  for (size_t i = 200; i-- > 0;) lengths.push_back(tail * i / 199);
  for (const size_t length : lengths) {
    std::filesystem::resize_file(path, length);
    const std::string message = open_and_read(path);
    if (whole_.substr(0, length).substr(std::max<size_t>(length, 22) - 22).starts_with("PK\5\6")) {
      // Of a ZIP file in this one: the example inputs of the export.
      EXPECT_EQ(message, path + " is corrupted: its ZIP directory is not where it says") << length;
    } else if (length >= 4) {
      EXPECT_EQ(message, path + " is truncated: the ZIP directory at its end is missing") << length;
    } else {
      EXPECT_EQ(message, path + " is not a ZIP file, so not an archive of torch.export.save");
    }
  }
}

TEST_P(DamagedArchive, IsReadOrRefusedWhereverBitsFlip) {
  const uint64_t seed = test_seed();
  std::cout << "TRIREME_SEED=" << seed << "\n";
  std::mt19937_64 random(seed);
  const std::string path = directory_.path("flipped.pt2");
  const size_t directory = whole_.find("PK\x01\x02");
  size_t num_refused = 0;
  const auto flip_and_read = [&](size_t num_bits, size_t begin, size_t end) {
    std::string content = whole_;
    std::string places;
    for (size_t i = 0; i < num_bits; ++i) {
      const size_t place = begin + random() % (end - begin);
      const auto bit = static_cast<int>(random() % 8);
      content[place] = static_cast<char>(content[place] ^ (1 << bit));
      places += fmt::format(" {}:{}", place, bit);
    }
    SCOPED_TRACE(testing::Message() << "bits flipped at" << places);
    num_refused += open_and_read(directory_.write("flipped.pt2", content)).empty() ? 0 : 1;
  };
  // The directory, byte by byte; everything; and the headers of the records.
  for (size_t place = directory; place < whole_.size(); ++place) flip_and_read(1, place, place + 1);
  for (int i = 0; i < 500; ++i) flip_and_read(1, 0, whole_.size());
  for (int i = 0; i < 200; ++i) flip_and_read(16, 0, whole_.size());
  for (int i = 0; i < 200; ++i) flip_and_read(4, directory, whole_.size());
  for (size_t header = whole_.find("PK\x03\x04"); header != std::string::npos;
       header = whole_.find("PK\x03\x04", header + 1)) {
    for (size_t place = header; place < header + 30; ++place) flip_and_read(1, place, place + 1);
  }
  // Most of a directory matters, so most flips have to be found.
  EXPECT_GT(num_refused, 900u);
}

TEST_P(DamagedArchive, IsReadOrRefusedWhereverBitsFlipBehindARightChecksum) {
  const uint64_t seed = test_seed();
  std::cout << "TRIREME_SEED=" << seed << "\n";
  std::mt19937_64 random(seed);
  size_t num_refused = 0;
  for (const std::string suffix :
       {"models/model.json", "model_weights_config.json", "model_constants_config.json"}) {
    std::vector<ZipRecord> records = zip_records(zoo(GetParam()));
    std::string& data = find_record(records, suffix).data;
    for (int i = 0; i < 300; ++i) {
      const std::string whole = data;
      std::string places;
      for (int flips = i % 3; flips >= 0; --flips) {
        const size_t place = random() % data.size();
        const auto bit = static_cast<int>(random() % 8);
        data[place] = static_cast<char>(data[place] ^ (1 << bit));
        places += fmt::format(" {}:{}", place, bit);
      }
      SCOPED_TRACE(testing::Message() << suffix << ": bits flipped at" << places);
      const std::string path = directory_.write("flipped.pt2", zip_file(records));
      num_refused += open_and_read(path).empty() ? 0 : 1;
      data = whole;
    }
  }
  EXPECT_GT(num_refused, 300u);
}

}  // namespace
}  // namespace trireme
