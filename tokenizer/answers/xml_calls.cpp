#include "tokenizer/answers/xml_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tokenizer/answers/json_calls.h"

namespace pinion {
namespace {

using Kind = ToolEvent::Kind;

constexpr std::string_view kFunction = "<function=", kParameter = "<parameter=", kEndOfValue = "</parameter>",
                           kEndOfFunction = "</function>", kBlanks = " \t\r\n";
constexpr size_t kMaxBlanks = 256;  // between two tags

// A value may contain the mark that ends values: it ends where a tag follows that mark.
Match ends_value(std::string_view text) {
  const Match mark = match(text, kEndOfValue);
  if (mark != Match::kYes) return mark;
  text.remove_prefix(kEndOfValue.size());
  const size_t blanks = std::min(text.find_first_not_of(kBlanks), text.size());
  if (blanks > kMaxBlanks) return Match::kNo;
  text.remove_prefix(blanks);
  Match result = Match::kNo;
  for (const std::string_view tag : {kParameter, kEndOfFunction}) {
    const Match found = match(text, tag);
    if (found == Match::kYes) return found;
    if (found == Match::kBegun) result = found;
  }
  return result;
}

struct ValueEnd {
  size_t certain;  // bytes of the value, so far; the newline before the mark is none
  Match is_end;    // kYes: the mark stands behind them, kBegun: it may
};

ValueEnd find_end(std::string_view text, size_t from) {
  for (size_t at = text.find('<', from); at != std::string_view::npos; at = text.find('<', at + 1)) {
    const Match found = ends_value(text.substr(at));
    if (found != Match::kNo) return {at - (at > 0 && text[at - 1] == '\n'), found};
  }
  return {text.size() - text.ends_with('\n'), Match::kNo};
}

std::string_view type_of(std::string_view json) {
  switch (json.front()) {
    case '{':
      return "object";
    case '[':
      return "array";
    case '"':
      return "string";
    case 't':
    case 'f':
      return "boolean";
    case 'n':
      return "null";
    default:
      return "number";
  }
}

}  // namespace

std::string plain_value(std::string_view text, const std::vector<std::string>& types) {
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  std::string json(text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin));
  if (json == "None") json = "null";
  if (json == "True") json = "true";
  if (json == "False") json = "false";
  if (json.find('\0') != std::string::npos || !nlohmann::json::accept(json))
    return {};  // that parser takes a 0 for the end
  const std::string_view type = type_of(json);
  const bool fits = std::ranges::any_of(
      types, [&](const std::string& allowed) { return allowed == type || (allowed == "integer" && type == "number"); });
  return fits ? json : std::string();
}

Step XmlCalls::read_name(CallStream* stream) {
  const std::string_view text = stream->rest().substr(0, kMaxNameBytes + 1);
  const size_t bytes = text.find_first_of("<>\n");
  if (bytes == std::string_view::npos) return text.size() > kMaxNameBytes ? Step::kWrong : Step::kMore;
  name_ = text.substr(0, bytes);
  if (text[bytes] != '>' || !stream->knows(name_)) return Step::kWrong;
  stream->skip(bytes + 1);
  stream->begin_call(name_, {});
  stream->say(Kind::kArguments, "{");
  phase_ = Phase::kParameter;
  return Step::kOn;
}

Step XmlCalls::read_tag(CallStream* stream) {
  stream->skip_blanks();
  const Step parameter = stream->skip_word(kParameter);
  if (parameter == Step::kDone) {
    phase_ = Phase::kKey;
    return Step::kOn;
  }
  const Step end = stream->skip_word(kEndOfFunction);
  if (end != Step::kDone) return parameter == Step::kMore ? parameter : end;
  stream->say(Kind::kArguments, "}");
  stream->end_call(true);
  phase_ = Phase::kClose;
  return Step::kOn;
}

Step XmlCalls::read_key(CallStream* stream) {
  const std::string_view text = stream->rest().substr(0, kMaxNameBytes + 1);
  const size_t bytes = text.find_first_of("<>\n");
  if (bytes == std::string_view::npos) return text.size() > kMaxNameBytes ? Step::kWrong : Step::kMore;
  if (text[bytes] != '>' || bytes == 0) return Step::kWrong;
  const std::string key(text.substr(0, bytes));
  std::string json = has_parameters_ ? ", \"" : "\"";
  append_json_escaped(key, &json);
  stream->say(Kind::kArguments, json + "\": ");
  stream->skip(bytes + 1);
  types_ = stream->types(name_, key);
  has_parameters_ = true;
  phase_ = Phase::kNewline;
  return Step::kOn;
}

Step XmlCalls::start_value(CallStream* stream) {
  if (stream->rest().empty()) return Step::kMore;
  if (stream->rest().front() == '\n') stream->skip(1);
  searched_ = 0;
  const bool may_be_json = std::ranges::any_of(types_, [](const std::string& type) { return type != "string"; });
  phase_ = may_be_json ? Phase::kJson : Phase::kString;
  if (!may_be_json) stream->say(Kind::kArguments, "\"");
  return Step::kOn;
}

Step XmlCalls::read_string(CallStream* stream) {
  const ValueEnd found = find_end(stream->rest(), 0);
  std::string json;
  append_json_escaped(stream->rest().substr(0, found.certain), &json);
  stream->skip(found.certain);
  const bool has_ended = found.is_end == Match::kYes;
  stream->say(Kind::kArguments, has_ended ? json + "\"" : json);
  if (!has_ended) return Step::kMore;
  if (stream->rest().starts_with('\n')) stream->skip(1);
  stream->skip(kEndOfValue.size());
  phase_ = Phase::kParameter;
  return Step::kOn;
}

// Stays unread up to its end, since only then it is known whether it is JSON. What is too long becomes a string.
Step XmlCalls::read_json(CallStream* stream) {
  const ValueEnd found = find_end(stream->rest(), searched_);
  searched_ = found.certain;
  const bool is_string = std::ranges::find(types_, "string") != types_.end();
  if (found.certain <= kMaxHeldBytes) {
    if (found.is_end != Match::kYes) return Step::kMore;
    const std::string_view text = stream->rest().substr(0, found.certain);
    std::string json = plain_value(text, types_);
    // A string stays what it is, if it may be one; of what else it may be, only null is told apart.
    if (is_string && json != "null") json.clear();
    if (!json.empty()) {
      stream->say(Kind::kArguments, json);
      stream->skip(found.certain + stream->rest().substr(found.certain).starts_with('\n') + kEndOfValue.size());
      phase_ = Phase::kParameter;
      return Step::kOn;
    }
  }
  stream->say(Kind::kArguments, "\"");
  phase_ = Phase::kString;
  return Step::kOn;
}

Step XmlCalls::step(CallStream* stream) {
  switch (phase_) {
    case Phase::kFunction: {
      stream->skip_blanks();
      const Step step = stream->skip_word(kFunction);
      if (step == Step::kDone) phase_ = Phase::kName;
      return step == Step::kDone ? Step::kOn : step;
    }
    case Phase::kName:
      return read_name(stream);
    case Phase::kParameter:
      return read_tag(stream);
    case Phase::kKey:
      return read_key(stream);
    case Phase::kNewline:
      return start_value(stream);
    case Phase::kString:
      return read_string(stream);
    case Phase::kJson:
      return read_json(stream);
    default:
      return skip_close(row_, stream);
  }
}

}  // namespace pinion
