#include "tokenizer/answers/brace_calls.h"

#include <algorithm>

#include "tokenizer/answers/json_calls.h"
#include "tokenizer/answers/stop_texts.h"
#include "tokenizer/answers/xml_calls.h"

namespace pinion {
namespace {

constexpr size_t kMaxNesting = 128;
constexpr size_t kMaxPlainBytes = 1024;  // of a value without marks around it

}  // namespace

Step BraceCalls::say(std::string_view json, size_t bytes, Phase next, CallStream* stream) {
  stream->say(ToolEvent::Kind::kArguments, json);
  stream->skip(bytes);
  phase_ = next;
  return Step::kOn;
}

Step BraceCalls::open(Phase next, CallStream* stream) {
  if (open_.size() == kMaxNesting) return Step::kWrong;
  const char bracket = stream->rest().front();
  open_ += bracket;
  return say({&bracket, 1}, 1, next, stream);
}

Step BraceCalls::close(CallStream* stream) {
  const char bracket = stream->rest().front();
  if (bracket != (open_.back() == '{' ? '}' : ']')) return Step::kWrong;
  open_.pop_back();
  say({&bracket, 1}, 1, Phase::kCommaOrEnd, stream);
  if (!open_.empty()) return Step::kOn;
  stream->end_call(true);
  phase_ = Phase::kClose;
  return Step::kOn;
}

Step BraceCalls::read_name(CallStream* stream) {
  const std::string_view text = stream->rest().substr(0, kMaxNameBytes + 1);
  const size_t bytes = text.find_first_of("{<\n");
  if (bytes == std::string_view::npos) return text.size() > kMaxNameBytes ? Step::kWrong : Step::kMore;
  const std::string name(text.substr(0, bytes));
  if (text[bytes] != '{' || !stream->knows(name)) return Step::kWrong;
  stream->skip(bytes);
  stream->begin_call(name, {});
  return open(Phase::kKeyOrEnd, stream);
}

Step BraceCalls::read_key(CallStream* stream) {
  if (phase_ == Phase::kKeyOrEnd && stream->rest().front() == '}') return close(stream);
  const Match quoted = match(stream->rest(), row_.quote);
  behind_string_ = Phase::kColon;
  if (quoted == Match::kYes) return say("\"", row_.quote.size(), Phase::kString, stream);
  if (quoted == Match::kBegun) return Step::kMore;
  const std::string_view text = stream->rest().substr(0, kMaxNameBytes + 1);
  const size_t bytes = text.find_first_of(":,{}[]<\n");
  if (bytes == std::string_view::npos) return text.size() > kMaxNameBytes ? Step::kWrong : Step::kMore;
  if (text[bytes] != ':' || bytes == 0) return Step::kWrong;
  std::string json = "\"";
  append_json_escaped(text.substr(0, bytes), &json);
  return say(json + "\"", bytes, Phase::kColon, stream);
}

Step BraceCalls::read_value(CallStream* stream) {
  const char c = stream->rest().front();
  if (c == '{') return open(Phase::kKeyOrEnd, stream);
  if (c == '[') return open(Phase::kElementOrEnd, stream);
  if (c == ']' && phase_ == Phase::kElementOrEnd) return close(stream);
  const Match quoted = match(stream->rest(), row_.quote);
  behind_string_ = Phase::kCommaOrEnd;
  if (quoted == Match::kYes) return say("\"", row_.quote.size(), Phase::kString, stream);
  return quoted == Match::kBegun ? Step::kMore : read_plain(stream);
}

// Numbers and the like; what is none of them is a string whose marks the model left out.
Step BraceCalls::read_plain(CallStream* stream) {
  const std::string_view text = stream->rest().substr(0, kMaxPlainBytes + 1);
  const size_t bytes = text.find_first_of(",}]");
  if (bytes == std::string_view::npos) return text.size() > kMaxPlainBytes ? Step::kWrong : Step::kMore;
  if (bytes == 0) return Step::kWrong;
  std::string json = plain_value(text.substr(0, bytes), {"number", "boolean", "null"});
  if (json.empty()) {
    json = '"';
    append_json_escaped(text.substr(0, text.find_last_not_of(" \t\r\n", bytes - 1) + 1), &json);
    json += '"';
  }
  return say(json, bytes, Phase::kCommaOrEnd, stream);
}

Step BraceCalls::read_string(CallStream* stream) {
  const std::string_view text = stream->rest();
  const size_t found = text.find(row_.quote);
  const bool has_ended = found != std::string_view::npos;
  const size_t certain = has_ended ? found : text.size() - begun_mark(text, row_.quote);
  std::string json;
  append_json_escaped(text.substr(0, certain), &json);
  if (has_ended) return say(json + '"', certain + row_.quote.size(), behind_string_, stream);
  say(json, certain, Phase::kString, stream);
  return Step::kMore;
}

Step BraceCalls::read_comma(CallStream* stream) {
  if (stream->rest().front() != ',') return close(stream);
  return say(", ", 1, open_.back() == '{' ? Phase::kKey : Phase::kValue, stream);
}

Step BraceCalls::step(CallStream* stream) {
  if (phase_ == Phase::kString) return read_string(stream);
  stream->skip_blanks();
  if (stream->rest().empty()) return Step::kMore;
  switch (phase_) {
    case Phase::kCall: {
      const Step step = stream->skip_word("call:");
      if (step == Step::kDone) phase_ = Phase::kName;
      return step == Step::kDone ? Step::kOn : step;
    }
    case Phase::kName:
      return read_name(stream);
    case Phase::kKeyOrEnd:
    case Phase::kKey:
      return read_key(stream);
    case Phase::kColon:
      return stream->rest().front() == ':' ? say(": ", 1, Phase::kValue, stream) : Step::kWrong;
    case Phase::kElementOrEnd:
    case Phase::kValue:
      return read_value(stream);
    case Phase::kCommaOrEnd:
      return read_comma(stream);
    default:
      return skip_close(row_, stream);
  }
}

}  // namespace pinion
