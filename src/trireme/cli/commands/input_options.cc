#include "trireme/cli/commands/input_options.h"

#include <charconv>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trireme/cli/validators.h"

namespace trireme {
namespace {

// "x" or "x.1" before the equals sign, and a column after it.
LengthOption length_option(const std::string& text) {
  const Pair pair = split_pair(text);
  LengthOption option{.input = pair.first, .dim = {}, .column = pair.second};
  const size_t dot = pair.first.rfind('.');
  if (dot == std::string::npos) return option;
  size_t dim = 0;
  const char* end = pair.first.data() + pair.first.size();
  const auto [stop, code] = std::from_chars(pair.first.data() + dot + 1, end, dim);
  if (code != std::errc() || stop != end) return option;
  option.input = pair.first.substr(0, dot);
  option.dim = dim;
  return option;
}

}  // namespace

void add_input_options(CLI::App& app, RunRequest& run) {
  using Texts = std::vector<std::string>;
  app.add_option_function<Texts>(
         "--jagged",
         [&run](const Texts& texts) {
           for (const std::string& text : texts) {
             const Pair pair = split_pair(text);
             run.jagged.emplace_back(pair.first, pair.second);
           }
         },
         "VALUES=OFFSETS: the input VALUES has the values of all samples joined, and OFFSETS says "
         "where each sample starts; what trireme.export(jagged=...) wrote needs no option")
      ->allow_extra_args(false)
      ->check(pair_of("VALUES=OFFSETS"))
      ->group("Data");
  app.add_option_function<Texts>(
         "--lengths",
         [&run](const Texts& texts) {
           for (const std::string& text : texts) run.lengths.push_back(length_option(text));
         },
         "INPUT[.DIM]=COLUMN: COLUMN says how long each sample is along the symbolic dim of INPUT; "
         "each step is cropped to its longest sample. A column that is no input is a tensor of "
         "safetensors: or is added to arrays: as ,COLUMN=PATH")
      ->allow_extra_args(false)
      ->check(pair_of("INPUT=COLUMN"))
      ->group("Data");
  app.add_option_function<Texts>(
         "--batch-dim",
         [&run](const Texts& texts) {
           for (const std::string& text : texts) {
             const Pair pair = split_pair(text);
             run.batch_dims.emplace_back(pair.first, std::stoul(pair.second));
           }
         },
         "INPUT=DIM: the dim of INPUT that is the batch, where an archive of torch.export does not "
         "say; the data have their samples in dim 0 nevertheless")
      ->allow_extra_args(false)
      ->check(pair_of("INPUT=DIM"))
      ->check(CLI::Validator(
          [](std::string& text) -> std::string {
            const std::string dim = split_pair(text).second;
            const bool is_number =
                dim.size() < 3 && dim.find_first_not_of("0123456789") == std::string::npos;
            return is_number ? "" : fmt::format("'{}' is not INPUT=DIM", text);
          },
          ""))
      ->group("Data");
}

}  // namespace trireme
