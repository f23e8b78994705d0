#include "trireme/graph/graph.h"

#include <limits>

#include <gtest/gtest.h>

#include "trireme/graph/aliasing.h"
#include "trireme/graph/cuts.h"
#include "trireme/graph/op_cost.h"
#include "trireme/graph/op_rules.h"
#include "trireme/graph/passes.h"

namespace trireme {
namespace {

constexpr std::string_view kText = R"(hint s0 = 3
bounds s0 = 3..64
bounds s1 = 0..32
bounds s2 = 4..
batch s0
parameter %w "fc.weight" "head.weight" f32[4,8] grad
buffer %mean "bn.running_mean" f32[4]
constant %c "lifted" i64[] transient
input %x "x" f32[s0,8;1,s0]
input %y "y" i64[s0]
input %j "j" i64[s1] offsets "y"
region 1 in 0 no_grad
region 2 in 1 autocast on bf16
%linear = aten.linear.default(input=%x, weight=%w) -> f32[s0,4] @ fc Linear
%abs = aten.abs.default(self=%linear) -> f32[s0,4]
%view = aten.view.default(self=%linear, size=[mul(2,s0), 2]) -> f32[mul(2,s0),2]
%add_ = aten.add_.Tensor(self=%view, other=1, alpha=0.5) -> f32[mul(2,s0),2] region 1
[%a, %b] = aten.split.Tensor(self=%linear, split_size=2, dim=-1) -> f32[s0,2;4,1], f32[s0,2;4,1]
%index = aten.index.Tensor(self=%a, indices={none, %y}) -> f32[s0,s0] region 2
= aten._assert_tensor_metadata.default(a=%index, dtype=dtype:f32, layout=layout:strided)
$u0 = aten.item.default(self=%c)
%to = aten.to.device(self=%b, device=device:cpu, mask=bools[true, false], note="a \"b\"")-> f32[s0,2]
%loss = aten.cross_entropy_loss.default(self=%linear, target=%y, k=mul(s0,u0)) -> f32[]
return %loss, s0
)";

TEST(GraphText, WritingIsTheInverseOfReading) {
  const Result<Graph> graph = parse_graph(kText);
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  const std::string text = to_text(graph.value());
  const Result<Graph> again = parse_graph(text);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again.value(), graph.value());
  EXPECT_EQ(to_text(again.value()), text);
}

TEST(GraphText, ModulesMayHaveAnyName) {
  for (const std::string name :
       {"a b", "", "\"", "a\nb", " ", "a\\", "\\n \"x\"", "region 1", "\t"}) {
    Result<Graph> graph = parse_graph(kText);
    ASSERT_TRUE(graph.ok());
    graph.value().nodes[0].module = "layers." + name;
    graph.value().nodes[0].module_class = name;
    graph.value().nodes[3].module = name.empty() ? "m" : name;
    const Result<Graph> again = parse_graph(to_text(graph.value()));
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again.value(), graph.value());
  }
}

TEST(GraphText, AnErrorNamesTheLine) {
  const auto message = [](std::string_view text) {
    const Result<Graph> graph = parse_graph(text);
    return graph.ok() ? "" : graph.error().message;
  };
  EXPECT_EQ(message("input %x \"x\" f32[2]\n%a = aten.relu.default(self=%b) -> f32[2]\n"),
            "line 2: %b is not defined above");
  EXPECT_EQ(message("input %x \"x\" f99[2]\n"), "line 1: 'f99' is not a dtype");
  EXPECT_EQ(message("input %x \"x\" f32[foo(2)]\n"), "line 1: unknown size function 'foo'");
  EXPECT_EQ(message("input %x \"x\" f32[2]\nreturn %x\n"),
            "the loss %x is f32[2], not a floating-point scalar");
  EXPECT_EQ(message("input %x \"x\" f32[2]\n%a = aten.relu.default(self=%a) -> f32[]\nreturn %a\n"),
            "a aten.relu.default reads a value before it is made");
}

TEST(Passes, DeadCodeGoesAndInPlaceWritesThatAreReadStay) {
  Graph graph = parse_graph(kText).value();
  remove_assertions(graph);
  remove_dead_code(graph);
  ASSERT_TRUE(verify_graph(graph).ok()) << verify_graph(graph).error().message;
  std::vector<std::string> ops;
  for (const Node& node : graph.nodes) ops.push_back(node.op);
  EXPECT_EQ(
      ops, (std::vector<std::string>{"aten.linear.default", "aten.view.default", "aten.add_.Tensor",
                                     "aten.item.default", "aten.cross_entropy_loss.default"}));
}

TEST(OpRules, AnOutArgumentIsWrittenAndIsTheResult) {
  Graph graph = parse_graph(R"(buffer %u "u" f32[8]
input %x "x" f32[8]
%m = aten.mul.Tensor(self=%x, other=2) -> f32[8]
%d = aten.div.out(self=%m, other=%x, out=%u) -> f32[8]
%c = aten.clone.default(self=%d) -> f32[8]
%loss = aten.sum.default(self=%m) -> f32[]
return %loss
)")
                    .value();
  EXPECT_EQ(written_values(graph.nodes[1]), (std::vector<ValueId>{graph.inputs[0].value}));
  const std::vector<ValueId> roots = alias_roots(graph);
  EXPECT_EQ(roots[results(graph.nodes[1])[0].value], roots[graph.inputs[0].value.value]);
  EXPECT_NE(roots[results(graph.nodes[2])[0].value], roots[graph.inputs[0].value.value]);
  remove_dead_code(graph);
  EXPECT_EQ(graph.nodes.size(), 3u);  // the buffer outlives the step, the clone does not
}

TEST(Cuts, ABufferWrittenByOutIsReadInTheStageThatWritesIt) {
  const Graph graph = parse_graph(R"(parameter %w "w" f32[8] grad
buffer %u "u" f32[8]
input %x "x" f32[8]
%m = aten.mul.Tensor(self=%x, other=%w) -> f32[8]
%d = aten.div.out(self=%m, other=%x, out=%u) -> f32[8]
%n = aten.mul.Tensor(self=%m, other=%w) -> f32[8]
%s = aten.mul.Tensor(self=%n, other=%u) -> f32[8]
%loss = aten.sum.default(self=%s) -> f32[]
return %loss
)")
                          .value();
  const CutAnalysis cuts = analyze_cuts(graph, {}).value();
  // Nodes 1 to 3 touch the buffer's memory: no cut before node 2 or node 3.
  EXPECT_EQ(cuts.is_legal, (std::vector<bool>{false, true, false, false, true, false}));
  EXPECT_EQ(cuts.why_illegal[2], "aten.div.out changes %u in place");
}

TEST(Passes, WritesToParametersAndBuffersOutliveTheStep) {
  Graph graph = parse_graph(R"(parameter %w "w" f32[8] grad
buffer %b "b" f32[8]
input %x "x" f32[8]
%m = aten.mul.Tensor(self=%x, other=%w) -> f32[8]
%loss = aten.sum.default(self=%m) -> f32[]
%w_ = aten.clamp_.default(self=%w, min=0) -> f32[8]
%b_ = aten.add_.Tensor(self=%b, other=1) -> f32[8]
%x_ = aten.add_.Tensor(self=%x, other=1) -> f32[8]
return %loss
)")
                    .value();
  remove_dead_code(graph);
  std::vector<std::string> ops;
  for (const Node& node : graph.nodes) ops.push_back(node.op);
  EXPECT_EQ(ops, (std::vector<std::string>{"aten.mul.Tensor", "aten.sum.default",
                                           "aten.clamp_.default", "aten.add_.Tensor"}));
}

TEST(OpRules, FlopsOfALinearLayerAreTwoAMultiplyAdd) {
  const Graph graph = parse_graph(kText).value();
  const SymbolValues symbols = {{"s0", 5}};
  EXPECT_EQ(node_flops(graph, graph.nodes[0], symbols).value(), 2.0 * 5 * 8 * 4);
  EXPECT_EQ(value_bytes(graph, results(graph.nodes[0])[0], symbols).value(), 5 * 4 * 4);
}

TEST(OpRules, FlopsOfOperatorsWhoseWeightsAreLaidOutInTheirOwnWay) {
  const auto flops = [](const std::string& inputs, const std::string& call) {
    const Graph graph = parse_graph(inputs + "%a = " + call +
                                    "\n%loss = aten.sum.default(self=%a) -> f32[]\nreturn %loss\n")
                            .value();
    return node_flops(graph, graph.nodes[0], {}).value();
  };
  // Each of the 2 x 3 x 5 x 5 inputs meets 4 outputs x 2 x 2.
  EXPECT_EQ(flops("input %x \"x\" f32[2,3,5,5]\nparameter %w \"w\" f32[3,4,2,2] grad\n",
                  "aten.conv_transpose2d.input(input=%x, weight=%w) -> f32[2,4,6,6]"),
            2.0 * (2 * 3 * 5 * 5) * (4 * 2 * 2));
  EXPECT_EQ(flops("input %x \"x\" f32[7,3]\ninput %h \"h\" f32[7,4]\n"
                  "parameter %i \"i\" f32[12,3] grad\nparameter %o \"o\" f32[12,4] grad\n",
                  "aten.gru_cell.default(input=%x, hx=%h, w_ih=%i, w_hh=%o) -> f32[7,4]"),
            2.0 * 7 * 12 * (3 + 4));
  EXPECT_EQ(flops("input %x \"x\" f32[7,3]\ninput %y \"y\" f32[7,4]\n"
                  "parameter %w \"w\" f32[5,3,4] grad\n",
                  "aten.bilinear.default(input1=%x, input2=%y, weight=%w) -> f32[7,5]"),
            2.0 * 7 * 5 * 3 * 4);
}

TEST(OpRules, FlopsOfAnOperatorWithoutARuleAreTheBytesItMoves) {
  const Graph graph = parse_graph(
                          "input %x \"x\" f64[s0,3]\n"
                          "%a = own.strange.default(self=%x) -> f32[s0]\n"
                          "%loss = aten.sum.default(self=%a) -> f32[]\n"
                          "return %loss\n")
                          .value();
  EXPECT_EQ(node_flops(graph, graph.nodes[0], {{"s0", 5}}).value(), 5 * 3 * 8 + 5 * 4);
}

TEST(OpRules, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const OpRule& rule : op_rules()) EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
}

TEST(Graph, ParserQuotesWhatItRefusesInOneLine) {
  const auto message = [](const std::string& text) { return parse_graph(text).error().message; };
  EXPECT_EQ(message("input %x \"x\" f\x1b[2J"), "line 1: 'f\\x1b' is not a dtype");
  EXPECT_EQ(message("hint s0 = \x01"), "line 1: a size is missing at '\\x01'");
  EXPECT_LT(message("return %" + std::string(9000, '\b')).size(), 2100U);
}

TEST(SymExpr, DivisionAndRemainderFloorAsInPython) {
  const auto value = [](std::string_view text) {
    return std::get<int64_t>(evaluate(parse_sym_expr(text).value(), {{"n", -7}}).value());
  };
  EXPECT_EQ(value("floordiv(n,2)"), -4);
  EXPECT_EQ(value("mod(n,3)"), 2);
  EXPECT_EQ(value("max(add(n,10),mul(2,n))"), 3);
}

TEST(SymExpr, SumsAndProductsHaveOneForm) {
  EXPECT_EQ(to_text(parse_sym_expr("mul(s1,2,mul(3,s0))").value()), "mul(6,s0,s1)");
  EXPECT_EQ(to_text(parse_sym_expr("add(s0,0)").value()), "s0");
  EXPECT_EQ(to_text(SymExpr::of_float(2)), "2.0");
}

TEST(SymExpr, RefusesNumbersThatDoNotFit) {
  for (const std::string_view text :
       {"mul(n,4611686018427387904,4)", "mul(4611686018427387904,4)",
        "add(n,9223372036854775807,9)", "add(9223372036854775807,9)", "mul(n,n)",
        "floordiv(low,-1)", "pow(n,3)", "trunc(1e300)", "floor(0nan)"}) {
    const Result<SymExpr> expression = parse_sym_expr(text);
    ASSERT_TRUE(expression.ok()) << text;
    const Result<SymValue> value =
        evaluate(expression.value(),
                 {{"n", int64_t{1} << 40}, {"low", std::numeric_limits<int64_t>::min()}});
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.error().message, "a size does not fit 64 bits") << text;
  }
}

}  // namespace
}  // namespace trireme
