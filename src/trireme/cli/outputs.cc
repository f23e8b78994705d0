#include "trireme/cli/outputs.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <fmt/format.h>

#include "trireme/cli/own_order.h"
#include "trireme/cli/requested_step.h"
#include "trireme/cluster/cluster.h"
#include "trireme/data/sources.h"
#include "trireme/import/initial_weights.h"
#include "trireme/import/mapped_file.h"
#include "trireme/import/output_path.h"

namespace trireme {
namespace {

bool is_same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  if (a.empty() || b.empty()) return false;
  std::error_code code;
  if (fs::equivalent(a, b, code)) return true;
  return fs::weakly_canonical(fs::absolute(a), code) == fs::weakly_canonical(fs::absolute(b), code);
}

// A file that exists, somewhere below a folder.
bool lies_in(const std::string& file, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code code;
  if (!fs::is_directory(folder, code)) return false;
  const fs::path inner = fs::canonical(file, code);
  if (code) return false;
  const fs::path outer = fs::canonical(folder, code);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

// The files of "arrays:x.npy,y.npy", "arrays:x.npy,n=n.npy" or "tokens:t.bin:uint16".
void add_data_files(const std::string& option, const std::string& spec,
                    std::vector<NamedFile>& files) {
  const size_t colon = spec.find(':');
  if (colon == std::string::npos) return;
  const std::string rest = spec.substr(colon + 1);
  files.push_back({option, rest});
  files.push_back({option, rest.substr(0, rest.rfind(':'))});
  Result<std::vector<std::string>> paths =
      split_paths({.spec = spec, .rest = rest, .inputs = {}, .seq_len = {}});
  if (!paths.ok()) return;
  for (const std::string& path : paths.value()) {
    files.push_back({option, path});
    files.push_back({option, path.substr(path.find('=') + 1)});
  }
}

}  // namespace

Status check_writable(const std::string& option, const std::string& path, WriteKind kind) {
  namespace fs = std::filesystem;
  if (path.empty()) return Status();
  const auto refuse = [&](std::string_view why) {
    return Error{fmt::format("{} {}: {}", option, path, why)};
  };
  std::error_code code;
  const fs::file_type type = fs::status(path, code).type();
  if (type == fs::file_type::directory) return refuse("this is a folder, not a file");
  if (type == fs::file_type::socket || type == fs::file_type::block) {
    return refuse("this is a socket or a disk, not a file");
  }
  // A pipe without a name is another program's input: >(gzip), or /dev/stdout. One with a name
  // holds up whoever opens it until another program does, too.
  const bool is_pipe = type == fs::file_type::fifo;
  const bool has_name = is_pipe && fs::exists(fs::canonical(path, code), code);
  const bool is_special = is_pipe || type == fs::file_type::character;
  if (has_name || (is_special && kind == WriteKind::kReplaced)) {
    return refuse(is_pipe ? "this is a pipe, not a file" : "this is a device, not a file");
  }
  const bool exists = fs::exists(path, code);
  if (exists && (kind == WriteKind::kInPlace || is_special)) {
    if (::access(path.c_str(), W_OK) == 0) return Status();
    return refuse(fmt::format("cannot write the file: {}", std::strerror(errno)));
  }
  const std::string target = behind_links(path);
  fs::path folder = fs::path(target).parent_path();
  if (folder.empty()) folder = ".";
  if (!fs::is_directory(folder, code)) {
    return refuse(fmt::format("there is no folder {}", folder.string()));
  }
  // Not the file itself, which others may wait for: it would come and go. A name as long as its
  // own.
  const fs::path probe = fs::path(target).parent_path() /
                         fmt::format("{:_<{}}", fmt::format(".trireme.{}", ::getpid()),
                                     fs::path(target).filename().string().size());
  const Status creatable =
      check_creatable(kind == WriteKind::kInPlace ? probe.string() : temporary_name(target));
  if (creatable.ok()) return creatable;
  return refuse(fmt::format("cannot write to the folder: {}", creatable.error().message));
}

Status check_replaces(const std::string& option, const std::string& path, std::string_view what,
                      bool (*reads)(std::string_view)) {
  constexpr size_t kMaxBytes = 64 << 20;  // longer than anything that this is for
  std::error_code ignored;
  if (path.empty() || !std::filesystem::is_regular_file(path, ignored)) return Status();
  TRIREME_TRY(const MappedFile file, MappedFile::open(path));
  const std::span<const std::byte> bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty() || (text.size() <= kMaxBytes && reads(text))) return Status();
  return Error{
      fmt::format("{} {}: this file is no {}, so it is not overwritten; remove it or name another",
                  option, path, what)};
}

Status check_distinct(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& inputs) {
  namespace fs = std::filesystem;
  std::vector<NamedFile> taken = inputs;
  for (const NamedFile& output : outputs) {
    if (output.path.empty()) continue;
    std::error_code ignored;
    const bool is_special =
        fs::exists(output.path, ignored) && !fs::is_regular_file(output.path, ignored);
    if (is_special) continue;
    for (const NamedFile& other : taken) {
      if (!is_same_file(output.path, other.path) && !lies_in(output.path, other.path)) continue;
      return Error{
          fmt::format("{} {} would overwrite {}", output.option, output.path, other.option)};
    }
    taken.push_back(output);
  }
  return Status();
}

Result<FileDescriptor> open_alone(const std::string& option, const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!file.is_open()) {
    return Error{
        fmt::format("{} {}: cannot write the file: {}", option, path, std::strerror(errno))};
  }
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return file;
  // A file system without locks has no other error for those that do without.
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return file;
  return Error{
      fmt::format("{} {}: another run is writing this file; name another one", option, path)};
}

Status check_outputs(const RunRequest& request) {
  if (request.rehearsal.has_value()) {
    TRIREME_TRY(
        check_distinct({{"--timeline", request.timeline}}, step_inputs(*request.rehearsal)));
    return check_writable("--timeline", request.timeline, WriteKind::kReplaced);
  }
  if (request.probe.has_value()) {
    const std::string& path = request.probe->output;
    TRIREME_TRY(check_writable("-o", path, WriteKind::kWhole));
    return check_replaces("-o", path, "cluster",
                          [](std::string_view text) { return parse_cluster(text).ok(); });
  }
  std::vector<NamedFile> inputs = {{"MODEL", request.model},
                                   {"--plan", request.plan.plan_path},
                                   {"--eval-model", request.eval_model}};
  if (is_order_file(request.plan.schedule)) inputs.push_back({"--schedule", request.plan.schedule});
  for (const std::string& library : request.operator_libraries) {
    inputs.push_back({"--operator-library", library});
  }
  add_data_files("--data", request.data, inputs);
  add_data_files("--eval-data", request.eval_data, inputs);
  // Of a checkpoint that cannot be read, the sentence comes later.
  const Result<InitialWeights> initial = InitialWeights::open(request.init);
  std::vector<NamedFile> checkpoint;
  if (initial.ok()) {
    for (const std::string& file : initial.value().files()) checkpoint.push_back({"--init", file});
  }
  const std::vector<NamedFile> texts = {{"--metrics", request.metrics},
                                        {"--grad-norms", request.grad_norms},
                                        {"--timeline", request.timeline}};
  TRIREME_TRY(check_distinct(texts, checkpoint));
  // Weights may take the place of those that were read, but not that of a part of them.
  if (checkpoint.size() > 1) TRIREME_TRY(check_distinct({{"--save", request.save}}, checkpoint));
  TRIREME_TRY(check_distinct({texts[0], texts[1], texts[2], {"--save", request.save}}, inputs));
  TRIREME_TRY(check_writable("--save", request.save, WriteKind::kReplaced));
  TRIREME_TRY(check_writable("--timeline", request.timeline, WriteKind::kReplaced));
  TRIREME_TRY(check_writable("--metrics", request.metrics, WriteKind::kInPlace));
  std::error_code ignored;
  if (std::filesystem::is_regular_file(request.metrics, ignored)) {
    const Result<FileDescriptor> metrics = open_alone("--metrics", request.metrics);
    if (!metrics.ok()) return metrics.error();
  }
  return check_writable("--grad-norms", request.grad_norms, WriteKind::kInPlace);
}

}  // namespace trireme
