#include "trireme/import/zip_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include <zlib.h>

#include <fmt/format.h>

namespace trireme {
namespace {

constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kEnd64LocatorSignature = 0x07064b50;
constexpr uint32_t kEntrySignature = 0x02014b50;
constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint64_t kEndSize = 22;
constexpr uint64_t kEntrySize = 46;
constexpr uint64_t kLocalSize = 30;
constexpr uint64_t kEnd64Size = 56;
constexpr uint64_t kEnd64LocatorSize = 20;

// Little-endian numbers at a position. REQUIRES: they lie inside the bytes.
template <typename T>
T number_at(std::span<const std::byte> bytes, uint64_t position) {
  TRIREME_CHECK(position + sizeof(T) <= bytes.size(), "a number outside the file is read");
  T value = 0;
  std::memcpy(&value, bytes.data() + position, sizeof(T));
  return value;
}

// True when `size` bytes from `position` lie inside the file.
bool fits(std::span<const std::byte> bytes, uint64_t position, uint64_t size) {
  return position <= bytes.size() && size <= bytes.size() - position;
}

// The record at the end of the file, behind which is nothing but its comment: a record of the
// archive may be a ZIP file as well, with such a record of its own.
std::optional<uint64_t> find_end(std::span<const std::byte> bytes) {
  if (bytes.size() < kEndSize) return std::nullopt;
  const uint64_t last = bytes.size() - kEndSize;
  const uint64_t first = last > 0xFFFF ? last - 0xFFFF : 0;
  for (uint64_t position = last + 1; position-- > first;) {
    if (number_at<uint32_t>(bytes, position) == kEndSignature &&
        number_at<uint16_t>(bytes, position + 20) == last - position) {
      return position;
    }
  }
  return std::nullopt;
}

// Control characters in the name of a record come from damage, or would change a terminal.
bool is_record_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7F;
  });
}

}  // namespace

Result<ZipReader> ZipReader::open(const std::string& path) {
  TRIREME_TRY(MappedFile file, MappedFile::open(path));
  ZipReader reader(std::move(file));
  TRIREME_TRY(reader.read_directory());
  return reader;
}

Status ZipReader::read_directory() {
  const std::span<const std::byte> bytes = file_.bytes();
  const std::optional<uint64_t> end = find_end(bytes);
  if (!end.has_value()) {
    const bool starts_as_zip =
        bytes.size() >= 4 && number_at<uint32_t>(bytes, 0) == kLocalSignature;
    return Error{
        starts_as_zip
            ? fmt::format("{} is truncated: the ZIP directory at its end is missing", path())
            : fmt::format("{} is not a ZIP file, so not an archive of torch.export.save", path())};
  }
  uint64_t count = number_at<uint16_t>(bytes, *end + 10);
  uint64_t size = number_at<uint32_t>(bytes, *end + 12);
  uint64_t position = number_at<uint32_t>(bytes, *end + 16);
  if (count == 0xFFFF || size == 0xFFFFFFFF || position == 0xFFFFFFFF) {
    if (*end < kEnd64LocatorSize ||
        number_at<uint32_t>(bytes, *end - kEnd64LocatorSize) != kEnd64LocatorSignature) {
      return Error{fmt::format("{} is corrupted: its ZIP64 directory is missing", path())};
    }
    const auto end64 = number_at<uint64_t>(bytes, *end - kEnd64LocatorSize + 8);
    if (!fits(bytes, end64, kEnd64Size) || number_at<uint32_t>(bytes, end64) != kEnd64Signature) {
      return Error{
          fmt::format("{} is corrupted: its ZIP64 directory is not where it says", path())};
    }
    count = number_at<uint64_t>(bytes, end64 + 32);
    size = number_at<uint64_t>(bytes, end64 + 40);
    position = number_at<uint64_t>(bytes, end64 + 48);
  }
  if (!fits(bytes, position, size)) {
    return Error{fmt::format("{} is truncated: its ZIP directory lies outside the file", path())};
  }
  const uint64_t directory_end = position + size;
  // torch writes a ZIP64 end whether it is needed or not.
  const bool is_followed =
      directory_end == *end || (fits(bytes, directory_end, 4) &&
                                number_at<uint32_t>(bytes, directory_end) == kEnd64Signature);
  if (!is_followed) {
    return Error{fmt::format("{} is corrupted: its ZIP directory is not where it says", path())};
  }
  directory_ = position;
  for (uint64_t i = 0; i < count; ++i) {
    TRIREME_TRY(position, read_entry(position, directory_end));
  }
  if (position != directory_end) {
    return Error{fmt::format(
        "{} is corrupted: its ZIP directory has more than the {} records that it counts", path(),
        count)};
  }
  return verify_records_are_apart();
}

Result<uint64_t> ZipReader::read_entry(uint64_t position, uint64_t end) {
  const std::span<const std::byte> bytes = file_.bytes();
  const Error corrupted{fmt::format("{} is corrupted: its ZIP directory is damaged", path())};
  if (position + kEntrySize > end || number_at<uint32_t>(bytes, position) != kEntrySignature) {
    return corrupted;
  }
  const auto flags = number_at<uint16_t>(bytes, position + 8);
  const auto method = number_at<uint16_t>(bytes, position + 10);
  uint64_t stored_size = number_at<uint32_t>(bytes, position + 20);
  Record record{.header = number_at<uint32_t>(bytes, position + 42),
                .size = number_at<uint32_t>(bytes, position + 24),
                .checksum = number_at<uint32_t>(bytes, position + 16)};
  const auto name_size = number_at<uint16_t>(bytes, position + 28);
  const auto extra_size = number_at<uint16_t>(bytes, position + 30);
  const auto comment_size = number_at<uint16_t>(bytes, position + 32);
  const uint64_t next = position + kEntrySize + name_size + extra_size + comment_size;
  if (next > end) return corrupted;
  const std::string name(reinterpret_cast<const char*>(bytes.data()) + position + kEntrySize,
                         name_size);
  if (!is_record_name(name)) return corrupted;
  // ZIP64: the extra field 1 holds, in this order, those numbers that did not fit.
  uint64_t extra = position + kEntrySize + name_size;
  const uint64_t extra_end = extra + extra_size;
  while (extra + 4 <= extra_end) {
    const auto id = number_at<uint16_t>(bytes, extra);
    const uint64_t field_end = extra + 4 + number_at<uint16_t>(bytes, extra + 2);
    if (field_end > extra_end) return corrupted;
    uint64_t field = extra + 4;
    for (uint64_t* number : {&record.size, &stored_size, &record.header}) {
      if (id != 1 || *number != 0xFFFFFFFF) continue;
      if (field + 8 > field_end) return corrupted;
      *number = number_at<uint64_t>(bytes, field);
      field += 8;
    }
    extra = field_end;
  }
  if ((flags & 1) != 0) return Error{fmt::format("{}: record {} is encrypted", path(), name)};
  if (method != 0 || stored_size != record.size) {
    if (name.find("/code/__torch__") != std::string::npos) {  // all that torch itself compresses
      return Error{fmt::format(
          "{} is a TorchScript file, not a .pt2; export the model with trireme.export", path())};
    }
    return Error{
        fmt::format("{}: record {} is compressed; write the archive with torch.export.save and do "
                    "not repack it",
                    path(), name)};
  }
  TRIREME_TRY(add_record(name, record));
  return next;
}

Status ZipReader::add_record(const std::string& name, Record record) {
  // What lies behind the records is no record's.
  const std::span<const std::byte> bytes = file_.bytes().first(directory_);
  const uint64_t header = record.header;
  const uint64_t name_at = header + kLocalSize;
  if (!fits(bytes, header, kLocalSize) || number_at<uint32_t>(bytes, header) != kLocalSignature ||
      !fits(bytes, name_at, name.size()) ||
      number_at<uint16_t>(bytes, header + 26) != name.size() ||
      std::memcmp(bytes.data() + name_at, name.data(), name.size()) != 0) {
    return Error{
        fmt::format("{} is corrupted: record {} is not where its directory says", path(), name)};
  }
  record.offset = name_at + name.size() + number_at<uint16_t>(bytes, header + 28);
  if (!fits(bytes, record.offset, record.size)) {
    return Error{fmt::format("{} is truncated: record {} ends outside the file", path(), name)};
  }
  if (!records_.emplace(name, record).second) {
    return Error{fmt::format("{} is corrupted: it has two records {}", path(), name)};
  }
  return Status();
}

Status ZipReader::verify_records_are_apart() const {
  struct Place {
    uint64_t begin;
    uint64_t end;
    const std::string* name;
  };
  std::vector<Place> places;
  for (const auto& [name, record] : records_) {
    places.push_back({record.header, record.offset + record.size, &name});
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i - 1].end > places[i].begin) {
      return Error{fmt::format("{} is corrupted: its records {} and {} overlap", path(),
                               *places[i - 1].name, *places[i].name)};
    }
  }
  return Status();
}

std::vector<std::string> ZipReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, record] : records_) names.push_back(name);
  return names;
}

Result<uint64_t> ZipReader::size(std::string_view name) const {
  const auto found = records_.find(name);
  if (found == records_.end()) {
    return Error{fmt::format("{} has no record {}", path(), name)};
  }
  return found->second.size;
}

Result<std::span<const std::byte>> ZipReader::read(std::string_view name) const {
  const auto found = records_.find(name);
  if (found == records_.end()) {
    return Error{fmt::format("{} has no record {}", path(), name)};
  }
  const std::span<const std::byte> data =
      file_.bytes().subspan(found->second.offset, found->second.size);
  const uLong checksum = crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size());
  if (checksum != found->second.checksum) {
    return Error{fmt::format("{} is corrupted: the checksum of record {} is {:08x}, not {:08x}",
                             path(), name, checksum, found->second.checksum)};
  }
  return data;
}

}  // namespace trireme
