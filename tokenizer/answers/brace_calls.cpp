// Reads calls of FunctionGemma: JSON with <escape> in place of quotes around strings. See call_readers.h.
#include "tokenizer/answers/answer_text.h"
#include "tokenizer/answers/call_readers.h"

namespace pinion {
namespace {

constexpr size_t kMaxBraces = 128;          // nesting
constexpr size_t kMaxUnquotedBytes = 1024;  // of one value

}  // namespace

Step BraceCalls::emit(std::string_view json, size_t bytes, Phase next, CallBuffer* buffer) {
  buffer->emit(EventKind::kArguments, json);
  buffer->skip(bytes);
  phase_ = next;
  return Step::kContinue;
}

Step BraceCalls::open(Phase next, CallBuffer* buffer) {
  if (open_.size() == kMaxBraces) return Step::kReject;
  const char bracket = buffer->rest().front();
  open_ += bracket;
  return emit({&bracket, 1}, 1, next, buffer);
}

Step BraceCalls::close(CallBuffer* buffer) {
  const char bracket = buffer->rest().front();
  if (bracket != (open_.back() == '{' ? '}' : ']')) return Step::kReject;
  open_.pop_back();
  emit({&bracket, 1}, 1, Phase::kCommaOrEnd, buffer);
  if (!open_.empty()) return Step::kContinue;
  buffer->end_call(true);
  phase_ = Phase::kClose;
  return Step::kContinue;
}

Step BraceCalls::read_name(CallBuffer* buffer) {
  size_t bytes = 0;
  if (Step step = buffer->find_first_of("{<\n", kMaxNameBytes, &bytes); step != Step::kDone) return step;
  const std::string name(buffer->rest().substr(0, bytes));
  if (buffer->rest()[bytes] != '{' || !buffer->has_tool(name)) return Step::kReject;
  buffer->skip(bytes);
  buffer->begin_call(name, {});
  return open(Phase::kKeyOrEnd, buffer);
}

Step BraceCalls::read_key(CallBuffer* buffer) {
  if (phase_ == Phase::kKeyOrEnd && buffer->rest().front() == '}') return close(buffer);
  const Match quoted = match(buffer->rest(), row_.quote);
  after_string_ = Phase::kColon;
  if (quoted == Match::kYes) return emit("\"", row_.quote.size(), Phase::kString, buffer);
  if (quoted == Match::kPartial) return Step::kNeedMore;
  size_t bytes = 0;
  if (Step step = buffer->find_first_of(":,{}[]<\n", kMaxNameBytes, &bytes); step != Step::kDone) return step;
  if (buffer->rest()[bytes] != ':' || bytes == 0) return Step::kReject;
  std::string json = "\"";
  append_json_escaped(buffer->rest().substr(0, bytes), &json);
  return emit(json + "\"", bytes, Phase::kColon, buffer);
}

Step BraceCalls::read_value(CallBuffer* buffer) {
  const char c = buffer->rest().front();
  if (c == '{') return open(Phase::kKeyOrEnd, buffer);
  if (c == '[') return open(Phase::kElementOrEnd, buffer);
  if (c == ']' && phase_ == Phase::kElementOrEnd) return close(buffer);
  const Match quoted = match(buffer->rest(), row_.quote);
  after_string_ = Phase::kCommaOrEnd;
  if (quoted == Match::kYes) return emit("\"", row_.quote.size(), Phase::kString, buffer);
  return quoted == Match::kPartial ? Step::kNeedMore : read_plain(buffer);
}

// A number, boolean or null; anything else is a string that the model did not quote.
Step BraceCalls::read_plain(CallBuffer* buffer) {
  size_t bytes = 0;
  if (Step step = buffer->find_first_of(",}]", kMaxUnquotedBytes, &bytes); step != Step::kDone) return step;
  if (bytes == 0) return Step::kReject;
  const std::string_view text = buffer->rest().substr(0, bytes);
  std::string json = plain_value(text, {"number", "boolean", "null"});
  if (json.empty()) {
    json = '"';
    append_json_escaped(text.substr(0, text.find_last_not_of(kAsciiWhiteSpace) + 1), &json);
    json += '"';
  }
  return emit(json, bytes, Phase::kCommaOrEnd, buffer);
}

Step BraceCalls::read_string(CallBuffer* buffer) {
  const std::string_view text = buffer->rest();
  const size_t found = text.find(row_.quote);
  const bool has_ended = found != std::string_view::npos;
  const size_t certain = has_ended ? found : text.size() - partial_mark_bytes(text, row_.quote);
  std::string json;
  append_json_escaped(text.substr(0, certain), &json);
  if (has_ended) return emit(json + '"', certain + row_.quote.size(), after_string_, buffer);
  emit(json, certain, Phase::kString, buffer);
  return Step::kNeedMore;
}

Step BraceCalls::read_comma(CallBuffer* buffer) {
  if (buffer->rest().front() != ',') return close(buffer);
  return emit(", ", 1, open_.back() == '{' ? Phase::kKey : Phase::kValue, buffer);
}

Step BraceCalls::step(CallBuffer* buffer) {
  if (phase_ == Phase::kString) return read_string(buffer);
  buffer->skip_white_space();
  if (buffer->rest().empty()) return Step::kNeedMore;
  switch (phase_) {
    case Phase::kCall: {
      const Step step = buffer->skip_word("call:");
      if (step == Step::kDone) phase_ = Phase::kName;
      return step == Step::kDone ? Step::kContinue : step;
    }
    case Phase::kName:
      return read_name(buffer);
    case Phase::kKeyOrEnd:
    case Phase::kKey:
      return read_key(buffer);
    case Phase::kColon:
      return buffer->rest().front() == ':' ? emit(": ", 1, Phase::kValue, buffer) : Step::kReject;
    case Phase::kElementOrEnd:
    case Phase::kValue:
      return read_value(buffer);
    case Phase::kCommaOrEnd:
      return read_comma(buffer);
    default:
      return skip_close(row_, buffer);
  }
}

}  // namespace pinion
