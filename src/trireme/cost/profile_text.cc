// The YAML of a Profile. yaml-cpp reports malformed files by exceptions; they end here.

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "trireme/base/json_text.h"
#include "trireme/base/one_line.h"
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
    if (!size.passes[pass].has_value()) continue;
    write_seconds(out, to_text(static_cast<BlockPass>(pass)), *size.passes[pass]);
  }
  if (size.kept_bytes.has_value()) {
    out << YAML::Key << "kept_bytes" << YAML::Value << YAML::Flow << YAML::BeginMap;
    out << YAML::Key << "bytes" << YAML::Value << size.kept_bytes->bytes;
    write_source(out, size.kept_bytes->source);
  }
  out << YAML::EndMap;
}

// Of a key that must be there, with the line of the map for the message.
YAML::Node needed(const YAML::Node& map, const char* key) {
  if (!map.IsMap() || !map[key]) {
    throw YAML::RepresentationException(map.Mark(), fmt::format("there is no '{}'", key));
  }
  return map[key];
}

CostSource read_source(const YAML::Node& map) {
  const YAML::Node node = needed(map, "from");
  const auto name = node.as<std::string>();
  for (const CostSource source : {CostSource::kMeasured, CostSource::kAnalytic}) {
    if (name == to_text(source)) return source;
  }
  throw YAML::RepresentationException(
      node.Mark(), fmt::format("from: {} is neither measured nor analytic", in_quotes(name)));
}

std::optional<PassSeconds> read_seconds(const YAML::Node& map, std::string_view name) {
  const YAML::Node node = map[std::string(name)];
  if (!node) return std::nullopt;
  return PassSeconds{.seconds = needed(node, "seconds").as<double>(),
                     .spread = needed(node, "spread").as<double>(),
                     .source = read_source(node)};
}

BlockSize read_size(const YAML::Node& node) {
  BlockSize size;
  size.micro_batch = needed(node, "micro_batch").as<int64_t>();
  for (size_t pass = 0; pass < kNumBlockPasses; ++pass) {
    size.passes[pass] = read_seconds(node, to_text(static_cast<BlockPass>(pass)));
  }
  if (const YAML::Node kept = node["kept_bytes"]) {
    size.kept_bytes =
        KeptBytes{.bytes = needed(kept, "bytes").as<int64_t>(), .source = read_source(kept)};
  }
  return size;
}

BlockProfile read_block(const YAML::Node& node) {
  BlockProfile block;
  block.first_node = needed(node, "first_node").as<std::string>();
  block.first_module = node["first_module"].as<std::string>("");
  block.update = read_seconds(node, "update");
  for (const YAML::Node& size : needed(node, "sizes")) block.sizes.push_back(read_size(size));
  return block;
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
  // The emitter could not write such strings again.
  if (!is_utf8(text)) return Error{"it is not UTF-8 text"};
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    if (!root.IsMap() || root["format"].as<std::string>("") != kFormat) {
      return Error{"it is not a profile of trireme profile (format: trireme-profile-1 is missing)"};
    }
    Profile profile;
    profile.model = root["model"].as<std::string>("");
    profile.num_nodes = needed(root, "num_nodes").as<int64_t>();
    profile.device = root["device"].as<std::string>("");
    for (const YAML::Node& block : needed(root, "blocks")) {
      profile.blocks.push_back(read_block(block));
    }
    TRIREME_TRY(verify_profile(profile));
    return profile;
  } catch (const YAML::BadConversion& exception) {
    return Error{fmt::format("line {}: the value is of another kind than trireme profile writes",
                             exception.mark.line + 1)};
  } catch (const YAML::RepresentationException& exception) {
    return Error{fmt::format("line {}: {}", exception.mark.line + 1, one_line(exception.msg))};
  } catch (const YAML::Exception& exception) {
    return Error{
        fmt::format("line {} is not YAML ({})", exception.mark.line + 1, one_line(exception.msg))};
  }
}

}  // namespace trireme
