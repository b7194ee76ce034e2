// Reads calls written as texts around a name and JSON arguments, and mends calls that lack a closing character. See
// call_readers.h.
#include <algorithm>
#include <type_traits>

#include "tokenizer/answers/call_readers.h"

namespace pinion {
namespace {

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kAsciiWhiteSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kAsciiWhiteSpace) + 1);
}

// The word with which a pattern goes on.
std::string_view first_word(std::string_view pattern) {
  if (pattern.starts_with(' ')) pattern.remove_prefix(1);
  return pattern.substr(0, pattern.find_first_of(" %"));
}

}  // namespace

// A hole ends where the text behind it in the pattern begins.
Step PatternCalls::read_hole(char hole, CallBuffer* buffer) {
  const std::string_view end = first_word(pattern_.substr(2));
  const std::string_view text = buffer->rest().substr(0, kMaxNameBytes + end.size());
  const size_t bytes = end.starts_with('?') ? text.find_first_of("[{") : text.find(end);
  if (bytes == std::string_view::npos) {
    return text.size() < kMaxNameBytes + end.size() ? Step::kNeedMore : Step::kReject;
  }
  const std::string_view value = trimmed(text.substr(0, bytes));
  if (hole == 'i' || hole == 'k') id_ = value;
  if (hole == 'n') name_ = value;
  if (hole == 'k') {  // functions.NAME:0
    const size_t begin = value.starts_with("functions.") ? value.find('.') + 1 : 0;
    name_ = value.substr(begin, value.find_last_of(':') - begin);
  }
  if (hole != 'i' && hole != '_' && !buffer->has_tool(name_)) return Step::kReject;
  buffer->skip(bytes);
  pattern_.remove_prefix(2);
  return Step::kContinue;
}

Step PatternCalls::read_arguments(CallBuffer* buffer) {
  if (!buffer->in_call()) {
    if (buffer->rest().empty()) return Step::kNeedMore;
    if (buffer->rest().front() != '{' || !buffer->has_tool(name_)) return Step::kReject;
    buffer->begin_call(name_, id_);
  }
  const Step step = read_json_arguments(&scanner_, buffer);
  if (step != Step::kDone) return step;
  pattern_.remove_prefix(2);
  return Step::kContinue;
}

Step PatternCalls::step(CallBuffer* buffer) {
  if (is_list_) return list_.step(buffer);
  if (pattern_.empty()) return Step::kDone;
  if (pattern_.front() == ' ' || pattern_.starts_with("%j")) {
    buffer->skip_white_space();
    if (buffer->rest().empty()) return Step::kNeedMore;
    is_list_ = pattern_.front() == '%' && std::string_view("[{").find(buffer->rest().front()) != std::string_view::npos;
    pattern_.remove_prefix(pattern_.front() == '%' ? 2 : 1);
    return Step::kContinue;
  }
  if (pattern_.front() == '%') {
    return pattern_[1] == 'a' ? read_arguments(buffer) : read_hole(pattern_[1], buffer);
  }
  const bool is_optional = pattern_.front() == '?';
  const std::string_view word = first_word(pattern_.substr(is_optional));
  const Step step = buffer->skip_word(word);
  const bool is_missing = step == Step::kReject && is_optional;
  if (step == Step::kDone) pattern_.remove_prefix(is_optional + word.size());
  if (scanner_.state() == JsonScanner::State::kComplete) buffer->hold();  // a text behind a call is never content
  if (is_missing) pattern_.remove_prefix(pattern_.find_first_of("? ", 1));
  return step == Step::kDone || is_missing ? Step::kContinue : step;
}

Step step_reader(CallReader& reader, CallBuffer* buffer) {
  return std::visit(
      [&](auto& calls) {
        if constexpr (std::is_same_v<std::decay_t<decltype(calls)>, std::monostate>) {
          return Step::kReject;
        } else {
          return calls.step(buffer);
        }
      },
      reader);
}

bool mend_call(const ToolFormatRow& row, const CallReader& reader, size_t opening_bytes, std::string_view held,
               std::string_view mark, CallBuffer* buffer) {
  constexpr size_t kMaxPlaces = 8;
  const std::string value_and_end = std::string(row.tags.value_end).append(row.tags.end);
  const std::string_view closers[] = {"}",          "]",          ")", "\"", "'", row.syntax, row.tags.value_end,
                                      row.tags.end, value_and_end};
  const size_t text_bytes = held.find_last_not_of(kAsciiWhiteSpace) + 1;
  const bool has_end_tag = !row.tags.end.empty() && held.substr(0, text_bytes).ends_with(row.tags.end);
  const size_t first = has_end_tag ? text_bytes - row.tags.end.size() : held.find_last_not_of("}])` \t\r\n") + 1;
  for (size_t at = first; at <= std::min(held.size(), first + kMaxPlaces); ++at) {
    for (const std::string_view closer : closers) {
      if (closer.empty()) continue;
      const std::string_view behind = held.substr(at);
      CallBuffer trial =
          buffer->with_held_text(std::string(held.substr(0, at)).append(closer).append(behind).append(mark));
      trial.skip(opening_bytes);
      CallReader calls = reader;
      Step step = Step::kContinue;
      while (step == Step::kContinue) step = step_reader(calls, &trial);
      const std::string_view rest = trimmed(trial.rest());
      const bool is_read = rest.empty() || rest == mark;
      if (!is_read || trial.in_call() || trial.begun_calls() < buffer->begun_calls()) continue;
      buffer->take_call(trial, held.size() + mark.size());
      return true;
    }
  }
  return false;
}

}  // namespace pinion
