#include "trireme/import/safetensors_writer.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/import/output_path.h"

namespace trireme {
namespace {

Error cannot_write(const std::string& path) {
  return Error{fmt::format("cannot write {}: {}", path, std::strerror(errno))};
}

// nullptr when the file system has no nameless files, or cannot be written to.
std::FILE* open_nameless(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0) return nullptr;
  std::FILE* file = ::fdopen(fd, "wb");
  if (file == nullptr) ::close(fd);
  return file;
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& given_path,
                                                    const std::vector<SafetensorsEntry>& entries) {
  const std::string path = behind_links(given_path);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    return Error{fmt::format("cannot write {}: it is no regular file", path)};
  }
  nlohmann::json header = nlohmann::json::object();
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    const std::string_view dtype = dtype_info(entry.dtype).safetensors;
    const std::optional<uint64_t> bytes = tensor_bytes(entry.sizes, entry.dtype);
    if (dtype.empty() || !bytes.has_value()) {
      return Error{fmt::format("{}: safetensors cannot hold {}, which is {}", path, entry.name,
                               dtype_info(entry.dtype).name)};
    }
    header[entry.name] = {
        {"dtype", dtype}, {"shape", entry.sizes}, {"data_offsets", {offset, offset + *bytes}}};
    offset += *bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  restore_folder(path);
  std::string temporary;
  std::FILE* file = open_nameless(path);
  if (file == nullptr) {
    temporary = temporary_name(path);
    file = std::fopen(temporary.c_str(), "wb");
  }
  if (file == nullptr) return cannot_write(path);
  SafetensorsWriter writer(path, std::move(temporary), file);
  const uint64_t header_size = text.size();
  TRIREME_TRY(writer.append(std::as_bytes(std::span(&header_size, 1))));
  TRIREME_TRY(writer.append(std::as_bytes(std::span(text))));
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ != nullptr && !temporary_.empty()) std::remove(temporary_.c_str());
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    return cannot_write(path_);
  }
  return Status();
}

Status SafetensorsWriter::commit() {
  if (std::fflush(file_.get()) != 0 || fsync(fileno(file_.get())) != 0) return cannot_write(path_);
  if (temporary_.empty()) {
    // A link cannot take the place of a file that exists, so it goes by a name of its own.
    restore_folder(path_);
    const std::string name = temporary_name(path_);
    const std::string nameless = fmt::format("/proc/self/fd/{}", fileno(file_.get()));
    if (::linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return cannot_write(path_);
    }
    temporary_ = name;
  }
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return cannot_write(path_);
  file_.reset();
  return Status();
}

}  // namespace trireme
