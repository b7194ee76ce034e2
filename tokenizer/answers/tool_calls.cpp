#include "tokenizer/answers/tool_calls.h"

#include <optional>
#include <utility>
#include <variant>

#include "tokenizer/answers/brace_calls.h"
#include "tokenizer/answers/call_stream.h"
#include "tokenizer/answers/harmony.h"
#include "tokenizer/answers/json_calls.h"
#include "tokenizer/answers/thinking.h"
#include "tokenizer/answers/xml_calls.h"

namespace pinion {

struct ToolCallParser::State {
  explicit State(ToolCallOptions& options)
      : row(tool_format_row(options.format)), stream(std::move(options.tools)), splitter(options.inside_thought) {
    if (row.body == ToolBody::kHarmony) messages.emplace();
    for (const std::string_view mark : row.open) {
      if (!mark.empty() && first_bytes.find(mark[0]) == std::string::npos) first_bytes += mark[0];
    }
  }

  // Whether there is more to do before more text comes.
  bool step();
  bool step_outside();
  bool step_bare();
  bool step_call();
  bool step_messages();
  void begin(std::string_view mark);
  void give_up();
  void say(const std::vector<ThinkingPart>& parts);
  void finish();

  const ToolFormatRow& row;
  CallStream stream;
  ThinkingSplitter splitter;
  std::optional<HarmonyMessages> messages;
  std::variant<std::monostate, JsonCalls, NamedCalls, XmlCalls, BraceCalls> call;  // none: outside of calls
  std::string first_bytes;                                                         // of the marks that begin calls
  bool has_said = false;  // there was content, since the last call
};

void ToolCallParser::State::say(const std::vector<ThinkingPart>& parts) {
  for (const ThinkingPart& part : parts) {
    stream.say(part.is_thought ? ToolEvent::Kind::kThought : ToolEvent::Kind::kContent, part.text);
    has_said |= !part.is_thought && part.text.find_first_not_of(" \t\r\n") != std::string::npos;
  }
}

void ToolCallParser::State::begin(std::string_view mark) {
  say(splitter.put_plain({}));
  stream.hold();
  stream.skip(mark.size());
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

// What is held was no call, or what was one ends here.
void ToolCallParser::State::give_up() {
  if (stream.in_call()) stream.end_call(false);
  const std::string text = stream.take_held();
  if (messages) {
    stream.say(ToolEvent::Kind::kContent, text);
    messages->resume_as_content();
  } else {
    say(splitter.put_plain(text));
    call = std::monostate();
  }
}

// Where a call needs no mark it is the beginning of an answer or stands behind another call.
bool ToolCallParser::State::step_bare() {
  const char c = stream.rest().front();
  const std::string_view begins = stream.begun_calls() > 0 ? " \t\r\n{;" : " \t\r\n{";
  if (has_said || begins.find(c) == std::string_view::npos) return false;
  say(splitter.put_plain({}));  // none of these goes on with a mark
  if (!has_said) begin({});
  return !has_said;
}

// The splitter gets text in parts that end where what is inside a thought may change: marks of calls are none there.
bool ToolCallParser::State::step_outside() {
  const std::string_view text = stream.rest();
  if (text.empty()) return false;
  size_t bytes = text.size();
  if (splitter.inside()) {
    bytes = std::min(bytes, text.find_first_of(kLastOfThinkingMarks)) + 1;
  } else if (row.is_bare && step_bare()) {
    return true;
  } else if (!first_bytes.empty()) {
    bytes = std::min(bytes, text.find_first_of(first_bytes));
    bool is_begun = false;
    for (const std::string_view mark : row.open) {
      const Match found = bytes > 0 || mark.empty() ? Match::kNo : match(text, mark);
      if (found == Match::kYes) {
        begin(mark);
        return true;
      }
      is_begun |= found == Match::kBegun;
    }
    if (is_begun) return false;
    if (bytes == 0) bytes = 1;
  }
  say(splitter.put(text.substr(0, bytes)));
  stream.skip(std::min(bytes, text.size()));
  return true;
}

bool ToolCallParser::State::step_call() {
  const int begun_calls = stream.begun_calls();
  const Step step = std::visit(
      [&](auto& calls) {
        if constexpr (std::is_same_v<std::decay_t<decltype(calls)>, std::monostate>) {
          return Step::kWrong;
        } else {
          return calls.step(&stream);
        }
      },
      call);
  if (stream.begun_calls() > begun_calls) {
    splitter.leave_out_newlines();
    has_said = false;
  }
  if (step == Step::kMore && !stream.is_cut()) return false;
  if (step == Step::kMore) stream.skip(stream.rest().size());
  if (step == Step::kMore || step == Step::kWrong) give_up();
  if (step == Step::kDone) {
    stream.drop_held();
    call = std::monostate();
  }
  return true;
}

bool ToolCallParser::State::step_messages() {
  if (stream.rest().empty()) return false;
  const Step step = messages->step(&stream);
  if (step == Step::kMore && !stream.is_cut()) return false;
  if (step == Step::kMore) stream.skip(stream.rest().size());
  if (step != Step::kOn) give_up();
  return true;
}

bool ToolCallParser::State::step() {
  if (messages) return step_messages();
  return call.index() == 0 ? step_outside() : step_call();
}

void ToolCallParser::State::finish() {
  const bool is_outside = !messages && call.index() == 0;
  if (stream.in_call()) stream.say(ToolEvent::Kind::kArguments, stream.rest());
  if (is_outside) say(splitter.put(stream.rest()));
  if (messages) messages->finish(&stream);
  stream.skip(stream.rest().size());
  if (!is_outside) give_up();
  if (!messages) say(splitter.finish());
}

ToolCallParser::ToolCallParser(ToolCallOptions options) : state_(std::make_unique<State>(options)) {
  state_->stream.put(options.written);
  while (state_->step()) {
  }
}

ToolCallParser::~ToolCallParser() = default;

std::vector<ToolEvent> ToolCallParser::put(std::string_view text) {
  state_->stream.put(text);
  while (state_->step()) {
  }
  return state_->stream.take_events();
}

std::vector<ToolEvent> ToolCallParser::finish() {
  state_->finish();
  return state_->stream.take_events();
}

}  // namespace pinion
