// Writes ZIP files for tests: whole ones, and ones that are damaged in a chosen place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

struct ZipRecord {
  std::string name;
  std::string data;
  // What the directory says in place of the truth.
  uint16_t flags = 0;
  uint16_t method = 0;
  std::optional<uint32_t> checksum = std::nullopt;
  std::optional<uint32_t> size = std::nullopt;
  std::optional<uint32_t> offset = std::nullopt;
  std::optional<uint16_t> name_size = std::nullopt;
  std::string extra;  // extra fields of the directory
  // What the local header says in place of the truth.
  std::optional<std::string> local_name = std::nullopt;
  std::optional<uint16_t> local_extra_size = std::nullopt;
};

// What the end of the file says in place of the truth.
struct ZipEnd {
  std::optional<uint16_t> count = std::nullopt;
  std::optional<uint32_t> directory_size = std::nullopt;
  std::optional<uint32_t> directory_offset = std::nullopt;
  bool is_zip64 = false;
  std::optional<uint64_t> zip64_offset = std::nullopt;  // of the ZIP64 end, in its locator
  std::optional<uint64_t> zip64_count = std::nullopt;
  std::optional<uint64_t> zip64_directory_size = std::nullopt;
  std::optional<uint64_t> zip64_directory_offset = std::nullopt;
};

[[nodiscard]] std::string zip_file(const std::vector<ZipRecord>& records, const ZipEnd& end = {});
// The extra field that holds ZIP64 numbers.
[[nodiscard]] std::string zip64_extra(const std::vector<uint64_t>& numbers);

// The records of an archive, as they can be written again.
[[nodiscard]] std::vector<ZipRecord> zip_records(const std::string& path);
// The record whose name ends so.
[[nodiscard]] ZipRecord& find_record(std::vector<ZipRecord>& records, std::string_view suffix);

}  // namespace trireme
