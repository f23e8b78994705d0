#include "trireme/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/one_line.h"

namespace trireme {
namespace {

struct KindText {
  ActionKind kind;
  std::string_view text;
};

constexpr std::array<KindText, kNumActionKinds> kKinds = {{
    {ActionKind::kForward, "F"},
    {ActionKind::kForwardKeepingInput, "Fc"},
    {ActionKind::kRecompute, "R"},
    {ActionKind::kBackward, "B"},
    {ActionKind::kInputGradient, "I"},
    {ActionKind::kWeightGradient, "W"},
    {ActionKind::kUpdate, "U"},
    {ActionKind::kSendActivation, "SA"},
    {ActionKind::kReceiveActivation, "RA"},
    {ActionKind::kSendGradient, "SG"},
    {ActionKind::kReceiveGradient, "RG"},
    {ActionKind::kAllReduce, "AR"},
    {ActionKind::kTiedReduce, "TR"},
    {ActionKind::kScalars, "SC"},
    {ActionKind::kRowExchange, "SX"},
}};

std::optional<ActionKind> kind_from_text(std::string_view text) {
  for (const KindText& row : kKinds) {
    if (row.text == text) return row.kind;
  }
  return std::nullopt;
}

std::string known_kinds() {
  std::vector<std::string_view> texts;
  texts.reserve(kKinds.size());
  for (const KindText& row : kKinds) texts.push_back(row.text);
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::optional<int32_t> parse_number(std::string_view text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  if (text.size() > 1 && text[0] == '0') return std::nullopt;
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const size_t end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words = split(line, ' ');
  std::erase(words, std::string_view());
  return words;
}

std::optional<std::vector<int32_t>> parse_numbers(std::string_view text, char separator) {
  std::vector<int32_t> numbers;
  for (std::string_view piece : split(text, separator)) {
    const std::optional<int32_t> number = parse_number(piece);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

bool set_number(int32_t& target, std::string_view text) {
  const std::optional<int32_t> number = parse_number(text);
  target = number.value_or(0);
  return number.has_value();
}

bool set_numbers(std::vector<int32_t>& target, std::string_view text) {
  const std::optional<std::vector<int32_t>> numbers = parse_numbers(text, ',');
  target = numbers.value_or(std::vector<int32_t>());
  return numbers.has_value();
}

bool set_groups(std::vector<std::vector<int32_t>>& target, std::string_view text) {
  for (std::string_view group : split(text, ',')) {
    const std::optional<std::vector<int32_t>> stages = parse_numbers(group, '+');
    if (!stages) return false;
    target.push_back(*stages);
  }
  return true;
}

// One field of the header; `set` gets what follows the "=" and tells whether it could be read.
struct Field {
  std::string_view name;
  std::string_view expected;  // what a value looks like; empty when the field has none
  bool is_needed;
  bool (*set)(Schedule& schedule, std::string_view value);
};

constexpr std::array<Field, 17> kFields = {{
    {"stages", "a number", true,
     [](Schedule& s, std::string_view v) { return set_number(s.num_stages, v); }},
    {"chunks", "a number", false,
     [](Schedule& s, std::string_view v) { return set_number(s.num_chunks, v); }},
    {"placement", "v", false,
     [](Schedule& s, std::string_view v) {
       s.placement = Placement::kV;
       return v == "v";
     }},
    {"micro-batches", "numbers parted by commas", true,
     [](Schedule& s, std::string_view v) { return set_numbers(s.num_micro_batches, v); }},
    {"look-ahead", "a number", false,
     [](Schedule& s, std::string_view v) { return set_number(s.look_ahead, v); }},
    {"buckets", "numbers parted by commas", false,
     [](Schedule& s, std::string_view v) { return set_numbers(s.num_buckets, v); }},
    {"tied", "groups of stages such as 0+3,1+2", false,
     [](Schedule& s, std::string_view v) { return set_groups(s.tied_groups, v); }},
    {"tied-buckets", "numbers parted by commas", false,
     [](Schedule& s, std::string_view v) { return set_numbers(s.num_tied_buckets, v); }},
    {"row-tables", "numbers parted by commas", false,
     [](Schedule& s, std::string_view v) { return set_numbers(s.num_row_tables, v); }},
    {"clip-norm", "", false, [](Schedule& s, std::string_view) { return s.clips_norm = true; }},
    {"versions", "a number", false,
     [](Schedule& s, std::string_view v) { return set_number(s.num_weight_versions, v); }},
    {"found", "numbers parted by commas", false,
     [](Schedule& s, std::string_view v) { return set_numbers(s.num_found, v); }},
    {"ahead", "numbers parted by commas", false,
     [](Schedule& s, std::string_view v) { return set_numbers(s.num_ahead, v); }},
    {"updates-at-end", "", false,
     [](Schedule& s, std::string_view) { return s.communication.updates_at_end = true; }},
    {"early-sums", "", false,
     [](Schedule& s, std::string_view) { return s.communication.sums_early = true; }},
    {"one-urgency", "", false,
     [](Schedule& s, std::string_view) { return s.communication.has_one_urgency = true; }},
    {"evaluation", "", false,
     [](Schedule& s, std::string_view) { return !(s.is_training = false); }},
}};

Result<const Field*> find_field(std::string_view word) {
  const std::string_view name = word.substr(0, word.find('='));
  for (const Field& field : kFields) {
    if (field.name == name) return &field;
  }
  std::vector<std::string_view> names;
  names.reserve(kFields.size());
  for (const Field& field : kFields) names.push_back(field.name);
  return Error{
      fmt::format("unknown field {}; known are {}", in_quotes(word), fmt::join(names, ", "))};
}

Status parse_field(const Field& field, std::string_view word, Schedule& schedule) {
  const bool has_value = word.size() > field.name.size();
  if (has_value == field.expected.empty()) {
    return Error{has_value ? fmt::format("field {} takes no value", in_quotes(word))
                           : fmt::format("field {} needs {} after a \"=\"", in_quotes(word),
                                         field.expected)};
  }
  const std::string_view value = has_value ? word.substr(field.name.size() + 1) : "";
  if (!field.set(schedule, value)) {
    return Error{fmt::format("field {} needs {} after the \"=\"", in_quotes(word), field.expected)};
  }
  return Status();
}

Result<Schedule> parse_header(const std::vector<std::string_view>& words) {
  if (words.size() < 2 || words[0] != "schedule") {
    return Error{fmt::format("expected \"schedule NAME\", found {}", in_quotes(words[0]))};
  }
  Schedule schedule;
  schedule.builder = words[1];
  std::vector<const Field*> seen;
  for (size_t i = 2; i < words.size(); ++i) {
    TRIREME_TRY(const Field* field, find_field(words[i]));
    if (std::ranges::find(seen, field) != seen.end()) {
      return Error{fmt::format("field \"{}\" is given twice", field->name)};
    }
    seen.push_back(field);
    TRIREME_TRY(parse_field(*field, words[i], schedule));
  }
  for (const Field& field : kFields) {
    if (field.is_needed && std::ranges::find(seen, &field) == seen.end()) {
      return Error{fmt::format("field \"{}=\" is missing", field.name)};
    }
  }
  if (schedule.num_buckets.empty()) {
    // The cap keeps a silly number from allocating; the verifier refuses it by name.
    schedule.num_buckets.assign(std::min(schedule.num_stages, 1 << 20), 0);
  }
  return schedule;
}

Result<std::vector<Action>> parse_rank(const std::vector<std::string_view>& words,
                                       size_t rank_index) {
  const std::string expected = fmt::format("{}:", rank_index);
  if (words.size() < 2 || words[0] != "rank" || words[1] != expected) {
    return Error{fmt::format(
        "expected \"rank {}\", found {}", expected,
        in_quotes(fmt::format(
            "{}", fmt::join(words.begin(), words.begin() + (words.size() < 2 ? 1 : 2), " "))))};
  }
  std::vector<Action> actions;
  for (size_t i = 2; i < words.size(); ++i) {
    TRIREME_TRY(const Action action, parse_action(words[i]));
    actions.push_back(action);
  }
  return actions;
}

}  // namespace

std::string to_text(const Action& action) {
  std::string text(kKinds[static_cast<size_t>(action.kind)].text);
  if (action.kind != ActionKind::kUpdate) text += fmt::format("{}", action.index);
  if (action.chunk != 0) text += fmt::format(".{}", action.chunk);
  return text.append(static_cast<size_t>(std::abs(action.batch)), action.batch < 0 ? '-' : '+');
}

Result<Action> parse_action(std::string_view text) {
  const bool has_sign = text.ends_with('+') || text.ends_with('-');
  const std::string_view unsigned_text = text.substr(0, text.size() - (has_sign ? 1 : 0));
  const std::string_view letters = unsigned_text.substr(
      0, std::min(unsigned_text.find_first_of(".0123456789"), unsigned_text.size()));
  const std::optional<ActionKind> kind = kind_from_text(letters);
  if (!kind) {
    return Error{fmt::format("unknown action {}; known are {}", in_quotes(text), known_kinds())};
  }
  Action action{.kind = *kind};
  if (has_sign) action.batch = text.back() == '+' ? 1 : -1;
  const std::string_view rest = unsigned_text.substr(letters.size());
  if (*kind == ActionKind::kUpdate) {
    if (!rest.empty()) return Error{fmt::format("action {}: U takes no number", in_quotes(text))};
    return action;
  }
  const size_t dot = rest.find('.');
  const std::optional<int32_t> index = parse_number(rest.substr(0, dot));
  if (!index) {
    return Error{fmt::format("action {}: {} needs a number", in_quotes(text), letters)};
  }
  action.index = *index;
  if (dot == std::string_view::npos) return action;
  const std::optional<int32_t> chunk = parse_number(rest.substr(dot + 1));
  if (!has_micro_batch(*kind) || !chunk || *chunk == 0) {
    return Error{fmt::format("action {}: {}", in_quotes(text),
                             has_micro_batch(*kind)
                                 ? "a chunk is a number from 1 (0 is not written)"
                                 : fmt::format("{} has no chunk", letters))};
  }
  action.chunk = *chunk;
  return action;
}

std::string to_text(const Schedule& schedule) {
  std::string text = fmt::format("schedule {} stages={}", schedule.builder, schedule.num_stages);
  if (schedule.num_chunks != 1) text += fmt::format(" chunks={}", schedule.num_chunks);
  if (schedule.placement == Placement::kV) text += " placement=v";
  text += fmt::format(" micro-batches={}", fmt::join(schedule.num_micro_batches, ","));
  text += fmt::format(" look-ahead={}", schedule.look_ahead);
  if (std::ranges::any_of(schedule.num_buckets, [](int32_t count) { return count != 0; })) {
    text += fmt::format(" buckets={}", fmt::join(schedule.num_buckets, ","));
  }
  for (size_t group = 0; group < schedule.tied_groups.size(); ++group) {
    text += fmt::format("{}{}", group == 0 ? " tied=" : ",",
                        fmt::join(schedule.tied_groups[group], "+"));
  }
  if (!schedule.num_tied_buckets.empty()) {
    text += fmt::format(" tied-buckets={}", fmt::join(schedule.num_tied_buckets, ","));
  }
  if (!schedule.num_row_tables.empty()) {
    text += fmt::format(" row-tables={}", fmt::join(schedule.num_row_tables, ","));
  }
  if (schedule.clips_norm) text += " clip-norm";
  if (schedule.num_weight_versions != 1) {
    text += fmt::format(" versions={}", schedule.num_weight_versions);
  }
  if (!schedule.num_found.empty()) {
    text += fmt::format(" found={}", fmt::join(schedule.num_found, ","));
  }
  if (!schedule.num_ahead.empty()) {
    text += fmt::format(" ahead={}", fmt::join(schedule.num_ahead, ","));
  }
  if (schedule.communication.updates_at_end) text += " updates-at-end";
  if (schedule.communication.sums_early) text += " early-sums";
  if (schedule.communication.has_one_urgency) text += " one-urgency";
  if (!schedule.is_training) text += " evaluation";
  text += "\n";
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    text += fmt::format("rank {}:", rank);
    for (const Action& action : schedule.ranks[rank]) text += fmt::format(" {}", to_text(action));
    text += "\n";
  }
  return text;
}

Result<Schedule> parse_schedule(std::string_view text) {
  std::optional<Schedule> schedule;
  int32_t line_number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++line_number;
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty()) continue;
    const std::string place = fmt::format("line {}", line_number);
    if (!schedule) {
      Result<Schedule> header = parse_header(words);
      if (!header.ok()) return while_doing(place, header.error());
      schedule = std::move(header).value();
      continue;
    }
    if (words[0] == "schedule") {
      return while_doing(place,
                         Error{"another schedule begins, and a file holds one step; a run of "
                               "steps that differ is had by its name, such as 2bw"});
    }
    Result<std::vector<Action>> actions = parse_rank(words, schedule->ranks.size());
    if (!actions.ok()) return while_doing(place, actions.error());
    schedule->ranks.push_back(std::move(actions).value());
  }
  if (!schedule) return Error{"line 1: expected \"schedule NAME\", found nothing"};
  return std::move(*schedule);
}

}  // namespace trireme
