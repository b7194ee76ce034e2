// Reads calls written as texts around a name and JSON arguments. See call_readers.h.
#include "tokenizer/answers/call_readers.h"

namespace pinion {
namespace {

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

}  // namespace pinion
