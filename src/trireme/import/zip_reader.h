// ZipReader: the records of a ZIP file whose records are stored, not compressed, as torch writes
// them. Records are spans into the mapped file. ZIP64 is read.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/import/mapped_file.h"

namespace trireme {

class ZipReader {
 public:
  // Errors: not a ZIP file, truncated, a compressed or encrypted record, a record outside the file
  // or inside another one, two records of one name.
  static Result<ZipReader> open(const std::string& path);

  // Names as in the file, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool has(std::string_view name) const { return records_.contains(name); }
  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const MappedFile& file() const { return file_; }
  // The bytes of a record, its checksum verified. Errors: no such record, a wrong checksum.
  [[nodiscard]] Result<std::span<const std::byte>> read(std::string_view name) const;
  [[nodiscard]] Result<uint64_t> size(std::string_view name) const;

 private:
  struct Record {
    uint64_t header = 0;  // where its local header begins
    uint64_t offset = 0;  // of the data
    uint64_t size = 0;
    uint32_t checksum = 0;
  };
  explicit ZipReader(MappedFile file) : file_(std::move(file)) {}
  Status read_directory();
  // Reads the entry at `position` of the directory, and returns where the next one begins.
  Result<uint64_t> read_entry(uint64_t position, uint64_t end);
  // Finds the data behind the local header and remembers the record.
  Status add_record(const std::string& name, Record record);
  [[nodiscard]] Status verify_records_are_apart() const;

  MappedFile file_;
  uint64_t directory_ = 0;  // where it begins: all records lie before it
  std::map<std::string, Record, std::less<>> records_;
};

}  // namespace trireme
