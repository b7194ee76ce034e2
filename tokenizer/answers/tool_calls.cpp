#include "tokenizer/answers/tool_calls.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "tokenizer/answers/answer_text.h"
#include "tokenizer/answers/call_readers.h"

namespace pinion {
namespace {

using ToolJson = nlohmann::ordered_json;

const ToolJson kNoMember = ToolJson::object();

const ToolJson& member(const ToolJson& object, const char* key) {
  const auto at = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && at != object.end() ? *at : kNoMember;
}

void add_types(const ToolJson& schema, int depth, std::vector<std::string>* types) {
  const ToolJson& type = member(schema, "type");
  if (type.is_string()) types->push_back(type.get<std::string>());
  if (type.is_array()) {
    for (const ToolJson& name : type) {
      if (name.is_string()) types->push_back(name.get<std::string>());
    }
  }
  for (const char* choice : {"anyOf", "oneOf"}) {
    if (depth == 0 || !member(schema, choice).is_array()) continue;
    for (const ToolJson& branch : member(schema, choice)) add_types(branch, depth - 1, types);
  }
}

}  // namespace

Match match(std::string_view text, std::string_view word) {
  if (text.starts_with(word)) return Match::kYes;
  return word.starts_with(text) ? Match::kPartial : Match::kNo;
}

Match match_any(std::string_view text, std::initializer_list<std::string_view> words) {
  Match result = Match::kNo;
  for (const std::string_view word : words) {
    const Match found = match(text, word);
    if (found == Match::kYes) return found;
    if (found == Match::kPartial) result = found;
  }
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

CallBuffer::CallBuffer(ToolJson tools) : tools_(std::move(tools)) {
  if (!tools_.is_array()) return;
  for (const ToolJson& tool : tools_) {
    const ToolJson& function = member(tool, "function");
    const ToolJson& name = member(function, "name");
    if (name.is_string()) {
      parameters_[name.get<std::string>()] = &member(member(function, "parameters"), "properties");
    }
  }
}

void CallBuffer::put(std::string_view text) {
  const size_t read = std::min(at_, held_from_);
  bytes_.erase(0, read);
  at_ -= read;
  if (held_from_ != std::string::npos) held_from_ -= read;
  bytes_ += text;
}

// End of the text that readers see. The limit counts from hold(), so it does not depend on the chunks. It may cut a
// character in two; both halves then become content, one after the other.
size_t CallBuffer::end() const {
  const bool is_long = held_from_ != std::string::npos && bytes_.size() - held_from_ > kMaxHeldBytes;
  return is_long ? held_from_ + kMaxHeldBytes : bytes_.size();
}

std::string_view CallBuffer::rest() const { return std::string_view(bytes_).substr(at_, end() - at_); }

void CallBuffer::skip_white_space() {
  const std::string_view text = rest();
  skip(std::min(text.find_first_not_of(kAsciiWhiteSpace), text.size()));
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
  const size_t from = std::min(std::exchange(held_from_, std::string::npos), at_);
  return bytes_.substr(from, at_ - from);
}

bool CallBuffer::has_tool(std::string_view name) const {
  return !name.empty() && (!tools_.is_array() || parameters_.contains(name));
}

std::vector<std::string> CallBuffer::types(const std::string& tool, const std::string& parameter) const {
  std::vector<std::string> types;
  const auto properties = parameters_.find(tool);
  if (properties != parameters_.end()) add_types(member(*properties->second, parameter.c_str()), 4, &types);
  return types;
}

void CallBuffer::emit(EventKind kind, std::string_view text) {
  if (text.empty()) return;
  const int index = kind == EventKind::kArguments ? begun_calls_ - 1 : -1;
  if (events_.empty() || events_.back().kind != kind) events_.push_back({.kind = kind, .index = index});
  events_.back().text += text;
}

void CallBuffer::begin_call(const std::string& name, const std::string& id) {
  events_.push_back({.kind = EventKind::kCallBegun, .index = begun_calls_++, .text = name, .id = id});
  in_call_ = true;
  drop_held();
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
}

std::vector<ToolEvent> CallBuffer::take_events() { return std::exchange(events_, {}); }

struct ToolCallParser::State {
  explicit State(ToolCallOptions& options)
      : row(tool_format_row(options.format)),
        buffer(std::move(options.tools)),
        splitter(options.inside_thought && options.begun.empty()) {
    if (row.body == ToolBody::kHarmony) harmony.emplace();
    for (const std::string_view mark : row.open) {
      if (!mark.empty() && first_bytes.find(mark[0]) == std::string::npos) first_bytes += mark[0];
    }
  }

  // Each step reads some text; false: the next one needs more.
  bool step();
  bool step_outside();
  bool step_bare();
  bool step_call();
  bool step_harmony();
  void begin(std::string_view mark);
  void give_up();
  void emit(const std::vector<ThinkingText>& texts);
  void finish();
  void read(std::string_view text);
  std::vector<ToolEvent> take_events();

  const ToolFormatRow& row;
  CallBuffer buffer;
  ThinkingSplitter splitter;
  std::optional<HarmonyMessages> harmony;
  std::variant<std::monostate, JsonCalls, NamedCalls, XmlCalls, BraceCalls> call;  // monostate: outside of calls
  std::string first_bytes;                                                         // of the opening marks
  bool has_content = false;                                                        // since the last call
  std::string begun_held;  // held text of ToolCallOptions::begun, which is dropped if it becomes content
};

void ToolCallParser::State::emit(const std::vector<ThinkingText>& texts) {
  for (const auto& [text, is_thought] : texts) {
    buffer.emit(is_thought ? EventKind::kThought : EventKind::kContent, text);
    has_content |= !is_thought && text.find_first_not_of(kAsciiWhiteSpace) != std::string::npos;
  }
}

void ToolCallParser::State::begin(std::string_view mark) {
  emit(splitter.put_literal({}));
  buffer.hold();
  buffer.skip(mark.size());
  switch (row.body) {
    case ToolBody::kNamed:
      call.emplace<NamedCalls>(row);
      break;
    case ToolBody::kXml:
      call.emplace<XmlCalls>(row, mark);
      break;
    case ToolBody::kBraces:
      call.emplace<BraceCalls>(row);
      break;
    default:
      call.emplace<JsonCalls>(row);
      break;
  }
}

// Ends a call that has begun as incomplete. Held text becomes content.
void ToolCallParser::State::give_up() {
  if (buffer.in_call()) buffer.end_call(false);
  const std::string text = buffer.take_held();
  if (harmony) {
    buffer.emit(EventKind::kContent, text);
    harmony->resume_as_content();
  } else {
    emit(splitter.put_literal(text));
    call = std::monostate();
  }
}

// A call without a mark begins an answer or follows another call.
bool ToolCallParser::State::step_bare() {
  const char c = buffer.rest().front();
  const std::string_view begins = buffer.begun_calls() > 0 ? " \t\r\n{;" : " \t\r\n{";
  if (has_content || begins.find(c) == std::string_view::npos) return false;
  emit(splitter.put_literal({}));  // releases a partial thinking mark, which no character of `begins` continues
  if (!has_content) begin({});
  return !has_content;
}

// Inside a thought, marks of calls are plain text; they count again behind its closing mark. So the splitter gets text
// only up to a character that may end that mark.
bool ToolCallParser::State::step_outside() {
  const std::string_view text = buffer.rest();
  if (text.empty()) return false;
  size_t bytes = text.size();
  if (splitter.inside()) {
    bytes = std::min(bytes, text.find_first_of(kThinkingMarkEnds)) + 1;
  } else if (row.is_bare && step_bare()) {
    return true;
  } else if (!first_bytes.empty()) {
    bytes = std::min(bytes, text.find_first_of(first_bytes));
    bool is_partial = false;
    for (const std::string_view mark : row.open) {
      const Match found = bytes > 0 || mark.empty() ? Match::kNo : match(text, mark);
      if (found == Match::kYes) {
        begin(mark);
        return true;
      }
      is_partial |= found == Match::kPartial;
    }
    if (is_partial) return false;
    if (bytes == 0) bytes = 1;
  }
  emit(splitter.put(text.substr(0, bytes)));
  buffer.skip(std::min(bytes, text.size()));
  return true;
}

bool ToolCallParser::State::step_call() {
  const int begun_calls = buffer.begun_calls();
  const Step step = std::visit(
      [&](auto& calls) {
        if constexpr (std::is_same_v<std::decay_t<decltype(calls)>, std::monostate>) {
          return Step::kReject;
        } else {
          return calls.step(&buffer);
        }
      },
      call);
  if (buffer.begun_calls() > begun_calls) {
    splitter.trim_newlines();
    has_content = false;
  }
  if (step == Step::kNeedMore && !buffer.is_cut()) return false;
  if (step == Step::kNeedMore) buffer.skip(buffer.rest().size());
  if (step == Step::kNeedMore || step == Step::kReject) give_up();
  if (step == Step::kDone) {
    buffer.drop_held();
    call = std::monostate();
  }
  return true;
}

bool ToolCallParser::State::step_harmony() {
  if (buffer.rest().empty()) return false;
  const Step step = harmony->step(&buffer);
  if (step == Step::kNeedMore && !buffer.is_cut()) return false;
  if (step == Step::kNeedMore) buffer.skip(buffer.rest().size());
  if (step != Step::kContinue) give_up();
  return true;
}

bool ToolCallParser::State::step() {
  if (harmony) return step_harmony();
  return call.index() == 0 ? step_outside() : step_call();
}

void ToolCallParser::State::finish() {
  const bool is_outside = !harmony && call.index() == 0;
  if (buffer.in_call()) buffer.emit(EventKind::kArguments, buffer.rest());
  if (is_outside) emit(splitter.put(buffer.rest()));
  if (harmony) harmony->finish(&buffer);
  buffer.skip(buffer.rest().size());
  if (!is_outside) give_up();
  if (!harmony) emit(splitter.finish());
}

void ToolCallParser::State::read(std::string_view text) {
  buffer.put(text);
  while (step()) {
  }
}

std::vector<ToolEvent> ToolCallParser::State::take_events() {
  std::vector<ToolEvent> events = buffer.take_events();
  for (ToolEvent& event : events) {
    const bool is_text = event.index < 0;
    const size_t repeated = std::ranges::mismatch(begun_held, event.text).in1 - begun_held.begin();
    if (is_text) event.text.erase(0, repeated);
    begun_held.erase(0, is_text && event.text.empty() ? repeated : std::string::npos);
  }
  std::erase_if(events, [](const ToolEvent& event) { return event.index < 0 && event.text.empty(); });
  return events;
}

ToolCallParser::ToolCallParser(ToolCallOptions options) : state_(std::make_unique<State>(options)) {
  state_->read(options.begun);
  state_->buffer.drop_events();
  state_->begun_held = state_->splitter.held() + state_->buffer.unread();
  state_->read(options.forced_prefix);
}

ToolCallParser::~ToolCallParser() = default;

std::vector<ToolEvent> ToolCallParser::put(std::string_view text) {
  state_->read(text);
  return state_->take_events();
}

std::vector<ToolEvent> ToolCallParser::finish() {
  state_->finish();
  return state_->take_events();
}

}  // namespace pinion
