// The program of an archive: torch.export's JSON.

#include "trireme/graph/cuts.h"
#include "trireme/import/program_reader.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const Result<Program> program = read_program(bytes, "model.json");
  if (!fuzz::is_accepted(program)) return 0;
  const Graph& graph = program.value().graph;
  fuzz::expect_text_form(graph, parse_graph);
  static_cast<void>(fuzz::is_accepted(analyze_cuts(graph, example_symbols(graph, 2))));
  return 0;
}
