#include "tokenizer/answers/json_calls.h"

#include <algorithm>

namespace pinion {
namespace {

bool is_object(const std::string& json) {
  JsonScanner scanner;
  std::string read;
  const size_t begin = json.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || json[begin] != '{') return false;
  const size_t end = begin + scanner.put(std::string_view(json).substr(begin), &read);
  return scanner.state() == JsonScanner::State::kDone && json.find_first_not_of(" \t\r\n", end) == std::string::npos;
}

}  // namespace

Step skip_close(const ToolFormatRow& row, CallStream* stream) {
  stream->skip_blanks();
  Step step = Step::kWrong;
  for (const std::string_view mark : row.close) {
    if (mark.empty()) continue;
    const Step found = stream->skip_word(mark);
    if (found == Step::kDone) return found;
    if (found == Step::kMore) step = found;
  }
  return step;
}

Step JsonCalls::go_on(Phase next, CallStream* stream) {
  stream->skip(1);
  phase_ = next;
  return Step::kOn;
}

Step JsonCalls::start(char c, CallStream* stream) {
  if (c == ';' && row_.is_bare && may_separate_ && stream->begun_calls() > 0) {
    may_separate_ = false;
    return go_on(Phase::kStart, stream);
  }
  if (c == '[' && phase_ == Phase::kStart) {
    in_list_ = true;
    return go_on(Phase::kElement, stream);
  }
  if (c != '{') return Step::kWrong;
  key_ = name_ = id_ = arguments_ = {};
  is_ended_ = false;
  return go_on(Phase::kFirstKey, stream);
}

Step JsonCalls::start_key(char c, CallStream* stream) {
  if (c == '}' && phase_ == Phase::kFirstKey) return end_object(stream);
  if (c != '"') return Step::kWrong;
  scanner_ = {};
  value_.clear();
  phase_ = Phase::kKeyText;
  return Step::kOn;
}

Step JsonCalls::start_value(char c, CallStream* stream) {
  role_ = key_ == "name"                                ? Role::kName
          : key_ == "id"                                ? Role::kId
          : key_ == "arguments" || key_ == "parameters" ? Role::kArguments
                                                        : Role::kOther;
  if (is_ended_) role_ = Role::kOther;
  // An answer that is JSON is not held back for long.
  if (row_.is_bare && !is_ended_ && role_ == Role::kOther && key_ != "type") return Step::kWrong;
  if (role_ == Role::kArguments && c == '{' && !name_.empty()) stream->begin_call(name_, id_);
  scanner_ = {};
  value_.clear();
  phase_ = Phase::kValueText;
  return Step::kOn;
}

void JsonCalls::emit_whole(const std::string& arguments, CallStream* stream) {
  stream->begin_call(name_, id_);
  stream->say(ToolEvent::Kind::kArguments, arguments);
  stream->end_call(true);
  is_ended_ = true;
}

// Some models write the object as a string, some write null for none.
bool JsonCalls::take_arguments() {
  if (value_.front() == '"') value_ = json_string(value_);
  arguments_ = value_.empty() || value_ == "null" ? "{}" : value_;
  return is_object(arguments_);
}

Step JsonCalls::take_value(CallStream* stream) {
  phase_ = Phase::kAfterValue;
  if (stream->in_call()) {
    stream->end_call(true);
    is_ended_ = true;
    return Step::kOn;
  }
  if (role_ == Role::kName) name_ = json_string(value_);
  if (role_ == Role::kName && !stream->knows(name_)) return Step::kWrong;
  if (role_ == Role::kId) id_ = json_string(value_);
  if (role_ == Role::kArguments && !take_arguments()) return Step::kWrong;
  if (!is_ended_ && !name_.empty() && !arguments_.empty()) emit_whole(arguments_, stream);
  return Step::kOn;
}

Step JsonCalls::read_text(CallStream* stream) {
  if (stream->rest().empty()) return Step::kMore;
  std::string piece;
  stream->skip(scanner_.put(stream->rest(), &piece));
  if (stream->in_call()) {
    stream->say(ToolEvent::Kind::kArguments, piece);
  } else {
    value_ += piece;
  }
  if (scanner_.state() == JsonScanner::State::kGoing) return Step::kMore;
  if (scanner_.state() == JsonScanner::State::kWrong) return Step::kWrong;
  if (phase_ == Phase::kValueText) return take_value(stream);
  key_ = json_string(value_);
  phase_ = Phase::kColon;
  return Step::kOn;
}

// A call without arguments is one where a mark says so.
Step JsonCalls::end_object(CallStream* stream) {
  if (!is_ended_ && (name_.empty() || row_.is_bare)) return Step::kWrong;
  if (!is_ended_) emit_whole("{}", stream);
  return in_list_ ? end_bracket(Phase::kAfterElement, stream) : end_bracket(Phase::kClose, stream);
}

// A bracket that belongs to a call, complete by now, is never content.
Step JsonCalls::end_bracket(Phase next, CallStream* stream) {
  go_on(next, stream);
  stream->hold();
  return next == Phase::kClose && row_.close[0].empty() ? Step::kDone : Step::kOn;
}

Step JsonCalls::read_punctuation(char c, CallStream* stream) {
  switch (phase_) {
    case Phase::kStart:
    case Phase::kElement:
      return start(c, stream);
    case Phase::kFirstKey:
    case Phase::kKey:
      return start_key(c, stream);
    case Phase::kColon:
      return c == ':' ? go_on(Phase::kValue, stream) : Step::kWrong;
    case Phase::kValue:
      return start_value(c, stream);
    case Phase::kAfterValue:
      if (c == '}') return end_object(stream);
      return c == ',' ? go_on(Phase::kKey, stream) : Step::kWrong;
    case Phase::kAfterElement:
      if (c == ',') return go_on(Phase::kElement, stream);
      if (c != ']') return Step::kWrong;
      in_list_ = false;
      return end_bracket(Phase::kClose, stream);
    default:
      // Some models write several objects between two marks.
      return c == '{' ? start(c, stream) : skip_close(row_, stream);
  }
}

Step JsonCalls::step(CallStream* stream) {
  if (phase_ == Phase::kKeyText || phase_ == Phase::kValueText) return read_text(stream);
  stream->skip_blanks();
  return stream->rest().empty() ? Step::kMore : read_punctuation(stream->rest().front(), stream);
}

Step NamedCalls::read_up_to(std::string_view ends, std::string* out, Phase next, CallStream* stream) {
  const std::string_view text = stream->rest().substr(0, kMaxNameBytes + 1);
  const size_t bytes = text.find_first_of(ends);
  if (bytes == std::string_view::npos) return text.size() > kMaxNameBytes ? Step::kWrong : Step::kMore;
  *out = text.substr(0, bytes);
  out->erase(out->find_last_not_of(" \t\r\n") + 1);
  stream->skip(bytes);
  phase_ = next;
  return Step::kOn;
}

Step NamedCalls::read_mark(CallStream* stream) {
  if (stream->rest().starts_with('{')) {
    phase_ = Phase::kArguments;
    return Step::kOn;
  }
  Step step = stream->skip_word("[ARGS]");
  if (step == Step::kDone) phase_ = Phase::kArguments;
  if (step == Step::kWrong && id_.empty()) {
    step = stream->skip_word("[CALL_ID]");
    if (step == Step::kDone) phase_ = Phase::kId;
  }
  return step == Step::kDone ? Step::kOn : step;
}

Step NamedCalls::read_arguments(CallStream* stream) {
  std::string piece;
  stream->skip(scanner_.put(stream->rest(), &piece));
  stream->say(ToolEvent::Kind::kArguments, piece);
  if (scanner_.state() == JsonScanner::State::kGoing) return Step::kMore;
  if (scanner_.state() == JsonScanner::State::kWrong) return Step::kWrong;
  stream->end_call(true);
  return Step::kDone;
}

Step NamedCalls::step(CallStream* stream) {
  if (phase_ == Phase::kList) return list_.step(stream);
  if (phase_ == Phase::kStart || phase_ == Phase::kArguments) stream->skip_blanks();
  if (stream->rest().empty()) return Step::kMore;
  const char c = stream->rest().front();
  switch (phase_) {
    case Phase::kStart:
      phase_ = c == '[' || c == '{' ? Phase::kList : Phase::kName;
      return Step::kOn;
    case Phase::kName: {
      const Step step = read_up_to("[{", &name_, Phase::kMark, stream);
      return step == Step::kOn && !stream->knows(name_) ? Step::kWrong : step;
    }
    case Phase::kMark:
      return read_mark(stream);
    case Phase::kId:
      return read_up_to("[", &id_, Phase::kMark, stream);
    case Phase::kArguments:
      if (c != '{') return Step::kWrong;
      stream->begin_call(name_, id_);
      phase_ = Phase::kArgumentsText;
      return Step::kOn;
    default:
      return read_arguments(stream);
  }
}

}  // namespace pinion
