#include "tokenizer/answers/call_stream.h"

#include <algorithm>
#include <utility>

namespace pinion {
namespace {

using Json = nlohmann::ordered_json;

const Json kNothing = Json::object();

const Json& member(const Json& object, const char* key) {
  const auto at = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && at != object.end() ? *at : kNothing;
}

void add_types(const Json& schema, int depth, std::vector<std::string>* types) {
  const Json& type = member(schema, "type");
  if (type.is_string()) types->push_back(type.get<std::string>());
  if (type.is_array()) {
    for (const Json& one : type) {
      if (one.is_string()) types->push_back(one.get<std::string>());
    }
  }
  for (const char* choice : {"anyOf", "oneOf"}) {
    if (depth == 0 || !member(schema, choice).is_array()) continue;
    for (const Json& one : member(schema, choice)) add_types(one, depth - 1, types);
  }
}

}  // namespace

Match match(std::string_view text, std::string_view word) {
  if (text.starts_with(word)) return Match::kYes;
  return word.starts_with(text) ? Match::kBegun : Match::kNo;
}

CallStream::CallStream(Json tools) : tools_(std::move(tools)) {
  if (!tools_.is_array()) return;
  for (const Json& tool : tools_) {
    const Json& function = member(tool, "function");
    const Json& name = member(function, "name");
    if (name.is_string()) {
      parameters_[name.get<std::string>()] = &member(member(function, "parameters"), "properties");
    }
  }
}

void CallStream::put(std::string_view text) {
  const size_t read = std::min(at_, held_from_);
  bytes_.erase(0, read);
  at_ -= read;
  if (held_from_ != std::string::npos) held_from_ -= read;
  bytes_ += text;
}

// Does not depend on how the text came. A character that it cuts is whole again in the content that both parts become.
size_t CallStream::end() const {
  const bool is_long = held_from_ != std::string::npos && bytes_.size() - held_from_ > kMaxHeldBytes;
  return is_long ? held_from_ + kMaxHeldBytes : bytes_.size();
}

std::string_view CallStream::rest() const { return std::string_view(bytes_).substr(at_, end() - at_); }

void CallStream::skip_blanks() {
  const std::string_view text = rest();
  skip(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
}

Step CallStream::skip_word(std::string_view word) {
  const Match found = match(rest(), word);
  if (found == Match::kNo) return Step::kWrong;
  if (found == Match::kBegun) return Step::kMore;
  skip(word.size());
  return Step::kDone;
}

std::string CallStream::take_held() {
  const size_t from = std::min(std::exchange(held_from_, std::string::npos), at_);
  return bytes_.substr(from, at_ - from);
}

bool CallStream::knows(std::string_view name) const {
  return !name.empty() && (!tools_.is_array() || parameters_.contains(name));
}

std::vector<std::string> CallStream::types(const std::string& name, const std::string& parameter) const {
  std::vector<std::string> types;
  const auto properties = parameters_.find(name);
  if (properties != parameters_.end()) add_types(member(*properties->second, parameter.c_str()), 4, &types);
  return types;
}

void CallStream::say(ToolEvent::Kind kind, std::string_view text) {
  if (text.empty()) return;
  const int index = kind == ToolEvent::Kind::kArguments ? begun_calls_ - 1 : -1;
  if (events_.empty() || events_.back().kind != kind) events_.push_back({.kind = kind, .index = index});
  events_.back().text += text;
}

void CallStream::begin_call(const std::string& name, const std::string& id) {
  events_.push_back({.kind = ToolEvent::Kind::kCallBegun, .index = begun_calls_++, .text = name, .id = id});
  in_call_ = true;
  drop_held();
}

void CallStream::end_call(bool is_complete) {
  events_.push_back({.kind = ToolEvent::Kind::kCallEnded, .index = begun_calls_ - 1, .is_complete = is_complete});
  in_call_ = false;
  hold();
}

std::vector<ToolEvent> CallStream::take_events() { return std::exchange(events_, {}); }

}  // namespace pinion
