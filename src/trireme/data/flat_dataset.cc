#include "trireme/data/flat_dataset.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/data/conversion.h"
#include "trireme/import/positioned_file.h"

namespace trireme {
namespace {

// A directory may hold more files than a process may open. Training data and evaluation data
// together take half of what is left beside the sockets and libraries of a small run.
size_t max_open_files() {
  constexpr rlim_t kOfOthers = 48;
  constexpr rlim_t kMost = 256;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
  const rlim_t left = limit.rlim_cur - std::min(limit.rlim_cur, kOfOthers);
  return static_cast<size_t>(std::clamp<rlim_t>(left / 4, 1, kMost));
}

// The files that were read last. Any thread.
class OpenFiles {
 public:
  Result<PositionedFile> open(size_t index, const FlatFile& file) {
    const std::lock_guard lock(mutex_);
    if (const auto found = files_.find(index); found != files_.end()) return found->second;
    TRIREME_TRY(PositionedFile opened, PositionedFile::open(file.path));
    if (opened.size_bytes() != file.size_bytes) {
      return Error{fmt::format("{} has {} bytes now, but had {} when the run began", file.path,
                               opened.size_bytes(), file.size_bytes)};
    }
    if (in_order_.size() == most_) {
      // Whoever still reads it holds a share of the descriptor.
      files_.erase(in_order_.front());
      in_order_.pop_front();
    }
    files_.emplace(index, opened);
    in_order_.push_back(index);
    return opened;
  }

 private:
  const size_t most_ = max_open_files();
  std::mutex mutex_;
  std::map<size_t, PositionedFile> files_;  // guarded by mutex_
  std::deque<size_t> in_order_;             // of opening, oldest first; guarded by mutex_
};

class FlatDataset : public Dataset {
 public:
  FlatDataset(std::string spec, std::vector<FlatFile> files, DType dtype, InputSpec input,
              int64_t length)
      : spec_(std::move(spec)),
        files_(std::move(files)),
        dtype_(dtype),
        input_(std::move(input)),
        length_(length) {
    for (const FlatFile& file : files_) total_bytes_ += file.size_bytes;
    uint64_t end = 0;
    for (const FlatFile& file : files_) ends_.push_back(end += file.size_bytes);
  }

  uint64_t total_numbers() const { return total_bytes_ / width(dtype_); }

  int64_t num_samples() const override {
    return static_cast<int64_t>(total_numbers() / static_cast<uint64_t>(length_));
  }

  int64_t num_rows(size_t /*index*/) const override { return num_samples(); }

  std::vector<int64_t> row_sizes(size_t index) const override {
    TRIREME_CHECK(index == 0, "the model has one input");
    return {length_};
  }

  // Whole rows only: nothing crops a run of numbers.
  Status read_rows(size_t index, std::span<const uint64_t> samples,
                   std::span<std::byte> out) const override {
    TRIREME_CHECK(index == 0, "the model has one input");
    const size_t row_bytes = static_cast<size_t>(length_) * width(dtype_);
    const size_t out_row_bytes = static_cast<size_t>(length_) * width(input_.dtype);
    TRIREME_CHECK(out.size() == samples.size() * out_row_bytes, "the rows fill the output");
    std::vector<std::byte> row(row_bytes);
    for (size_t i = 0; i < samples.size(); ++i) {
      TRIREME_CHECK(samples[i] < static_cast<uint64_t>(num_samples()), "the sample is in the data");
      TRIREME_TRY(read_bytes(samples[i] * row_bytes, row));
      const Status status =
          convert_numbers(row, dtype_, out.subspan(i * out_row_bytes, out_row_bytes), input_.dtype);
      if (!status.ok()) {
        return Error{fmt::format("{}: sample {} does not suit the input {}: {}", spec_, samples[i],
                                 input_.name, status.error().message)};
      }
    }
    return Status();
  }

 private:
  static uint64_t width(DType dtype) { return static_cast<uint64_t>(dtype_info(dtype).size_bytes); }

  // Fills `out` with the joined bytes from `position`.
  Status read_bytes(uint64_t position, std::span<std::byte> out) const {
    auto file =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), position) - ends_.begin());
    for (; !out.empty(); ++file) {
      if (files_[file].size_bytes == 0) continue;
      const uint64_t offset = position - (ends_[file] - files_[file].size_bytes);
      const auto count = std::min<uint64_t>(out.size(), files_[file].size_bytes - offset);
      TRIREME_TRY(const PositionedFile opened, open_files_.open(file, files_[file]));
      TRIREME_TRY(opened.read(offset, out.first(count)));
      out = out.subspan(count);
      position += count;
    }
    return Status();
  }

  std::string spec_;
  std::vector<FlatFile> files_;
  DType dtype_;
  InputSpec input_;
  int64_t length_;
  uint64_t total_bytes_ = 0;
  std::vector<uint64_t> ends_;  // by file: where it ends among all bytes
  mutable OpenFiles open_files_;
};

std::string input_names(const std::vector<InputSpec>& inputs) {
  std::vector<std::string> names;
  for (const InputSpec& input : inputs) names.push_back(input.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// L, from the model or --seq-len.
Result<int64_t> sample_length(const SourceRequest& request) {
  const InputSpec& input = request.inputs[0];
  if (request.inputs.size() != 1) {
    return Error{fmt::format(
        "{} feeds models with one input, but this model has {} ({}); use arrays: or safetensors:",
        request.spec, request.inputs.size(), input_names(request.inputs))};
  }
  if (input.sizes.size() != 1 || !is_integer(input.dtype)) {
    return Error{fmt::format(
        "{} feeds an input of integers [batch, L], but the input {} is of {} with {} dims; use "
        "arrays: or safetensors:",
        request.spec, input.name, dtype_info(input.dtype).name, input.sizes.size() + 1)};
  }
  if (!input.sizes[0].has_value() && !request.seq_len.has_value()) {
    return Error{fmt::format(
        "{}: the length of the input {} is symbolic, so it does not say how long a sample is; give "
        "--seq-len",
        request.spec, input.name)};
  }
  const int64_t length = request.seq_len.value_or(input.sizes[0].value_or(0));
  if (length != input.sizes[0].value_or(length)) {
    return Error{fmt::format("--seq-len is {}, but the input {} has the fixed length {}", length,
                             input.name, *input.sizes[0])};
  }
  if (length < 1) {
    return Error{fmt::format("{}: the length of a sample is {} but must be at least 1",
                             request.spec, length)};
  }
  return length;
}

}  // namespace

Result<FlatFile> find_flat_file(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0 || access(path.c_str(), R_OK) != 0) {
    return Error{fmt::format("cannot open {}: {}", path, std::strerror(errno))};
  }
  if (!S_ISREG(status.st_mode)) return Error{fmt::format("{} is not a regular file", path)};
  return FlatFile{.path = path, .size_bytes = static_cast<uint64_t>(status.st_size)};
}

Result<std::unique_ptr<Dataset>> open_flat_dataset(const SourceRequest& request,
                                                   std::vector<FlatFile> files, DType dtype) {
  TRIREME_TRY(const int64_t length, sample_length(request));
  auto dataset = std::make_unique<FlatDataset>(request.spec, std::move(files), dtype,
                                               request.inputs[0], length);
  if (dataset->num_samples() < 1) {
    const bool is_free = !request.inputs[0].sizes[0].has_value();
    return Error{fmt::format("{} has {} {}, fewer than the {} of one sample; give more data{}",
                             request.spec, dataset->total_numbers(),
                             dtype == DType::kUint8 ? "bytes" : "tokens", length,
                             is_free ? " or a smaller --seq-len" : "")};
  }
  return std::unique_ptr<Dataset>(std::move(dataset));
}

}  // namespace trireme
