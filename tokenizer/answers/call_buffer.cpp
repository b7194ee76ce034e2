// The text and the events of ToolCallParser. See call_readers.h.
#include <algorithm>
#include <span>
#include <utility>

#include "kernels/base/text.h"
#include "tokenizer/answers/call_readers.h"

namespace pinion {
namespace {

using ToolJson = nlohmann::ordered_json;

const ToolJson kNoMember = ToolJson::object();

const ToolJson& member(const ToolJson& object, const char* key) {
  const auto at = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && at != object.end() ? *at : kNoMember;
}

// The types that a schema within `root` allows.
void add_types(const ToolJson& root, const ToolJson& schema, int depth, std::vector<std::string>* types) {
  if (depth == 0) return;
  const ToolJson& type = member(schema, "type");
  for (const ToolJson& name : type.is_array() ? type : ToolJson::array({type})) {
    if (name.is_string()) types->push_back(name.get<std::string>());
  }
  if (const ToolJson& reference = member(schema, "$ref"); reference.is_string()) {  // "#/$defs/NAME"
    const ToolJson* at = &root;
    const auto names = split(reference.get_ref<const std::string&>(), '/');
    for (const std::string_view name : std::span(names).subspan(1)) at = &member(*at, std::string(name).c_str());
    add_types(root, *at, depth - 1, types);
  }
  if (&type != &kNoMember) return;
  if (schema.is_object() && schema.contains("const")) types->push_back(schema["const"].type_name());
  for (const ToolJson& value : member(schema, "enum")) types->push_back(value.type_name());
  for (const auto& [keyword, implied] :
       {std::pair{"properties", "object"}, {"items", "array"}, {"minimum", "number"}}) {
    if (&member(schema, keyword) != &kNoMember) types->push_back(implied);
  }
  for (const char* choice : {"anyOf", "oneOf", "allOf"}) {
    if (!member(schema, choice).is_array()) continue;
    for (const ToolJson& branch : member(schema, choice)) add_types(root, branch, depth - 1, types);
  }
}

}  // namespace

KnownTools::KnownTools(ToolJson tools) : list(std::move(tools)) {
  if (!list.is_array()) return;
  for (const ToolJson& tool : list) {
    const ToolJson& function = member(tool, "function");
    const ToolJson& name = member(function, "name");
    if (name.is_string()) parameters[name.get<std::string>()] = &member(function, "parameters");
  }
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kAsciiWhiteSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kAsciiWhiteSpace) + 1);
}

Match match(std::string_view text, std::string_view word) {
  return text.starts_with(word) ? Match::kYes : word.starts_with(text) ? Match::kPartial : Match::kNo;
}

Match match_any(std::string_view text, std::initializer_list<std::string_view> words) {
  Match result = Match::kNo;
  for (const std::string_view word : words) result = std::max(result, match(text, word));
  return result;
}

Step skip_close(const ToolFormatRow& row, CallBuffer* buffer) {
  buffer->skip_white_space();
  Step step = Step::kReject;
  for (const std::string_view mark : row.close) {
    if (mark.empty()) continue;
    const Step found = buffer->skip_word(mark);
    if (found == Step::kDone) return found;
    if (found == Step::kNeedMore) step = found;
  }
  return step;
}

Step read_json_arguments(JsonScanner* scanner, CallBuffer* buffer) {
  std::string json;
  buffer->skip(scanner->put(buffer->rest(), &json));
  buffer->emit(EventKind::kArguments, json);
  if (scanner->state() == JsonScanner::State::kIncomplete) return Step::kNeedMore;
  if (scanner->state() == JsonScanner::State::kInvalid) return Step::kReject;
  buffer->end_call(true);
  return Step::kDone;
}

void CallBuffer::put(std::string_view text) {
  const size_t read = std::min(at_, held_from_);
  bytes_.erase(0, read);
  at_ -= read;
  if (is_held()) held_from_ -= read;
  bytes_ += text;
}

// End of the text that readers see. The limit counts from hold(), so it does not depend on the chunks. It may cut a
// character in two; both halves then become content, one after the other.
size_t CallBuffer::end() const {
  const bool is_long = is_held() && bytes_.size() - held_from_ > kMaxHeldBytes;
  return is_long ? held_from_ + kMaxHeldBytes : bytes_.size();
}

Step CallBuffer::skip_word(std::string_view word) {
  const Match found = match(rest(), word);
  if (found == Match::kNo) return Step::kReject;
  if (found == Match::kPartial) return Step::kNeedMore;
  skip(word.size());
  return Step::kDone;
}

Step CallBuffer::find_first_of(std::string_view ends, size_t max_bytes, size_t* bytes) const {
  const std::string_view text = rest().substr(0, max_bytes + 1);
  *bytes = text.find_first_of(ends);
  if (*bytes != std::string_view::npos) return Step::kDone;
  return text.size() > max_bytes ? Step::kReject : Step::kNeedMore;
}

std::string CallBuffer::take_held() {
  if (holds_call()) {
    events_.erase(events_.begin() + held_events_from_, events_.end());
    --begun_calls_;
    in_call_ = false;
  }
  const size_t from = std::min(std::exchange(held_from_, std::string::npos), at_);
  return bytes_.substr(from, at_ - from);
}

CallBuffer CallBuffer::with_held_text(std::string text) const {
  CallBuffer other(tools_);
  other.bytes_ = std::move(text);
  other.begun_calls_ = begun_calls_ - (holds_call() ? 1 : 0);
  other.hold();
  return other;
}

void CallBuffer::take_call(CallBuffer& other, size_t bytes) {
  at_ = held_from_ + bytes;
  take_held();
  begun_calls_ = other.begun_calls_;
  events_.insert(events_.end(), other.events_.begin(), other.events_.end());
}

bool CallBuffer::has_tool(std::string_view name) const {
  return !name.empty() && (!tools_->list.is_array() || tools_->parameters.contains(name));
}

std::vector<std::string> CallBuffer::types(const std::string& tool, const std::string& parameter) const {
  constexpr int kMaxDepth = 8;
  std::vector<std::string> types;
  const auto found = tools_->parameters.find(tool);
  if (found == tools_->parameters.end()) return types;
  add_types(*found->second, member(member(*found->second, "properties"), parameter.c_str()), kMaxDepth, &types);
  return types;
}

void CallBuffer::emit(EventKind kind, std::string_view text) {
  if (text.empty()) return;
  const int index = kind == EventKind::kArguments ? begun_calls_ - 1 : -1;
  if (events_.empty() || events_.back().kind != kind) events_.push_back({.kind = kind, .index = index});
  events_.back().text += text;
}

void CallBuffer::begin_call(const std::string& name, const std::string& id) {
  held_events_from_ = events_.size();
  events_.push_back({.kind = EventKind::kCallBegun, .index = begun_calls_++, .text = name, .id = id});
  in_call_ = true;
}

void CallBuffer::end_call(bool is_complete) {
  events_.push_back({.kind = EventKind::kCallEnded, .index = begun_calls_ - 1, .is_complete = is_complete});
  in_call_ = false;
  hold();
}

void CallBuffer::drop_events() {
  const auto open_call = std::ranges::find(events_.rbegin(), events_.rend(), EventKind::kCallBegun, &ToolEvent::kind);
  events_.erase(events_.begin(), in_call_ ? open_call.base() - 1 : events_.end());
  for (ToolEvent& event : events_) event.index = 0;
  begun_calls_ = in_call_ ? 1 : 0;
  held_events_from_ = 0;
}

std::vector<ToolEvent> CallBuffer::take_events() {
  if (!holds_call()) return std::exchange(events_, {});
  std::vector<ToolEvent> held(events_.begin() + held_events_from_, events_.end());
  events_.erase(events_.begin() + held_events_from_, events_.end());
  held_events_from_ = 0;
  return std::exchange(events_, std::move(held));
}

}  // namespace pinion
