// A whole archive, as bytes: the ZIP file, and what is in it as far as its checksums are right.

#include "trireme/import/archive.h"
#include "trireme/import/zip_reader.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  const Result<ZipReader> zip = ZipReader::open(file.path());
  if (!fuzz::is_accepted(zip)) return 0;
  for (const std::string& name : zip.value().names()) {
    const auto bytes = zip.value().read(name);
    if (!fuzz::is_accepted(bytes)) continue;
    TRIREME_CHECK(bytes.value().size() == zip.value().size(name).value(), name);
  }
  static_cast<void>(fuzz::is_accepted(Archive::open(file.path())));
  return 0;
}
