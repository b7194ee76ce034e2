// Reads calls written as XML tags, whose values become JSON by the types of the schema. See call_readers.h.
#include "tokenizer/answers/call_readers.h"

#include <algorithm>

namespace pinion {
namespace {

constexpr std::string_view kCdata = "<![CDATA[";
constexpr size_t kMaxWhiteSpace = 256;  // bytes between two tags

// kYes: `text` begins with the end of a value and a tag that may follow it. Else this end is part of the value.
Match ends_value(const XmlTags& tags, std::string_view value_end, std::string_view text) {
  const Match mark = match(text, value_end);
  if (mark != Match::kYes) return mark;
  text.remove_prefix(value_end.size());
  const size_t spaces = std::min(text.find_first_not_of(kAsciiWhiteSpace), text.size());
  if (spaces > kMaxWhiteSpace) return Match::kNo;
  text.remove_prefix(spaces);
  return match_any(text, {tags.key, tags.end});
}

struct ValueEnd {
  size_t certain;  // bytes of the value so far, without a newline before the mark
  Match is_end;    // kYes: the mark follows, kPartial: it may
};

ValueEnd find_end(const XmlTags& tags, std::string_view value_end, std::string_view text, size_t from) {
  for (size_t at = text.find(value_end[0], from); at != std::string_view::npos; at = text.find(value_end[0], at + 1)) {
    const Match found = ends_value(tags, value_end, text.substr(at));
    if (found != Match::kNo) return {at - (at > 0 && text[at - 1] == '\n' && value_end[0] == '<'), found};
  }
  return {text.size() - text.ends_with('\n'), Match::kNo};
}

// Skips text up to the end of a tag. kDone: `*attributes` stood before it.
Step skip_tag_end(std::string_view end, std::string* attributes, CallBuffer* buffer) {
  const std::string_view text = buffer->rest().substr(0, kMaxNameBytes);
  const size_t at = text.find(end);
  if (at == std::string_view::npos) return text.size() < kMaxNameBytes ? Step::kNeedMore : Step::kReject;
  *attributes = text.substr(0, at);
  buffer->skip(at + end.size());
  return Step::kDone;
}

class XmlCalls {
 public:
  // `mark`: the opening mark that was read.
  XmlCalls(const ToolFormatRow& row, std::string_view mark)
      : row_(&row), phase_(mark == row.tags.name ? &XmlCalls::read_name : &XmlCalls::start) {}

  Step operator()(CallBuffer* buffer) { return (this->*phase_)(buffer); }

 private:
  using Phase = Step (XmlCalls::*)(CallBuffer*);  // reads the next part of the call

  Step start(CallBuffer* buffer) {
    buffer->skip_white_space();
    if (buffer->rest().empty()) return Step::kNeedMore;
    const Step step = buffer->skip_word(row_->tags.name);
    return step == Step::kDone ? go_on(&phase_, &XmlCalls::read_name) : step;
  }

  Step read_name(CallBuffer* buffer) { return read_word(&name_, &XmlCalls::end_name, buffer); }
  Step read_key(CallBuffer* buffer) { return read_word(&key_, &XmlCalls::end_key, buffer); }
  Step close(CallBuffer* buffer) { return skip_close(*row_, buffer); }

  Step read_word(std::string* out, Phase next, CallBuffer* buffer) {
    size_t bytes = 0;
    if (Step step = buffer->find_first_of("\"<>\n", kMaxNameBytes, &bytes); step != Step::kDone) return step;
    *out = buffer->rest().substr(0, bytes);
    if (out->empty() || (next == &XmlCalls::end_name && !buffer->has_tool(*out))) return Step::kReject;
    buffer->skip(bytes);
    return go_on(&phase_, next);
  }

  Step end_name(CallBuffer* buffer) {
    std::string attributes;
    if (Step step = skip_tag_end(row_->tags.name_end, &attributes, buffer); step != Step::kDone) return step;
    buffer->begin_call(name_, {});
    buffer->emit(EventKind::kArguments, "{");
    return go_on(&phase_, &XmlCalls::read_tag);
  }

  Step read_tag(CallBuffer* buffer) {
    buffer->skip_white_space();
    const Step parameter = buffer->skip_word(row_->tags.key);
    if (parameter == Step::kDone) return go_on(&phase_, &XmlCalls::read_key);
    const Step end = buffer->skip_word(row_->tags.end);
    if (end != Step::kDone) return parameter == Step::kNeedMore ? parameter : end;
    buffer->emit(EventKind::kArguments, "}");
    buffer->end_call(true);
    phase_ = &XmlCalls::close;
    return std::ranges::find(row_->close, row_->tags.end) == row_->close.end() ? Step::kContinue : Step::kDone;
  }

  // Attributes such as string="true" or type="number" count more than the types of the schema.
  Step end_key(CallBuffer* buffer) {
    std::string attributes;
    if (Step step = skip_tag_end(row_->tags.key_end, &attributes, buffer); step != Step::kDone) return step;
    buffer->emit(EventKind::kArguments, (has_parameters_ ? ", \"" : "\"") + json_escaped(key_) + "\": ");
    types_ = buffer->types(name_, key_);
    if (attributes.find("=\"true\"") != std::string::npos || attributes.find("=\"string\"") != std::string::npos) {
      types_ = {"string"};
    } else if (attributes.find("=\"") != std::string::npos) {
      types_ = {"number", "boolean", "null", "object", "array"};
    }
    has_parameters_ = true;
    return go_on(&phase_, &XmlCalls::start_value);
  }

  Step start_value(CallBuffer* buffer) {
    if (buffer->rest().empty()) return Step::kNeedMore;
    const Step cdata = buffer->skip_word(kCdata);
    if (cdata == Step::kNeedMore) return cdata;
    value_end_ = std::string(cdata == Step::kDone ? "]]>" : "").append(row_->tags.value_end);
    if (cdata == Step::kReject && buffer->rest().front() == '\n') buffer->skip(1);
    searched_ = 0;
    const bool may_be_json = std::ranges::any_of(types_, [](const std::string& type) { return type != "string"; });
    phase_ = may_be_json ? &XmlCalls::read_json : &XmlCalls::read_string;
    if (!may_be_json) buffer->emit(EventKind::kArguments, "\"");
    return Step::kContinue;
  }

  Step read_string(CallBuffer* buffer) {
    const ValueEnd found = find_end(row_->tags, value_end_, buffer->rest(), 0);
    const std::string json = json_escaped(buffer->rest().substr(0, found.certain));
    buffer->skip(found.certain);
    const bool has_ended = found.is_end == Match::kYes;
    buffer->emit(EventKind::kArguments, has_ended ? json + "\"" : json);
    if (!has_ended) return Step::kNeedMore;
    if (buffer->rest().starts_with('\n')) buffer->skip(1);
    buffer->skip(value_end_.size());
    return go_on(&phase_, &XmlCalls::read_tag);
  }

  // The value stays unread until its end is known and it can be checked. One of more than kMaxHeldBytes is a string.
  Step read_json(CallBuffer* buffer) {
    const ValueEnd found = find_end(row_->tags, value_end_, buffer->rest(), searched_);
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
        buffer->skip(found.certain + buffer->rest().substr(found.certain).starts_with('\n') + value_end_.size());
        return go_on(&phase_, &XmlCalls::read_tag);
      }
    }
    buffer->emit(EventKind::kArguments, "\"");
    return go_on(&phase_, &XmlCalls::read_string);
  }

  const ToolFormatRow* row_;
  Phase phase_;
  std::string name_, key_, value_end_;
  bool has_parameters_ = false;
  std::vector<std::string> types_;  // of the current parameter
  size_t searched_ = 0;             // leading bytes of a JSON value that do not contain its end
};

}  // namespace

std::string plain_value(std::string_view text, const std::vector<std::string>& types) {
  std::string json(trimmed(text));
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

CallReader xml_calls(const ToolFormatRow& row, std::string_view mark) { return XmlCalls(row, mark); }

}  // namespace pinion
