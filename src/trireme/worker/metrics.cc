#include "trireme/worker/metrics.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "trireme/base/json_text.h"
#include "trireme/cli/outputs.h"
#include "trireme/import/output_path.h"

namespace trireme {
namespace {

// JSON has no nan; readers of JSON lines in Python accept null.
nlohmann::json number(double value) {
  return value == value ? nlohmann::json(value) : nlohmann::json();
}

}  // namespace

Result<MetricsFile> MetricsFile::create(const std::string& path) {
  MetricsFile file;
  file.path_ = path;
  if (path.empty()) return file;
  TRIREME_TRY(FileDescriptor alone, open_alone("--metrics", path));
  std::error_code code;
  if (std::filesystem::is_regular_file(path, code)) std::filesystem::resize_file(path, 0, code);
  if (code) return Error{fmt::format("cannot write {}: {}", path, code.message())};
  file.file_.reset(::fdopen(alone.release(), "w"));
  return file;
}

Status MetricsFile::write_line(const std::string& line) {
  if (file_ == nullptr) return Status();
  if (std::fputs((line + "\n").c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0) {
    Error error{fmt::format("cannot write {}: {}", path_, std::strerror(errno))};
    file_.reset();
    // Readers stumble over half a line.
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path_, ignored)) {
      std::filesystem::resize_file(path_, num_bytes_, ignored);
    }
    return error;
  }
  num_bytes_ += line.size() + 1;
  return Status();
}

nlohmann::ordered_json links_json(std::span<const RankLink> links) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const RankLink& each : links) {
    json.push_back({{"from", each.from},
                    {"to", each.to},
                    {"bytes_per_s", each.speed.bytes_per_s},
                    {"latency_s", each.speed.latency_s}});
  }
  return json;
}

Status MetricsFile::write_step(const StepMetrics& metrics) {
  nlohmann::ordered_json line = {{"step", metrics.step},
                                 {"loss", number(metrics.loss)},
                                 {"items", metrics.items},
                                 {"seconds", metrics.seconds},
                                 {"lr", metrics.lr}};
  if (metrics.grad_norm.has_value()) line["grad_norm"] = number(*metrics.grad_norm);
  if (!metrics.peak_bytes.empty()) line["peak_bytes"] = metrics.peak_bytes;
  if (!metrics.compute_cpu_seconds.empty()) {
    line["compute_cpu_seconds"] = metrics.compute_cpu_seconds;
  }
  if (!metrics.links.empty()) line["links"] = links_json(metrics.links);
  return write_line(json_text(line));
}

Status MetricsFile::write_eval(int64_t step, double eval_loss) {
  return write_line(
      nlohmann::ordered_json({{"step", step}, {"eval_loss", number(eval_loss)}}).dump());
}

Status write_gradient_norms(const std::string& path, const Graph& graph,
                            const std::vector<std::optional<double>>& norms) {
  nlohmann::json json = nlohmann::json::object();
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i].kind != GraphInput::Kind::kParameter) continue;
    for (const std::string& name : graph.inputs[i].names) {
      json[name] = norms[i].has_value() ? number(*norms[i]) : nlohmann::json();
    }
  }
  restore_folder(path);
  std::FILE* file = std::fopen(path.c_str(), "w");
  const std::string text = json_text(json, 1) + "\n";
  const bool is_written = file != nullptr && std::fputs(text.c_str(), file) >= 0;
  if ((file != nullptr && std::fclose(file) != 0) || !is_written) {
    return Error{fmt::format("cannot write {}: {}", path, std::strerror(errno))};
  }
  return Status();
}

}  // namespace trireme
