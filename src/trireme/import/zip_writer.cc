#include "trireme/import/zip_writer.h"

#include <zlib.h>

#include "trireme/base/check.h"
#include "trireme/import/zip_reader.h"

namespace trireme {
namespace {

template <typename T>
void put(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(T));
}

uint32_t checksum_of(const std::string& data) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
}

void put_local(std::string& file, const ZipRecord& record) {
  const std::string& name = record.local_name.value_or(record.name);
  const auto size = static_cast<uint32_t>(record.data.size());
  put<uint32_t>(file, 0x04034b50);
  put<uint16_t>(file, 20);
  put<uint16_t>(file, record.flags);
  put<uint16_t>(file, record.method);
  put<uint32_t>(file, 0);  // time
  put<uint32_t>(file, checksum_of(record.data));
  put<uint32_t>(file, size);
  put<uint32_t>(file, size);
  put<uint16_t>(file, static_cast<uint16_t>(name.size()));
  put<uint16_t>(file, record.local_extra_size.value_or(0));
  file += name + record.data;
}

void put_entry(std::string& file, const ZipRecord& record, uint32_t offset) {
  const uint32_t size = record.size.value_or(static_cast<uint32_t>(record.data.size()));
  put<uint32_t>(file, 0x02014b50);
  put<uint32_t>(file, 20 << 16 | 20);  // versions
  put<uint16_t>(file, record.flags);
  put<uint16_t>(file, record.method);
  put<uint32_t>(file, 0);  // time
  put<uint32_t>(file, record.checksum.value_or(checksum_of(record.data)));
  put<uint32_t>(file, size);
  put<uint32_t>(file, size);
  put<uint16_t>(file, record.name_size.value_or(static_cast<uint16_t>(record.name.size())));
  put<uint16_t>(file, static_cast<uint16_t>(record.extra.size()));
  put<uint16_t>(file, 0);  // comment
  put<uint32_t>(file, 0);  // disk, attributes
  put<uint32_t>(file, 0);
  put<uint32_t>(file, record.offset.value_or(offset));
  file += record.name + record.extra;
}

void put_zip64_end(std::string& file, const ZipEnd& end, uint64_t count, uint64_t size,
                   uint64_t offset) {
  const uint64_t here = file.size();
  put<uint32_t>(file, 0x06064b50);
  put<uint64_t>(file, 44);
  put<uint32_t>(file, 45 << 16 | 45);
  put<uint64_t>(file, 0);  // disks
  put<uint64_t>(file, end.zip64_count.value_or(count));
  put<uint64_t>(file, end.zip64_count.value_or(count));
  put<uint64_t>(file, end.zip64_directory_size.value_or(size));
  put<uint64_t>(file, end.zip64_directory_offset.value_or(offset));
  put<uint32_t>(file, 0x07064b50);
  put<uint32_t>(file, 0);
  put<uint64_t>(file, end.zip64_offset.value_or(here));
  put<uint32_t>(file, 1);
}

}  // namespace

std::string zip_file(const std::vector<ZipRecord>& records, const ZipEnd& end) {
  std::string file;
  std::vector<uint32_t> offsets;
  for (const ZipRecord& record : records) {
    offsets.push_back(static_cast<uint32_t>(file.size()));
    put_local(file, record);
  }
  const auto directory = static_cast<uint32_t>(file.size());
  for (size_t i = 0; i < records.size(); ++i) put_entry(file, records[i], offsets[i]);
  const auto size = static_cast<uint32_t>(file.size()) - directory;
  const auto count = static_cast<uint16_t>(records.size());
  if (end.is_zip64) put_zip64_end(file, end, count, size, directory);
  put<uint32_t>(file, 0x06054b50);
  put<uint32_t>(file, 0);  // disks
  for (int i = 0; i < 2; ++i) {
    put<uint16_t>(file, end.is_zip64 ? uint16_t{0xFFFF} : end.count.value_or(count));
  }
  put<uint32_t>(file, end.is_zip64 ? 0xFFFFFFFF : end.directory_size.value_or(size));
  put<uint32_t>(file, end.is_zip64 ? 0xFFFFFFFF : end.directory_offset.value_or(directory));
  put<uint16_t>(file, 0);  // comment
  return file;
}

std::string zip64_extra(const std::vector<uint64_t>& numbers) {
  std::string extra;
  put<uint16_t>(extra, 1);
  put<uint16_t>(extra, static_cast<uint16_t>(numbers.size() * 8));
  for (const uint64_t number : numbers) put(extra, number);
  return extra;
}

std::vector<ZipRecord> zip_records(const std::string& path) {
  const ZipReader zip = ZipReader::open(path).value();
  std::vector<ZipRecord> records;
  for (const std::string& name : zip.names()) {
    const std::span<const std::byte> bytes = zip.read(name).value();
    records.push_back(
        {.name = name, .data = {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  return records;
}

ZipRecord& find_record(std::vector<ZipRecord>& records, std::string_view suffix) {
  for (ZipRecord& record : records) {
    if (record.name.ends_with(suffix)) return record;
  }
  check_failed(__FILE__, __LINE__, "the archive has the record", suffix);
}

}  // namespace trireme
