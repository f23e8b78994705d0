// The YAML of a Profile.

#include <set>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "trireme/base/yaml_keys.h"
#include "trireme/cost/profile.h"

namespace trireme {
namespace {

constexpr const char* kFormat = "trireme-profile-1";

void write_source(YAML::Emitter& out, CostSource source) {
  out << YAML::Key << "from" << YAML::Value << std::string(to_text(source)) << YAML::EndMap;
}

void write_seconds(YAML::Emitter& out, std::string_view name, const PassSeconds& pass) {
  out << YAML::Key << std::string(name) << YAML::Value << YAML::Flow << YAML::BeginMap;
  out << YAML::Key << "seconds" << YAML::Value << fmt::format("{}", pass.seconds);
  out << YAML::Key << "spread" << YAML::Value << fmt::format("{}", pass.spread);
  write_source(out, pass.source);
}

void write_size(YAML::Emitter& out, const BlockSize& size) {
  out << YAML::Flow << YAML::BeginMap << YAML::Key << "micro_batch" << YAML::Value
      << size.micro_batch;
  for (size_t pass = 0; pass < kNumBlockPasses; ++pass) {
    const std::optional<PassSeconds>& known = size.passes[pass];
    if (known.has_value()) write_seconds(out, to_text(static_cast<BlockPass>(pass)), *known);
  }
  if (size.kept_bytes.has_value()) {
    out << YAML::Key << "kept_bytes" << YAML::Value << YAML::Flow << YAML::BeginMap;
    out << YAML::Key << "bytes" << YAML::Value << size.kept_bytes->bytes;
    write_source(out, size.kept_bytes->source);
  }
  out << YAML::EndMap;
}

CostSource read_source(const YamlKeys& keys) {
  const auto name = keys.get<std::string>("from");
  for (const CostSource source : {CostSource::kMeasured, CostSource::kAnalytic}) {
    if (name == to_text(source)) return source;
  }
  throw WrongYaml{keys.needed("from").Mark(),
                  fmt::format("{} is neither measured nor analytic", in_quotes(name))};
}

std::optional<PassSeconds> read_seconds(const YamlKeys& block, const std::string& name) {
  if (!block.has(name.c_str())) return std::nullopt;
  const YamlKeys keys(block.needed(name.c_str()), "a time", {"seconds", "spread", "from"});
  return PassSeconds{.seconds = keys.get<double>("seconds"),
                     .spread = keys.get<double>("spread"),
                     .source = read_source(keys)};
}

BlockSize read_size(const YAML::Node& node) {
  std::set<std::string> known = {"micro_batch", "kept_bytes"};
  for (size_t pass = 0; pass < kNumBlockPasses; ++pass) {
    known.insert(std::string(to_text(static_cast<BlockPass>(pass))));
  }
  const YamlKeys keys(node, "a size", known);
  BlockSize size;
  size.micro_batch = keys.get<int64_t>("micro_batch");
  for (size_t pass = 0; pass < kNumBlockPasses; ++pass) {
    size.passes[pass] = read_seconds(keys, std::string(to_text(static_cast<BlockPass>(pass))));
  }
  if (keys.has("kept_bytes")) {
    const YamlKeys kept(keys.needed("kept_bytes"), "kept_bytes", {"bytes", "from"});
    size.kept_bytes = KeptBytes{.bytes = kept.get<int64_t>("bytes"), .source = read_source(kept)};
  }
  return size;
}

BlockProfile read_block(const YAML::Node& node) {
  const YamlKeys keys(node, "a block", {"first_node", "first_module", "update", "sizes"});
  BlockProfile block;
  block.first_node = keys.get<std::string>("first_node");
  block.first_module = keys.get<std::string>("first_module", "");
  block.update = read_seconds(keys, "update");
  for (const YAML::Node& size : keys.needed_list("sizes")) block.sizes.push_back(read_size(size));
  return block;
}

Result<Profile> read_profile(const YAML::Node& root) {
  const YamlKeys keys(root, "the profile", {"format", "model", "num_nodes", "device", "blocks"});
  if (keys.get<std::string>("format") != kFormat) {
    throw WrongYaml{root.Mark(), fmt::format("the format is not {}", kFormat)};
  }
  Profile profile;
  profile.model = keys.get<std::string>("model", "");
  profile.num_nodes = keys.get<int64_t>("num_nodes");
  profile.device = keys.get<std::string>("device", "");
  for (const YAML::Node& block : keys.needed_list("blocks")) {
    profile.blocks.push_back(read_block(block));
  }
  TRIREME_TRY(verify_profile(profile));
  return profile;
}

}  // namespace

std::string to_text(const Profile& profile) {
  YAML::Emitter out;
  out << YAML::BeginMap << YAML::Key << "format" << YAML::Value << kFormat;
  out << YAML::Key << "model" << YAML::Value << profile.model;
  out << YAML::Key << "num_nodes" << YAML::Value << profile.num_nodes;
  out << YAML::Key << "device" << YAML::Value << profile.device;
  out << YAML::Key << "blocks" << YAML::Value << YAML::BeginSeq;
  for (const BlockProfile& block : profile.blocks) {
    out << YAML::BeginMap << YAML::Key << "first_node" << YAML::Value << block.first_node;
    out << YAML::Key << "first_module" << YAML::Value << block.first_module;
    if (block.update.has_value()) write_seconds(out, "update", *block.update);
    out << YAML::Key << "sizes" << YAML::Value << YAML::BeginSeq;
    for (const BlockSize& size : block.sizes) write_size(out, size);
    out << YAML::EndSeq << YAML::EndMap;
  }
  out << YAML::EndSeq << YAML::EndMap;
  return std::string(out.c_str()) + "\n";
}

Result<Profile> parse_profile(std::string_view text) {
  return read_yaml<Profile>(text, read_profile);
}

}  // namespace trireme
