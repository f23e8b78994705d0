// Archives of which one value of the JSON is missing or of another type. Most are refused; what the
// reader accepts has to be listed here, so that nothing it needs is ever skipped in silence.

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/import/damaged_program.h"

namespace trireme {
namespace {

using Pointer = Json::json_pointer;

void collect_places(const Json& json, Pointer here, std::vector<Pointer>& places) {
  if (json.is_object()) {
    for (const auto& [key, member] : json.items()) {
      places.push_back(here / key);
      collect_places(member, places.back(), places);
    }
  } else if (json.is_array()) {
    for (size_t i = 0; i < json.size(); ++i) {
      places.push_back(here / i);
      collect_places(json[i], places.back(), places);
    }
  }
}

std::vector<Pointer> places_of(const Json& json) {
  std::vector<Pointer> places;
  collect_places(json, Pointer(), places);
  return places;
}

// The place in words: nodes by their operators, other members of arrays all alike.
std::string described(const Json& whole, const Pointer& place) {
  std::vector<std::string> keys;
  for (Pointer rest = place; !rest.empty(); rest.pop_back()) keys.push_back(rest.back());
  std::reverse(keys.begin(), keys.end());
  std::string text;
  const Json* json = &whole;
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool is_array = json->is_array();
    json = is_array ? &json->at(std::stoul(keys[i])) : &json->at(keys[i]);
    if (i > 0 && is_array && keys[i - 1] == "nodes") {
      text += "/" + json->at("target").get<std::string>().substr(10);
    } else {
      text += is_array ? "/*" : "/" + keys[i];
    }
  }
  return text;
}

// Without the names of tensors: what is read by the same line.
std::string kind_of(std::string text) {
  for (const std::string_view table : {"/tensor_values/", "/config/"}) {
    const size_t begin = text.find(table);
    if (begin == std::string::npos) continue;
    // Names of weights have dots, but no slashes.
    const size_t name = begin + table.size();
    text.replace(name, std::min(text.find('/', name), text.size()) - name, "*");
  }
  return text;
}

// What the engine has no use for: an archive without it, or with something else there, is as good.
bool is_unread(const std::string& place) {
  static constexpr std::array kEverywhere = {
      // Devices are the rank's, gradients and offsets are those of the stored tensors.
      "/device", "/device/type", "/device/index", "/storage_offset", "/storage_offset/as_int",
      "/is_param", "/requires_grad",
      // For people, and for Python.
      "/kind", "/torch_fn", "/metadata", "/metadata/nn_module_stack", "/is_single_tensor_return",
      "/is_hop_single_tensor_return", "/as_graph/name", "/custom_obj_values",
      // Example sizes are a help where they are there.
      "/hint", "/hint/as_int",
      // Tables of numbers: who needs one of them says so.
      "/sym_int_values", "/sym_bool_values", "/sym_float_values"};
  static constexpr std::array kSubtrees = {
      "/opset_version", "/range_constraints", "/torch_version", "/guards_code",
      "/schema_version/minor", "/graph_module/module_call_graph", "/graph_module/metadata",
      "/graph_module/treespec_namedtuple_fields",
      // The signature says the same.
      "/graph_module/graph/inputs", "/graph_module/graph/outputs",
      // Such nodes go; what sym_size returns is known by its expression.
      "/graph_module/graph/nodes/aten._assert_tensor_metadata.default/",
      "/graph_module/graph/nodes/aten.sym_size.int/inputs",
      // A sub-graph is called by position.
      "/graph_module/graph/nodes/higher_order.wrap_with_set_grad_enabled/inputs/*/name",
      // The sub-graph of tricky takes these and returns those: the types are known already.
      "/graph_module/graph/tensor_values/exp", "/graph_module/graph/tensor_values/linear_1"};
  const std::string sub_graph =
      "/graph_module/graph/nodes/higher_order.wrap_with_set_grad_enabled/inputs/*/arg/as_graph/"
      "graph/"
      "tensor_values/";
  for (const std::string_view formal : {"linear", "x", "p_h_weight", "p_h_bias"}) {
    if ((place + "/").starts_with(fmt::format("{}{}/", sub_graph, formal))) return true;
  }
  const size_t node = place.rfind("/nodes/") + 7;
  const bool is_node_name = place.find("/nodes/") != std::string::npos &&
                            place.ends_with("/name") && place.find('/', node) == place.size() - 5;
  return is_node_name ||
         std::any_of(kEverywhere.begin(), kEverywhere.end(),
                     [&](std::string_view end) { return place.ends_with(end); }) ||
         std::any_of(kSubtrees.begin(), kSubtrees.end(),
                     [&](std::string_view begin) { return place.starts_with(begin); });
}

class ProgramMutation : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(OfTheZoo, ProgramMutation, testing::Values("mlp", "tricky"),
                         [](const auto& instance) { return instance.param; });

TEST_P(ProgramMutation, IsRefusedWithoutAnyKeyThatIsRead) {
  DamagedProgram damaged(GetParam());
  std::set<std::string> accepted;
  for (Json* const table : {&damaged.program, &damaged.weights}) {
    const Json whole = *table;
    for (const Pointer& place : places_of(whole)) {
      if (!whole[place.parent_pointer()].is_object()) continue;
      SCOPED_TRACE(place.to_string());
      (*table)[place.parent_pointer()].erase(place.back());
      if (damaged.error().empty()) accepted.insert(described(whole, place));
      *table = whole;
    }
  }
  for (const std::string& place : accepted) EXPECT_TRUE(is_unread(place)) << place;
}

TEST_P(ProgramMutation, IsRefusedWhenAnyValueIsOfAnotherType) {
  DamagedProgram damaged(GetParam());
  const std::vector<Json> values = {nullptr, true, 1.5, UINT64_MAX, "text", {1}, {{"a", 1}}};
  std::set<std::string> accepted;
  std::map<std::string, int> num_tried;
  for (Json* const table : {&damaged.program, &damaged.weights}) {
    const Json whole = *table;
    for (const Pointer& place : places_of(whole)) {
      if (++num_tried[kind_of(described(whole, place))] > 1) continue;
      for (const Json& value : values) {
        // Another integer would do, a float or one that does not fit would not.
        const bool is_integer = whole[place].is_number_integer() && value.is_number();
        if (value.type_name() == std::string_view(whole[place].type_name()) && !is_integer)
          continue;
        SCOPED_TRACE(testing::Message() << place.to_string() << " = " << value.dump());
        (*table)[place] = value;
        if (damaged.error().empty()) accepted.insert(described(whole, place));
        (*table)[place] = whole[place];
      }
    }
  }
  for (const std::string& place : accepted) EXPECT_TRUE(is_unread(place)) << place;
}

}  // namespace
}  // namespace trireme
