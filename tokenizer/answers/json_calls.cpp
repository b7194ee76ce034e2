// Reads calls written as JSON objects, and as texts around a name and JSON arguments. See call_readers.h.
#include "tokenizer/answers/call_readers.h"

namespace pinion {
namespace {

bool is_json_object(const std::string& json) {
  JsonScanner scanner;
  std::string read;
  const size_t begin = json.find_first_not_of(kAsciiWhiteSpace);
  if (begin == std::string::npos || json[begin] != '{') return false;
  const size_t end = begin + scanner.put(std::string_view(json).substr(begin), &read);
  return scanner.state() == JsonScanner::State::kComplete && json.find_first_not_of(kAsciiWhiteSpace, end) == json.npos;
}

class JsonCalls {
 public:
  explicit JsonCalls(const ToolFormatRow& row) : row_(&row) {}

  Step operator()(CallBuffer* buffer) {
    if (phase_ == Phase::kKeyText || phase_ == Phase::kValueText) return read_text(buffer);
    buffer->skip_white_space();
    return buffer->rest().empty() ? Step::kNeedMore : read_punctuation(buffer->rest().front(), buffer);
  }

 private:
  enum class Phase { kStart, kItem, kFirstKey, kKey, kKeyText, kColon, kValue, kValueText, kValueEnd, kComma, kClose };
  enum class Role { kName, kId, kArguments, kOther };

  Step advance(Phase next, CallBuffer* buffer) {
    buffer->skip(1);
    return go_on(&phase_, next);
  }

  Step start(char c, CallBuffer* buffer) {
    if (c == ';' && is_bare() && may_skip_semicolon_ && buffer->begun_calls() > 0) {
      may_skip_semicolon_ = false;
      return advance(Phase::kStart, buffer);
    }
    if (c == '[' && phase_ == Phase::kStart) {
      in_list_ = true;
      return advance(Phase::kItem, buffer);
    }
    if (c != '{') return Step::kReject;
    key_ = name_ = id_ = arguments_ = {};
    is_ended_ = false;
    return advance(Phase::kFirstKey, buffer);
  }

  Step start_key(char c, CallBuffer* buffer) {
    if (c == '}' && phase_ == Phase::kFirstKey) return end_object(buffer);
    if (c != '"') return Step::kReject;
    scanner_ = {};
    value_.clear();
    return go_on(&phase_, Phase::kKeyText);
  }

  Role role_of(const std::string& key) const {
    if (is_ended_) return Role::kOther;
    if (row_->key_is_name || key == "arguments" || key == "parameters") return Role::kArguments;
    if (key == "name" || key == "tool_name") return Role::kName;
    return key == "id" || key == "tool_call_id" ? Role::kId : Role::kOther;
  }

  Step start_value(char c, CallBuffer* buffer) {
    role_ = role_of(key_);
    if (row_->key_is_name) name_ = buffer->has_tool(key_) ? key_ : "";  // {NAME: {...}}
    // Any other key shows that the answer is JSON but no call, so it must not be held back.
    if (is_bare() && !is_ended_ && role_ == Role::kOther && key_ != "type") return Step::kReject;
    if (role_ == Role::kArguments && c == '{' && !name_.empty()) buffer->begin_call(name_, id_);
    scanner_ = {};
    value_.clear();
    return go_on(&phase_, Phase::kValueText);
  }

  void emit_whole(const std::string& arguments, CallBuffer* buffer) {
    buffer->begin_call(name_, id_);
    buffer->emit(EventKind::kArguments, arguments);
    buffer->end_call(true);
    is_ended_ = true;
  }

  // Some models write the object inside a string, or null for no arguments. False: the value is no object.
  bool take_arguments() {
    if (value_.front() == '"') value_ = json_string(value_);
    arguments_ = value_.empty() || value_ == "null" ? "{}" : value_;
    return is_json_object(arguments_);
  }

  Step take_value(CallBuffer* buffer) {
    phase_ = Phase::kValueEnd;
    if (buffer->in_call()) {
      buffer->end_call(true);
      is_ended_ = true;
      return Step::kContinue;
    }
    if (role_ == Role::kName) name_ = json_string(value_);
    if (role_ == Role::kName && !buffer->has_tool(name_)) return Step::kReject;
    if (role_ == Role::kId) id_ = json_string(value_);
    if (role_ == Role::kArguments && !take_arguments()) return Step::kReject;
    if (!is_ended_ && !name_.empty() && !arguments_.empty()) emit_whole(arguments_, buffer);
    return Step::kContinue;
  }

  Step read_text(CallBuffer* buffer) {
    if (buffer->rest().empty()) return Step::kNeedMore;
    std::string piece;
    buffer->skip(scanner_.put(buffer->rest(), &piece));
    if (buffer->in_call()) {
      buffer->emit(EventKind::kArguments, piece);
    } else {
      value_ += piece;
    }
    if (scanner_.state() == JsonScanner::State::kIncomplete) return Step::kNeedMore;
    if (scanner_.state() == JsonScanner::State::kInvalid) return Step::kReject;
    if (phase_ == Phase::kValueText) return take_value(buffer);
    key_ = json_string(value_);
    return go_on(&phase_, Phase::kColon);
  }

  // {"name": ...} without arguments is a call only after a mark.
  Step end_object(CallBuffer* buffer) {
    if (!is_ended_ && (name_.empty() || is_bare())) return Step::kReject;
    if (!is_ended_) emit_whole("{}", buffer);
    return in_list_ ? end_bracket(Phase::kComma, buffer) : end_bracket(Phase::kClose, buffer);
  }

  // Skips a bracket that ends a call or a list of calls, and restarts the held text, so that it never becomes content.
  Step end_bracket(Phase next, CallBuffer* buffer) {
    advance(next, buffer);
    buffer->hold();
    return next == Phase::kClose && row_->close[0].empty() ? Step::kDone : Step::kContinue;
  }

  Step read_punctuation(char c, CallBuffer* buffer) {
    using enum Phase;
    if (phase_ == kStart || phase_ == kItem) return start(c, buffer);
    if (phase_ == kFirstKey || phase_ == kKey) return start_key(c, buffer);
    if (phase_ == kColon) return c == ':' ? advance(kValue, buffer) : Step::kReject;
    if (phase_ == kValue) return start_value(c, buffer);
    if (phase_ == kClose) {
      if (c == '}') return advance(kClose, buffer);  // one too many
      // Some models write several objects between two marks.
      return c == '{' ? start(c, buffer) : skip_close(*row_, buffer);
    }
    if (phase_ == kValueEnd && c == '}') return end_object(buffer);
    if (c == ']' && in_list_ && (phase_ == kComma || is_ended_)) {  // the brace of the last call may be missing
      in_list_ = false;
      return end_bracket(kClose, buffer);
    }
    return c == ',' ? advance(phase_ == kComma ? kItem : kKey, buffer) : Step::kReject;
  }

  bool is_bare() const { return !row_->bare.empty(); }

  const ToolFormatRow* row_;
  Phase phase_ = Phase::kStart;
  bool in_list_ = false;
  bool may_skip_semicolon_ = true;                   // bare: one ';' may stand before a call
  std::string key_, name_, id_, value_, arguments_;  // fields of the current object
  Role role_ = Role::kOther;
  bool is_ended_ = false;  // the call of the current object has been emitted
  JsonScanner scanner_;
};

// The word with which a pattern goes on.
std::string_view first_word(std::string_view pattern) {
  if (pattern.starts_with(' ')) pattern.remove_prefix(1);
  return pattern.substr(0, pattern.find_first_of(" %"));
}

class PatternCalls {
 public:
  explicit PatternCalls(const ToolFormatRow& row) : pattern_(row.syntax), list_(row) {}

  Step operator()(CallBuffer* buffer) {
    if (is_list_) return list_(buffer);
    if (pattern_.empty()) return Step::kDone;
    if (pattern_.front() == ' ' || pattern_.starts_with("%j")) {
      buffer->skip_white_space();
      if (buffer->rest().empty()) return Step::kNeedMore;
      is_list_ = pattern_.front() == '%' && buffer->rest().find_first_of("[{") == 0;
      pattern_.remove_prefix(pattern_.front() == '%' ? 2 : 1);
      return Step::kContinue;
    }
    if (pattern_.front() == '%') return pattern_[1] == 'a' ? read_arguments(buffer) : read_hole(pattern_[1], buffer);
    const bool is_optional = pattern_.front() == '?';
    const std::string_view word = first_word(pattern_.substr(is_optional));
    const Step step = buffer->skip_word(word);
    const bool is_missing = step == Step::kReject && is_optional;
    if (step == Step::kDone) pattern_.remove_prefix(is_optional + word.size());
    if (scanner_.state() == JsonScanner::State::kComplete) buffer->hold();  // a text behind a call is never content
    if (is_missing) pattern_.remove_prefix(pattern_.find_first_of("? ", 1));
    return step == Step::kDone || is_missing ? Step::kContinue : step;
  }

 private:
  // A hole ends where the text behind it in the pattern begins.
  Step read_hole(char hole, CallBuffer* buffer) {
    const std::string_view end = first_word(pattern_.substr(2));
    const std::string_view text = buffer->rest().substr(0, kMaxNameBytes + end.size());
    const size_t bytes = end.starts_with('?') ? text.find_first_of("[{") : text.find(end);
    if (bytes == text.npos) return text.size() < kMaxNameBytes + end.size() ? Step::kNeedMore : Step::kReject;
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

  Step read_arguments(CallBuffer* buffer) {
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

  std::string_view pattern_;  // the rest of it
  std::string name_, id_;
  JsonScanner scanner_;
  bool is_list_ = false;
  JsonCalls list_;
};

}  // namespace

CallReader json_calls(const ToolFormatRow& row) { return JsonCalls(row); }
CallReader pattern_calls(const ToolFormatRow& row) { return PatternCalls(row); }

}  // namespace pinion
