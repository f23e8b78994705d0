// A whole archive by its records, so that checksums are right and every table meets every other:
//
//   @m/models/model.json
//   {...}
//   @m/data/weights/weight_0 256        that many zero bytes
//
// A line that begins with @ begins a record; its bytes are the lines that follow.

#include <algorithm>
#include <charconv>
#include <vector>

#include "trireme/graph/cuts.h"
#include "trireme/import/archive.h"
#include "trireme/import/zip_writer.h"

#include "fuzz.h"

using namespace trireme;

namespace {

std::vector<ZipRecord> records_of(std::string_view text) {
  std::vector<ZipRecord> records;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with('@')) {
      if (!records.empty()) records.back().data += line;
      continue;
    }
    const size_t space = std::min(line.find(' '), line.size());
    size_t num_bytes = 0;
    std::from_chars(line.data() + std::min(space + 1, line.size()), line.data() + line.size(),
                    num_bytes);
    ZipRecord record;
    record.name = line.substr(1, space - 1);
    record.data = std::string(std::min<size_t>(num_bytes, 4096), '\0');
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(zip_file(records_of(fuzz::text_of(data, size))));
  const Result<Archive> archive = Archive::open(file.path());
  if (!fuzz::is_accepted(archive)) return 0;
  const Graph& graph = archive.value().graph();
  fuzz::expect_text_form(graph, parse_graph);
  static_cast<void>(fuzz::is_accepted(analyze_cuts(graph, example_symbols(graph, 2))));
  for (const GraphInput& input : graph.inputs) {
    for (const std::string& name : input.names) {
      const StoredTensor* stored = archive.value().find_tensor(name);
      if (stored != nullptr) static_cast<void>(archive.value().read_storage(*stored));
    }
  }
  return 0;
}
