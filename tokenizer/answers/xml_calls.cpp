// Reads calls written as XML tags, whose values become JSON by the types of the schema. See call_readers.h.
#include "tokenizer/answers/call_readers.h"

#include <algorithm>

namespace pinion {
namespace {

constexpr std::string_view kFunction = "<function=", kParameter = "<parameter=", kEndOfValue = "</parameter>",
                           kEndOfFunction = "</function>";
constexpr size_t kMaxWhiteSpace = 256;  // bytes between two tags

// kYes: `text` begins with </parameter> and a tag that may follow it. Else </parameter> is part of the value.
Match ends_value(std::string_view text) {
  const Match mark = match(text, kEndOfValue);
  if (mark != Match::kYes) return mark;
  text.remove_prefix(kEndOfValue.size());
  const size_t spaces = std::min(text.find_first_not_of(kAsciiWhiteSpace), text.size());
  if (spaces > kMaxWhiteSpace) return Match::kNo;
  text.remove_prefix(spaces);
  return match_any(text, {kParameter, kEndOfFunction});
}

struct ValueEnd {
  size_t certain;  // bytes of the value so far, without a newline before the mark
  Match is_end;    // kYes: the mark follows, kPartial: it may
};

ValueEnd find_end(std::string_view text, size_t from) {
  for (size_t at = text.find('<', from); at != std::string_view::npos; at = text.find('<', at + 1)) {
    const Match found = ends_value(text.substr(at));
    if (found != Match::kNo) return {at - (at > 0 && text[at - 1] == '\n'), found};
  }
  return {text.size() - text.ends_with('\n'), Match::kNo};
}

}  // namespace

std::string plain_value(std::string_view text, const std::vector<std::string>& types) {
  const size_t begin = std::min(text.find_first_not_of(kAsciiWhiteSpace), text.size());
  std::string json(text.substr(begin, text.find_last_not_of(kAsciiWhiteSpace) + 1 - begin));
  if (json == "None") json = "null";
  if (json == "True") json = "true";
  if (json == "False") json = "false";
  if (json.find('\0') != std::string::npos) return {};  // nlohmann's parser stops there
  const auto value = nlohmann::json::parse(json, nullptr, false);
  const std::string_view type = value.is_discarded() ? "none" : value.type_name();
  const bool fits = std::ranges::any_of(
      types, [&](const std::string& allowed) { return allowed == type || (allowed == "integer" && type == "number"); });
  return fits ? json : std::string();
}

Step XmlCalls::read_name(CallBuffer* buffer) {
  size_t bytes = 0;
  if (Step step = buffer->find_first_of("<>\n", kMaxNameBytes, &bytes); step != Step::kDone) return step;
  name_ = buffer->rest().substr(0, bytes);
  if (buffer->rest()[bytes] != '>' || !buffer->has_tool(name_)) return Step::kReject;
  buffer->skip(bytes + 1);
  buffer->begin_call(name_, {});
  buffer->emit(EventKind::kArguments, "{");
  phase_ = Phase::kParameter;
  return Step::kContinue;
}

Step XmlCalls::read_tag(CallBuffer* buffer) {
  buffer->skip_white_space();
  const Step parameter = buffer->skip_word(kParameter);
  if (parameter == Step::kDone) {
    phase_ = Phase::kKey;
    return Step::kContinue;
  }
  const Step end = buffer->skip_word(kEndOfFunction);
  if (end != Step::kDone) return parameter == Step::kNeedMore ? parameter : end;
  buffer->emit(EventKind::kArguments, "}");
  buffer->end_call(true);
  phase_ = Phase::kClose;
  return Step::kContinue;
}

Step XmlCalls::read_key(CallBuffer* buffer) {
  size_t bytes = 0;
  if (Step step = buffer->find_first_of("<>\n", kMaxNameBytes, &bytes); step != Step::kDone) return step;
  if (buffer->rest()[bytes] != '>' || bytes == 0) return Step::kReject;
  const std::string key(buffer->rest().substr(0, bytes));
  std::string json = has_parameters_ ? ", \"" : "\"";
  append_json_escaped(key, &json);
  buffer->emit(EventKind::kArguments, json + "\": ");
  buffer->skip(bytes + 1);
  types_ = buffer->types(name_, key);
  has_parameters_ = true;
  phase_ = Phase::kNewline;
  return Step::kContinue;
}

Step XmlCalls::start_value(CallBuffer* buffer) {
  if (buffer->rest().empty()) return Step::kNeedMore;
  if (buffer->rest().front() == '\n') buffer->skip(1);
  searched_ = 0;
  const bool may_be_json = std::ranges::any_of(types_, [](const std::string& type) { return type != "string"; });
  phase_ = may_be_json ? Phase::kJson : Phase::kString;
  if (!may_be_json) buffer->emit(EventKind::kArguments, "\"");
  return Step::kContinue;
}

Step XmlCalls::read_string(CallBuffer* buffer) {
  const ValueEnd found = find_end(buffer->rest(), 0);
  std::string json;
  append_json_escaped(buffer->rest().substr(0, found.certain), &json);
  buffer->skip(found.certain);
  const bool has_ended = found.is_end == Match::kYes;
  buffer->emit(EventKind::kArguments, has_ended ? json + "\"" : json);
  if (!has_ended) return Step::kNeedMore;
  if (buffer->rest().starts_with('\n')) buffer->skip(1);
  buffer->skip(kEndOfValue.size());
  phase_ = Phase::kParameter;
  return Step::kContinue;
}

// The value stays unread until its end is known, and only then can be checked to be JSON. A value of more than
// kMaxHeldBytes becomes a string.
Step XmlCalls::read_json(CallBuffer* buffer) {
  const ValueEnd found = find_end(buffer->rest(), searched_);
  searched_ = found.certain;
  const bool is_string = std::ranges::find(types_, "string") != types_.end();
  if (found.certain <= kMaxHeldBytes) {
    if (found.is_end != Match::kYes) return Step::kNeedMore;
    const std::string_view text = buffer->rest().substr(0, found.certain);
    std::string json = plain_value(text, types_);
    // If the schema allows a string, every value but null becomes a string.
    if (is_string && json != "null") json.clear();
    if (!json.empty()) {
      buffer->emit(EventKind::kArguments, json);
      buffer->skip(found.certain + buffer->rest().substr(found.certain).starts_with('\n') + kEndOfValue.size());
      phase_ = Phase::kParameter;
      return Step::kContinue;
    }
  }
  buffer->emit(EventKind::kArguments, "\"");
  phase_ = Phase::kString;
  return Step::kContinue;
}

Step XmlCalls::step(CallBuffer* buffer) {
  switch (phase_) {
    case Phase::kFunction: {
      buffer->skip_white_space();
      const Step step = buffer->skip_word(kFunction);
      if (step == Step::kDone) phase_ = Phase::kName;
      return step == Step::kDone ? Step::kContinue : step;
    }
    case Phase::kName:
      return read_name(buffer);
    case Phase::kParameter:
      return read_tag(buffer);
    case Phase::kKey:
      return read_key(buffer);
    case Phase::kNewline:
      return start_value(buffer);
    case Phase::kString:
      return read_string(buffer);
    case Phase::kJson:
      return read_json(buffer);
    default:
      return skip_close(row_, buffer);
  }
}

}  // namespace pinion
