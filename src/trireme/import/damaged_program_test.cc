// Archives whose JSON is well-formed but not what torch.export writes: what the reader says.

#include "trireme/import/damaged_program.h"

#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

std::string error_after(std::string_view name, const std::function<void(DamagedProgram&)>& damage) {
  DamagedProgram damaged(name);
  damage(damaged);
  return damaged.error();
}
std::string mlp_error(const std::function<void(DamagedProgram&)>& damage) {
  return error_after("mlp", damage);
}
// What is said of the first node of mlp.
std::string in_linear(std::string_view what) {
  return fmt::format(": node linear (torch.ops.aten.linear.default) of module 'model.0': {}", what);
}

TEST(DamagedProgram, IsWholeWhenNothingIsDamaged) {
  for (const std::string_view name : {"mlp", "tricky", "nanogpt_autocast"}) {
    EXPECT_EQ(error_after(name, [](DamagedProgram&) {}), "");
  }
}

TEST(DamagedProgram, IsRefusedWhenItIsNoJson) {
  DamagedProgram damaged("mlp");
  EXPECT_EQ(damaged.error_of_text(""), ": its JSON is malformed at byte 1 of 0");
  EXPECT_EQ(damaged.error_of_text("{\"a\": 1"), ": its JSON is malformed at byte 8 of 7");
  EXPECT_EQ(damaged.error_of_text("{\"a\": \"\xFF\"}"), ": its JSON is malformed at byte 8 of 10");
  EXPECT_EQ(damaged.error_of_text("3"), " is corrupted: cannot use at() with number");
  EXPECT_EQ(damaged.error_of_text("{}"), " is corrupted: key 'schema_version' not found");
}

TEST(DamagedProgram, IsRefusedWhenItNestsWithoutEnd) {
  DamagedProgram damaged("tricky");
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_EQ(damaged.error_of_text(deep), " is corrupted: cannot use at() with array");
  // A value anywhere in the program, the loss for one.
  const std::string text = damaged.program.dump();
  const std::string loss = R"("user_output":{"arg":)";
  const size_t place = text.find(loss) + loss.size();
  EXPECT_EQ(damaged.error_of_text(text.substr(0, place) + deep +
                                  text.substr(text.find("}}}", place) + 2)),
            ": its first output is not a tensor but should be the loss");
}

TEST(DamagedProgram, IsRefusedWhenItsSubGraphsNestDeeperThanTheyCan) {
  const std::string head =
      R"({"target":"torch.ops.higher_order.wrap_with_set_grad_enabled","name":"h","outputs":[],)"
      R"("inputs":[{"name":"","arg":{"as_bool":false}},{"name":"","arg":{"as_graph":{"graph":)"
      R"({"inputs":[],"outputs":[],"tensor_values":{},"nodes":[)";
  const std::string tail = "]}}}}]}";
  DamagedProgram damaged("mlp");
  const std::string text = damaged.program.dump();
  const size_t place = text.find("\"nodes\":[") + 9;
  const auto nested = [&](int depth) {
    std::string nodes;
    for (int i = 0; i < depth; ++i) nodes += head;
    for (int i = 0; i < depth; ++i) nodes += tail;
    return damaged.error_of_text(text.substr(0, place) + nodes + "," + text.substr(place));
  };
  EXPECT_EQ(nested(32), "");
  const std::string refused =
      ": node h (torch.ops.higher_order.wrap_with_set_grad_enabled): sub-graphs are "
      "nested deeper than 32";
  EXPECT_EQ(nested(33), refused);
  EXPECT_EQ(nested(10000), refused);
}

TEST(DamagedProgram, IsRefusedWhenItsSchemaIsOfAnotherVersion) {
  EXPECT_EQ(mlp_error([](auto& d) { d.program["schema_version"]["major"] = 9; }),
            ": its schema version is 9, and this reader knows 8; export with torch 2.13");
}

TEST(DamagedProgram, IsRefusedWhenItIsNotTrainingIr) {
  EXPECT_EQ(mlp_error([](auto& d) { d.program["verifiers"] = {"EDGE"}; }),
            ": it is not training IR; save what torch.export.export returns, without "
            "run_decompositions");
  EXPECT_EQ(mlp_error([](auto& d) {
              const Json spec = d.signature()["output_specs"][1]["user_output"];
              d.signature()["output_specs"][1] = {{"buffer_mutation", spec}};
            }),
            ": it has an output of kind buffer_mutation: it is not training IR; save what "
            "torch.export.export returns, without run_decompositions");
}

TEST(DamagedProgram, IsRefusedWhenAnOperatorIsNotSupported) {
  EXPECT_EQ(
      mlp_error([](auto& d) { d.node("linear")["target"] = "math.trunc"; }),
      ": node linear (math.trunc) of module 'model.0': a function of Python is called; replace "
      "it in the model");
  EXPECT_EQ(
      error_after("tricky",
                  [](auto& d) {
                    for (Json& node : d.graph()["nodes"]) {
                      if (node["target"] == "torch.ops.higher_order.wrap_with_set_grad_enabled") {
                        node["target"] = "torch.ops.higher_order.cond";
                        node["name"] = "branch";
                      }
                    }
                  }),
      ": node branch (torch.ops.higher_order.cond): the higher-order operator cond "
      "is not supported; replace data-dependent control flow and re-entrant checkpointing in "
      "the model");
}

TEST(DamagedProgram, IsRefusedWhenAnArgumentIsNotSupported) {
  const auto with_argument = [](const Json& argument) {
    return mlp_error([&](auto& d) { d.node("linear")["inputs"][0]["arg"] = argument; });
  };
  EXPECT_EQ(with_argument({{"as_operator", "torch.ops.aten.add"}}),
            in_linear("an argument of kind as_operator is not supported"));
  EXPECT_EQ(with_argument({{"as_tensor", {{"name", "nobody"}}}}),
            in_linear("the tensor nobody is used before it is made"));
  EXPECT_EQ(with_argument({{"as_tensor", {{"name", "linear_1"}}}}),
            in_linear("the tensor linear_1 is used before it is made"));
  EXPECT_EQ(with_argument({{"as_int", 1}, {"as_bool", true}}),
            in_linear("an argument is not a union of one kind"));
  EXPECT_EQ(with_argument({{"as_int", 1.5}}),
            in_linear("an integer is expected, but found number"));
  EXPECT_EQ(with_argument({{"as_int", UINT64_MAX}}),
            in_linear("the integer 18446744073709551615 is too large"));
  EXPECT_EQ(with_argument({{"as_float", "much"}}), in_linear("'much' is not a number"));
  EXPECT_EQ(with_argument({{"as_ints", nullptr}}),
            in_linear("an array is expected, but found null"));
  EXPECT_EQ(with_argument({{"as_memory_format", -1}}), in_linear("memory format -1 is not known"));
  EXPECT_EQ(with_argument({{"as_layout", 1}}), in_linear("only the strided layout is supported"));
  EXPECT_EQ(with_argument({{"as_scalar_type", 0}}),
            in_linear("tensors of torch._export ScalarType 0 are not supported"));
  EXPECT_EQ(with_argument({{"as_sym_int", {{"as_name", "n"}}}}),
            in_linear("the number n is not defined"));
}

TEST(DamagedProgram, IsRefusedWhenATensorIsNotSupported) {
  const auto with_type = [](const std::string& key, const Json& value) {
    return mlp_error([&](auto& d) { d.type("linear")[key] = value; });
  };
  EXPECT_EQ(with_type("dtype", 99),
            in_linear("tensors of torch._export ScalarType 99 are not supported"));
  EXPECT_EQ(mlp_error([](auto& d) { d.type("x")["dtype"] = 99; }),
            ": input x: tensors of torch._export ScalarType 99 are not supported");
  EXPECT_EQ(with_type("layout", 1),
            in_linear("a tensor is not strided; sparse and other layouts are not supported"));
  EXPECT_EQ(with_type("sizes", Json::array()), in_linear("a tensor has 0 sizes but 2 strides"));
  const std::string impossible = in_linear("a tensor has impossible sizes or strides");
  const Json huge = {{"as_int", int64_t{1} << 40}};
  EXPECT_EQ(with_type("sizes", {{{"as_int", -3}}, {{"as_int", 16}}}), impossible);
  EXPECT_EQ(with_type("sizes", {huge, huge}), impossible);
  EXPECT_EQ(with_type("strides", {{{"as_int", -16}}, {{"as_int", 1}}}), impossible);
}

TEST(DamagedProgram, IsRefusedWhenASizeIsMalformed) {
  const auto with_size = [](const std::string& expression) {
    return mlp_error(
        [&](auto& d) { d.type("linear")["sizes"][0]["as_expr"]["expr_str"] = expression; });
  };
  for (const std::string_view expression :
       {"", "Symbol(", "Symbol('s17'", "Symbol('a b')", "Symbol('7')", "Mul(Integer(2)",
        "Integer(x)", "Integer(2)Integer(3)", "Mod(Integer(2))", "Float('1.5x')", "Rational(1)",
        "s17"}) {
    const std::string message = with_size(std::string(expression));
    EXPECT_TRUE(message.starts_with(in_linear("a size expression is malformed at '"))) << message;
  }
  EXPECT_EQ(with_size("Add(Integer(2),, Integer(3))"),
            in_linear("a size expression is malformed at ', Integer(3))'"));
  EXPECT_EQ(with_size("Zeta(Integer(2))"),
            in_linear("sizes with the function Zeta are not supported"));
  std::string deep = "Symbol('s17')";
  for (int i = 0; i < 10000; ++i) deep = "Not(" + deep + ")";
  EXPECT_EQ(with_size(deep), in_linear("a size expression is nested deeper than 64"));
}

TEST(DamagedProgram, IsRefusedWhenANodeLacksWhatItNeeds) {
  EXPECT_EQ(mlp_error([](auto& d) { d.node("linear").erase("inputs"); }),
            ": node linear (torch.ops.aten.linear.default) of module 'model.0' is malformed: key "
            "'inputs' not found");
  EXPECT_EQ(mlp_error([](auto& d) { d.node("linear")["inputs"] = nullptr; }),
            in_linear("'inputs' is not an array but null"));
  EXPECT_EQ(mlp_error([](auto& d) { d.graph()["tensor_values"].erase("linear"); }),
            in_linear("the tensor linear has no type"));
  EXPECT_EQ(
      mlp_error([](auto& d) { d.node("relu")["outputs"][0]["as_tensor"]["name"] = "linear"; }),
      ": node relu (torch.ops.aten.relu.default) of module 'model.1': the tensor linear is made "
      "twice");
  EXPECT_EQ(mlp_error([](auto& d) { d.node("linear")["metadata"]["nn_module_stack"] = "a\nb"; }),
            ": node linear (torch.ops.aten.linear.default): the name 'a\\x0ab' has a "
            "control character");
  EXPECT_EQ(mlp_error([](auto& d) { d.node("linear")["outputs"][0]["as_tensor"]["name"] = "a b"; }),
            in_linear("'a b' is not a name"));
}

TEST(DamagedProgram, IsRefusedWhenASubGraphDoesNotFitItsUse) {
  const auto with_grad_mode = [](const std::function<void(Json&)>& damage) {
    return error_after("tricky", [&](auto& d) {
      for (Json& node : d.graph()["nodes"]) {
        if (node["target"] == "torch.ops.higher_order.wrap_with_set_grad_enabled") damage(node);
      }
    });
  };
  const std::string node =
      ": node wrap_with_set_grad_enabled (torch.ops.higher_order.wrap_with_set_grad_enabled): ";
  EXPECT_EQ(with_grad_mode([](Json& n) { n["inputs"].erase(2); }),
            node + "its sub-graph takes 4 inputs but is given 3");
  EXPECT_EQ(with_grad_mode([](Json& n) { n["outputs"] = Json::array(); }),
            node + "its sub-graph returns more than is used");
  EXPECT_EQ(with_grad_mode([](Json& n) {
              n["inputs"][1]["arg"]["as_graph"]["graph"]["outputs"] = Json::array();
            }),
            node + "its sub-graph returns less than is used");
}

TEST(DamagedProgram, IsRefusedWhenItsInputsOrOutputsAreNotThoseOfTraining) {
  const std::string remedy = "export it with trireme.export(model, batch, path, loss=...)";
  EXPECT_EQ(
      mlp_error([](auto& d) { d.signature()["output_specs"] = Json::array(); }),
      ": it returns 0 values; a training graph returns the loss, or the loss and the number of "
      "items: " +
          remedy);
  const auto with_output = [](size_t index, const Json& argument) {
    return mlp_error(
        [&](auto& d) { d.signature()["output_specs"][index]["user_output"]["arg"] = argument; });
  };
  EXPECT_EQ(with_output(0, {{"as_tensor", {{"name", "linear_2"}}}}),
            ": its first output linear_2 is f32[s17,5], not a scalar loss: " + remedy);
  EXPECT_EQ(with_output(0, {{"as_int", 3}}),
            ": its first output is not a tensor but should be the loss");
  EXPECT_EQ(with_output(1, {{"as_string", "3"}}), ": its second output is not a number of items");
  EXPECT_EQ(mlp_error([](auto& d) {
              d.signature()["input_specs"][6] = {{"custom_obj", {{"arg", {{"name", "x"}}}}}};
            }),
            ": an input of kind custom_obj is not supported; pass tensors only");
}

TEST(DamagedProgram, IsRefusedWhenAWeightIsNotStoredAsTheGraphHasIt) {
  const std::string table = ": mlp/data/weights/model_weights_config.json: model.0.bias: ";
  const auto with_place = [](const std::function<void(Json&)>& damage) {
    return mlp_error([&](auto& d) { damage(d.weights["config"]["model.0.bias"]); });
  };
  EXPECT_EQ(with_place([](Json& p) { p["use_pickle"] = true; }),
            table +
                "it is a tensor subclass or an object stored by pickle, which is not supported; "
                "export the model with plain tensors");
  const auto with_meta = [&](const std::string& key, const Json& value) {
    return with_place([&](Json& p) { p["tensor_meta"][key] = value; });
  };
  EXPECT_EQ(with_meta("sizes", {{{"as_expr", 1}}}), table + "a stored tensor has a symbolic size");
  EXPECT_EQ(with_meta("sizes", {{{"as_int", -16}}}),
            table + "a stored tensor has the negative size or stride -16");
  EXPECT_EQ(with_meta("sizes", {{{"as_int", INT64_MAX}}}), table + "it has impossible sizes");
  EXPECT_EQ(with_meta("strides", Json::array()), table + "it has 1 sizes but 0 strides");
  EXPECT_EQ(with_meta("storage_offset", {{"as_int", -1}}),
            table + "it has the negative storage offset -1");
  EXPECT_EQ(with_meta("storage_offset", {{"as_int", 1}}),
            ": record mlp/data/weights/weight_1 has 64 bytes, too few for its tensor");
  EXPECT_EQ(with_meta("strides", {{{"as_int", INT64_MAX}}}),
            ": record mlp/data/weights/weight_1 has 64 bytes, too few for its tensor");
  EXPECT_EQ(with_meta("sizes", {{{"as_int", 8}}}),
            " is corrupted: model.0.bias is f32[16] in the graph but stored as f32[8]");
  EXPECT_EQ(with_meta("dtype", 8),
            " is corrupted: model.0.bias is f32[16] in the graph but stored as f64[16]");
  EXPECT_EQ(mlp_error([](auto& d) { d.weights["config"].erase("model.0.bias"); }),
            " is corrupted: nothing says where model.0.bias is stored");
}

TEST(DamagedProgram, IsRefusedWhenItsTiesAreNotTies) {
  const auto with_ties = [](const std::string& ties) {
    DamagedProgram damaged("mlp");
    damaged.add_record("mlp/extra/trireme.json", ties);
    return damaged.error();
  };
  EXPECT_EQ(with_ties(R"({"ties": []})"), "");
  EXPECT_EQ(with_ties(R"({"ties": [["model.0.bias", "model.3.bias"]]})"), "");
  EXPECT_EQ(with_ties(R"({"ties": [["model.0.bias", "model.0.weight"]]})"),
            " is corrupted: the parameters model.0.weight and model.0.bias are tied but are "
            "f32[16,12] and f32[16]");
  EXPECT_EQ(with_ties(R"({"ties": 3})"),
            ": mlp/extra/trireme.json is corrupted: type must be array, but is number");
  EXPECT_EQ(with_ties("ties"), ": mlp/extra/trireme.json: its JSON is malformed at byte 2 of 4");
}

}  // namespace
}  // namespace trireme
