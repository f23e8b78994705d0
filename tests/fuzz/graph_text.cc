// The text form of a Graph, its rules, and what a plan asks of it.

#include "trireme/graph/cuts.h"
#include "trireme/graph/graph.h"
#include "trireme/plan/plan.h"

#include "fuzz.h"

using namespace trireme;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Graph> graph = parse_graph(fuzz::text_of(data, size));
  if (!fuzz::is_accepted(graph)) return 0;
  fuzz::expect_text_form(graph.value(), parse_graph);
  if (!fuzz::is_accepted(verify_graph(graph.value()))) return 0;
  if (!fuzz::is_accepted(analyze_cuts(graph.value(), example_symbols(graph.value(), 2)))) return 0;
  const Result<Plan> plan = build_plan(graph.value(), "m.pt2", {.pp = 2, .dp = 1});
  if (!fuzz::is_accepted(plan)) return 0;
  fuzz::expect_text_form(plan.value(), parse_plan);
  TRIREME_CHECK(fuzz::is_accepted(partition_by_plan(plan.value(), graph.value())),
                "a plan that was built cannot be carried out");
  return 0;
}
