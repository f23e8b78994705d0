// An archive of the zoo whose JSON a test changes, and what the reader says of it then.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/import/damaged_archive.h"
#include "trireme/import/scratch_directory.h"
#include "trireme/import/zip_writer.h"

namespace trireme {

using Json = nlohmann::json;

class DamagedProgram {
 public:
  explicit DamagedProgram(std::string_view name)
      : records_(zip_records(zoo(name))),
        program(Json::parse(find_record(records_, "models/model.json").data)),
        weights(Json::parse(find_record(records_, "model_weights_config.json").data)) {}

  // What the reader says, behind the path of the file; "" when it reads the archive.
  std::string error() {
    find_record(records_, "model_weights_config.json").data = weights.dump();
    return error_of_text(program.dump());
  }
  std::string error_of_text(std::string_view text) {
    find_record(records_, "models/model.json").data = text;
    const std::string path = directory_.write("m.pt2", zip_file(records_));
    const std::string message = open_and_read(path);
    return message.starts_with(path) ? message.substr(path.size()) : message;
  }
  void add_record(const std::string& name, const std::string& data) {
    records_.push_back({.name = name, .data = data});
  }

  Json& graph() { return program["graph_module"]["graph"]; }
  Json& signature() { return program["graph_module"]["signature"]; }
  Json& type(const std::string& tensor) { return graph()["tensor_values"][tensor]; }
  Json& meta(const std::string& weight) { return weights["config"][weight]["tensor_meta"]; }
  Json& node(std::string_view name) {
    for (Json& node : graph()["nodes"]) {
      if (node["name"] == name) return node;
    }
    check_failed(__FILE__, __LINE__, "the program has the node", name);
  }

 private:
  ScratchDirectory directory_;
  std::vector<ZipRecord> records_;

 public:
  Json program;
  Json weights;
};

}  // namespace trireme
