// SafetensorsWriter: writes a safetensors file tensor by tensor, whole or not at all.
//
// Until commit() the file has no name (O_TMPFILE), so nothing stays of it when the process is
// killed. File systems without such files get `path`.<process id>.tmp instead.
//
// A link is followed. What is there and is no regular file (a device, a pipe) stays: an error. A
// folder that is missing is made.
//
//   TRIREME_TRY(SafetensorsWriter writer, SafetensorsWriter::create(path, entries));
//   for (...) TRIREME_TRY(writer.append(bytes));   in the order of the entries
//   TRIREME_TRY(writer.commit());                  only now does `path` exist, or change
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/result.h"
#include "trireme/graph/dtype.h"

namespace trireme {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
};

class SafetensorsWriter {
 public:
  // Errors: the folder cannot be written to; a dtype that the format lacks.
  static Result<SafetensorsWriter> create(const std::string& path,
                                          const std::vector<SafetensorsEntry>& entries);
  // Without commit() the file is as it was before.
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;

  Status append(std::span<const std::byte> bytes);
  // REQUIRES: the bytes of all entries were appended.
  Status commit();

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  SafetensorsWriter(std::string path, std::string temporary, std::FILE* file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}

  std::string path_;
  std::string temporary_;  // the name beside `path_`, once the file has it
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace trireme
