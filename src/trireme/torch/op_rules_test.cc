// The rows of graph/op_rules.cc against the schemas of the aten that this program is linked to.
#include "trireme/graph/op_rules.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "trireme/graph/aliasing.h"
#include "trireme/torch/native_operators.h"

namespace trireme {
namespace {

bool is_tensor(const c10::TypePtr& type) {
  return type->isSubtypeOf(*c10::TensorType::get()) ||
         type->isSubtypeOf(*c10::OptionalType::ofTensor()) ||
         type->isSubtypeOf(*c10::ListType::ofTensors()) ||
         type->isSubtypeOf(*c10::ListType::ofOptionalTensors());
}

// Overloads that torch.export never writes: with output arguments, and with names of dims.
bool is_exported(const c10::FunctionSchema& schema) {
  const auto is_foreign = [](const c10::Argument& argument) {
    return argument.is_out() || argument.type()->str().find("Dimname") != std::string::npos ||
           argument.type()->str() == "str[]";
  };
  const auto holds_tensor = [](const c10::Argument& each) { return is_tensor(each.type()); };
  return std::none_of(schema.arguments().begin(), schema.arguments().end(), is_foreign) &&
         std::any_of(schema.returns().begin(), schema.returns().end(), holds_tensor);
}

// name -> its exported overloads, of "aten::name".
std::map<std::string, std::vector<c10::FunctionSchema>> exported_schemas() {
  std::map<std::string, std::vector<c10::FunctionSchema>> found;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle.has_value() || !is_exported(handle->schema())) continue;
    found[name.name.substr(6)].push_back(handle->schema());
  }
  return found;
}

const c10::AliasInfo* alias_of(const c10::Argument& argument) {
  if (argument.alias_info() == nullptr) return nullptr;
  // The alias of a list is that of its elements.
  const c10::AliasInfo* alias = argument.alias_info();
  if (alias->beforeSets().empty() && !alias->containedTypes().empty()) {
    alias = alias->containedTypes().data();
  }
  return alias;
}

bool share_memory(const c10::Argument& argument, const c10::Argument& result) {
  const c10::AliasInfo* given = alias_of(argument);
  const c10::AliasInfo* made = alias_of(result);
  if (given == nullptr || made == nullptr) return false;
  return std::any_of(given->beforeSets().begin(), given->beforeSets().end(), [&](c10::Symbol set) {
    // A list argument reads "(a -> *)": its elements share memory with whatever comes out.
    return made->beforeSets().count(set) != 0 || given->isWildcardAfter() ||
           made->isWildcardBefore();
  });
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

size_t first_tensor(const c10::FunctionSchema& schema) {
  size_t index = 0;
  while (index < schema.arguments().size() && !is_tensor(schema.arguments()[index].type())) ++index;
  return index;
}

// What the schema says, in the terms of op_rules.h; tensors that it changes besides are in
// `writes`.
AliasKind schema_kind(const c10::FunctionSchema& schema) {
  const size_t first = first_tensor(schema);
  AliasKind kind = AliasKind::kFresh;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    for (const c10::Argument& result : schema.returns()) {
      if (!share_memory(argument, result)) continue;
      if (i != first) return AliasKind::kUnknown;
      kind = writes(argument) ? AliasKind::kInPlace : AliasKind::kView;
    }
  }
  return kind;
}

// Composite operators whose schema promises nothing, and that return their operand, or a view of
// it, in some cases.
const std::set<std::string_view> kSilentViews = {
    "broadcast_tensors",     "dropout", "alpha_dropout", "feature_dropout",
    "feature_alpha_dropout", "einsum",  "type_as"};

TEST(OpRules, AliasKindsAreThoseOfTheSchemas) {
  const auto schemas = exported_schemas();
  ASSERT_GT(schemas.size(), 500U);
  for (const OpRule& rule : op_rules()) {
    const auto found = schemas.find(std::string(rule.name));
    if (found == schemas.end()) continue;
    for (const c10::FunctionSchema& schema : found->second) {
      const AliasKind said = schema_kind(schema);
      const bool is_silent = kSilentViews.contains(rule.name) && said == AliasKind::kFresh;
      if (is_silent) {
        EXPECT_NE(rule.alias, AliasKind::kFresh) << schema;
      } else {
        EXPECT_EQ(static_cast<int>(rule.alias), static_cast<int>(said)) << schema;
      }
    }
  }
}

TEST(OpRules, SilentViewsAreViews) {
  const at::Tensor x = at::ones({2, 3});
  EXPECT_TRUE(at::alpha_dropout(x, 0.5, /*train=*/false).is_alias_of(x));
  EXPECT_TRUE(at::feature_dropout(x, 0.5, /*train=*/false).is_alias_of(x));
  EXPECT_TRUE(at::feature_alpha_dropout(x, 0.5, /*train=*/false).is_alias_of(x));
  EXPECT_TRUE(at::einsum("ij->ji", {x}).is_alias_of(x));
  EXPECT_TRUE(at::dropout(x, 0.5, /*train=*/false).is_alias_of(x));
  EXPECT_TRUE(x.type_as(x).is_alias_of(x));
  EXPECT_TRUE(at::broadcast_tensors({x, x})[1].is_alias_of(x));
}

TEST(OpRules, EveryRowIsAnOperatorOfAtenOrHasANativeReplacement) {
  const auto schemas = exported_schemas();
  std::vector<std::string> others;
  for (const OpRule& rule : op_rules()) {
    if (rule.name == "item") continue;  // returns a number
    if (rule.name.find('.') != std::string_view::npos) {
      others.emplace_back(rule.name);
      continue;
    }
    EXPECT_TRUE(schemas.contains(std::string(rule.name))) << rule.name;
  }
  EXPECT_EQ(others, native_operator_names());
}

// alias_kind() and written_values() read the name: a mark at its end, and the first tensor operand.
TEST(OpRules, WhatEndsInAMarkChangesItsFirstTensorAndNothingElse) {
  const auto schemas = exported_schemas();
  for (const OpRule& rule : op_rules()) {
    for (const std::string& name : {std::string(rule.name), std::string(rule.name) + "_"}) {
      const auto found = schemas.find(name);
      if (found == schemas.end()) continue;
      const bool is_marked = name != rule.name;
      for (const c10::FunctionSchema& schema : found->second) {
        for (size_t i = 0; i < schema.arguments().size(); ++i) {
          EXPECT_EQ(writes(schema.arguments()[i]), is_marked && i == first_tensor(schema))
              << schema;
        }
        const Node node{.op = fmt::format("aten.{}.default", name)};
        EXPECT_EQ(alias_kind(node) == AliasKind::kInPlace, is_marked) << schema;
      }
    }
  }
}

}  // namespace
}  // namespace trireme
