// Reads the Gemma family's calls, which are JSON with marks as quotes, and calls in Python. See call_readers.h.

#include "tokenizer/answers/answer_text.h"
#include "tokenizer/answers/call_readers.h"

namespace pinion {
namespace {

constexpr size_t kMaxBraces = 128;          // nesting
constexpr size_t kMaxUnquotedBytes = 1024;  // of one value

// The content of a string of Python as JSON, without quotes. Escapes that JSON does not have stay text.
std::string json_of_python(std::string_view text) {
  std::string json;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view pair = text[i] == '\\' ? text.substr(i, 2) : "";
    if (pair == "\\'") continue;
    if (pair.size() == 2 && std::string_view("\"\\/bfnrt").find(pair[1]) != std::string_view::npos) {
      json += pair;
      ++i;
    } else {
      json += json_escaped(text.substr(i, 1));
    }
  }
  return json;
}

class BraceCalls {
 public:
  explicit BraceCalls(const ToolFormatRow& row) : row_(&row), is_python_(row.body == ToolBody::kPython) {}

  Step operator()(CallBuffer* buffer) {
    if (phase_ == &BraceCalls::read_string) return read_string(buffer);
    buffer->skip_white_space();
    return buffer->rest().empty() ? Step::kNeedMore : (this->*phase_)(buffer);
  }

 private:
  using Phase = Step (BraceCalls::*)(CallBuffer*);  // reads the next part of a call, behind white space

  Step emit(std::string_view json, size_t bytes, Phase next, CallBuffer* buffer) {
    buffer->emit(EventKind::kArguments, json);
    buffer->skip(bytes);
    return go_on(&phase_, next);
  }

  Step open(Phase next, CallBuffer* buffer) {
    if (open_.size() == kMaxBraces) return Step::kReject;
    const char bracket = buffer->rest().front();
    open_ += bracket;
    return emit(bracket == '[' ? "[" : "{", 1, next, buffer);
  }

  Step close(CallBuffer* buffer) {
    const char bracket = open_.back();
    if (buffer->rest().front() != (bracket == '{' ? '}' : bracket == '(' ? ')' : ']')) return Step::kReject;
    open_.pop_back();
    emit(bracket == '[' ? "]" : "}", 1, &BraceCalls::read_comma, buffer);
    if (!open_.empty()) return Step::kContinue;
    buffer->end_call(true);
    return go_on(&phase_, is_python_ ? &BraceCalls::start_next : &BraceCalls::end);
  }

  Step end(CallBuffer* buffer) { return skip_close(*row_, buffer); }

  Step start(CallBuffer* buffer) {
    const Step step = is_python_ ? Step::kDone : buffer->skip_word("call:");
    if (step != Step::kDone) return step;
    in_list_ = is_python_ && buffer->rest().front() == '[';
    if (!in_list_ && !row_->bare.empty()) return Step::kReject;
    buffer->skip(in_list_);
    return go_on(&phase_, &BraceCalls::read_name);
  }

  // Calls are separated by commas in a list, else by line ends.
  Step start_next(CallBuffer* buffer) {
    const char c = buffer->rest().front();
    if (c == ']' && in_list_) {
      buffer->skip(1);
      buffer->hold();
      phase_ = &BraceCalls::end;
      return row_->bare.empty() ? Step::kContinue : Step::kDone;
    }
    if (!in_list_ && (c == '<' || c == '`')) return skip_close(*row_, buffer);
    if (in_list_ && c != ',') return Step::kReject;
    buffer->skip(in_list_);
    return go_on(&phase_, &BraceCalls::read_name);
  }

  Match match_quote(std::string_view text) {
    if (!is_python_) return match(text, quote_ = row_->syntax);
    quote_ = text.front() == '"' ? "\"" : "'";
    searched_ = 0;
    return match(text, quote_);
  }

  Step read_name(CallBuffer* buffer) {
    size_t bytes = 0;
    const std::string_view ends = is_python_ ? "(<\n" : "{<\n";
    if (Step step = buffer->find_first_of(ends, kMaxNameBytes, &bytes); step != Step::kDone) return step;
    const std::string name(buffer->rest().substr(0, bytes));
    if (buffer->rest()[bytes] != ends[0] || !buffer->has_tool(name)) return Step::kReject;
    buffer->skip(bytes);
    buffer->begin_call(name, {});
    return open(&BraceCalls::read_key_or_end, buffer);
  }

  char separator() const { return open_.back() == '(' ? '=' : ':'; }

  Step read_key_or_end(CallBuffer* buffer) {
    return buffer->rest().front() == (open_.back() == '(' ? ')' : '}') ? close(buffer) : read_key(buffer);
  }

  Step read_key(CallBuffer* buffer) {
    const bool is_argument = open_.back() == '(';
    const Match quoted = is_argument ? Match::kNo : match_quote(buffer->rest());
    after_string_ = &BraceCalls::read_colon;
    if (quoted == Match::kYes) return emit("\"", quote_.size(), &BraceCalls::read_string, buffer);
    if (quoted == Match::kPartial) return Step::kNeedMore;
    size_t bytes = 0;
    if (Step step = buffer->find_first_of(":=,(){}[]<\n", kMaxNameBytes, &bytes); step != Step::kDone) return step;
    if (buffer->rest()[bytes] != separator() || bytes == 0) return Step::kReject;
    return emit('"' + json_escaped(buffer->rest().substr(0, bytes)) + '"', bytes, &BraceCalls::read_colon, buffer);
  }

  Step read_colon(CallBuffer* buffer) {
    return buffer->rest().front() == separator() ? emit(": ", 1, &BraceCalls::read_value, buffer) : Step::kReject;
  }

  Step read_comma(CallBuffer* buffer) {
    if (buffer->rest().front() != ',') return close(buffer);
    return emit(", ", 1, open_.back() == '[' ? &BraceCalls::read_value : &BraceCalls::read_key, buffer);
  }

  Step read_element_or_end(CallBuffer* buffer) {
    return buffer->rest().front() == ']' ? close(buffer) : read_value(buffer);
  }

  Step read_value(CallBuffer* buffer) {
    const char c = buffer->rest().front();
    if (c == '{') return open(&BraceCalls::read_key_or_end, buffer);
    if (c == '[') return open(&BraceCalls::read_element_or_end, buffer);
    const Match quoted = match_quote(buffer->rest());
    after_string_ = &BraceCalls::read_comma;
    if (quoted == Match::kYes) return emit("\"", quote_.size(), &BraceCalls::read_string, buffer);
    return quoted == Match::kPartial ? Step::kNeedMore : read_plain(buffer);
  }

  // A number, boolean or null; anything else is a string that the model did not quote.
  Step read_plain(CallBuffer* buffer) {
    size_t bytes = 0;
    const std::string_view ends = is_python_ ? ",}])" : ",}]";
    if (Step step = buffer->find_first_of(ends, kMaxUnquotedBytes, &bytes); step != Step::kDone) return step;
    if (bytes == 0) return Step::kReject;
    const std::string_view text = buffer->rest().substr(0, bytes);
    std::string json = plain_value(text, {"number", "boolean", "null"});
    if (json.empty()) json = '"' + json_escaped(text.substr(0, text.find_last_not_of(kAsciiWhiteSpace) + 1)) + '"';
    return emit(json, bytes, &BraceCalls::read_comma, buffer);
  }

  // The string stays unread until its end is known.
  Step read_python_string(CallBuffer* buffer) {
    const std::string_view text = buffer->rest();
    size_t at = searched_;
    while (at < text.size() && text[at] != quote_[0]) at += text[at] == '\\' ? 2 : 1;
    searched_ = at;
    if (at >= text.size()) return Step::kNeedMore;
    return emit(json_of_python(text.substr(0, at)) + '"', at + 1, after_string_, buffer);
  }

  Step read_string(CallBuffer* buffer) {
    if (is_python_) return read_python_string(buffer);
    const std::string_view text = buffer->rest();
    const size_t found = text.find(quote_);
    const bool has_ended = found != std::string_view::npos;
    const size_t certain = has_ended ? found : text.size() - partial_mark_bytes(text, quote_);
    const std::string json = json_escaped(text.substr(0, certain));
    if (has_ended) return emit(json + '"', certain + quote_.size(), after_string_, buffer);
    emit(json, certain, &BraceCalls::read_string, buffer);
    return Step::kNeedMore;
  }

  const ToolFormatRow* row_;
  bool is_python_;
  bool in_list_ = false;  // kPython: of calls
  Phase phase_ = &BraceCalls::start;
  Phase after_string_ = &BraceCalls::read_comma;
  std::string open_;        // enclosing brackets: '{', '[', and '(' around the arguments of kPython
  std::string_view quote_;  // around the current string
  size_t searched_ = 0;     // leading bytes of a string of kPython that do not contain its end
};

}  // namespace

CallReader brace_calls(const ToolFormatRow& row) { return BraceCalls(row); }

}  // namespace pinion
