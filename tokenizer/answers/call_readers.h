// The readers behind ToolCallParser, and the buffer that they read from. Only for files of this folder.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tokenizer/answers/json_scanner.h"
#include "tokenizer/answers/tool_calls.h"

namespace pinion {

using EventKind = ToolEvent::Kind;

enum class Step {
  kContinue,  // some text was read, or the phase has changed
  kNeedMore,  // undecided until more text comes
  kDone,      // the end of the call was read
  kReject,    // the next byte cannot belong to a call
};

// Sets the phase of a reader.
template <typename Phase>
Step go_on(Phase* phase, Phase next) {
  *phase = next;
  return Step::kContinue;
}

enum class Match { kNo, kPartial, kYes };
Match match(std::string_view text, std::string_view word);  // kPartial: all of `text` begins `word`
Match match_any(std::string_view text, std::initializer_list<std::string_view> words);

constexpr size_t kMaxNameBytes = 256;  // longer names are rejected
constexpr std::string_view kAsciiWhiteSpace = " \t\r\n";
std::string_view trimmed(std::string_view text);  // without white space around it

// The tools of a request.
struct KnownTools {
  explicit KnownTools(nlohmann::ordered_json tools);
  nlohmann::ordered_json list;
  std::map<std::string, const nlohmann::ordered_json*, std::less<>> parameters;  // schemas by tool name
};

// The text that the readers have not read yet, and the events that they have made (call_buffer.cpp). The events of a
// call are held back as well, until the call is complete or has kMaxHeldCallBytes.
class CallBuffer {
 public:
  explicit CallBuffer(nlohmann::ordered_json tools) : tools_(std::make_shared<KnownTools>(std::move(tools))) {}

  void put(std::string_view text);
  std::string_view rest() const { return std::string_view(bytes_).substr(at_, end() - at_); }  // unread text
  void skip(size_t bytes) { at_ += bytes; }
  void skip_white_space() { skip(std::min(rest().find_first_not_of(kAsciiWhiteSpace), rest().size())); }
  Step skip_word(std::string_view word);  // kDone: rest() began with the word, which is skipped
  // kDone: `*bytes` of rest(), at most `max_bytes`, stand before the first of `ends`.
  Step find_first_of(std::string_view ends, size_t max_bytes, size_t* bytes) const;

  // Holds back the text from here on: it becomes content again unless a call is read.
  void hold() { held_from_ = at_; }
  void drop_held() { held_from_ = std::string::npos; }
  std::string take_held();  // up to the unread text; drops a call of which all events are held
  bool is_held() const { return held_from_ != std::string::npos; }
  size_t held_read_bytes() const { return at_ - held_from_; }  // only if is_held()
  std::string_view held_text() const { return std::string_view(bytes_).substr(held_from_, end() - held_from_); }
  void finish() { is_finished_ = true; }  // no more text comes
  bool is_finished() const { return is_finished_; }
  std::string unread() const { return bytes_.substr(std::min(held_from_, at_)); }  // with the held text
  CallBuffer with_held_text(std::string text) const;                               // unread, without events
  void take_call(CallBuffer& other, size_t bytes);       // events of `other` replace `bytes` of held text
  bool is_cut() const { return end() < bytes_.size(); }  // kMaxHeldBytes are held, and rest() ends there

  bool has_tool(std::string_view name) const;
  // JSON types that the schema of a tool allows for a parameter; empty: any.
  std::vector<std::string> types(const std::string& tool, const std::string& parameter) const;

  void emit(EventKind kind, std::string_view text);
  void begin_call(const std::string& name, const std::string& id);
  void end_call(bool is_complete);  // also holds the text from here on
  bool in_call() const { return in_call_; }
  bool holds_call() const { return in_call_ && is_held(); }
  int begun_calls() const { return begun_calls_; }
  std::vector<ToolEvent> take_events();
  void drop_events();  // except those of the open call, which becomes the first one

 private:
  explicit CallBuffer(std::shared_ptr<const KnownTools> tools) : tools_(std::move(tools)) {}
  size_t end() const;

  std::shared_ptr<const KnownTools> tools_;
  std::string bytes_;
  size_t at_ = 0;
  size_t held_from_ = std::string::npos;
  bool is_finished_ = false;
  bool in_call_ = false;
  int begun_calls_ = 0;
  std::vector<ToolEvent> events_;
  size_t held_events_from_ = 0;  // of a call; only if holds_call()
};

// Skips white space and one of the marks that end a call.
Step skip_close(const ToolFormatRow& row, CallBuffer* buffer);

// Emits arguments up to the end of their JSON value. kDone: the value is complete, and the call has been ended.
Step read_json_arguments(JsonScanner* scanner, CallBuffer* buffer);

// A value that a model wrote without quotes, as JSON; empty unless it is of one of the types. Python's None, True and
// False are accepted, since chat templates print values in this spelling (xml_calls.cpp).
std::string plain_value(std::string_view text, const std::vector<std::string>& types);

// Reads one call from the buffer, or a part of it that is certain. Empty: outside of calls. Copies have the same state.
using CallReader = std::function<Step(CallBuffer*)>;

// One reader for each ToolBody, behind the opening mark `mark`.
CallReader json_calls(const ToolFormatRow& row);     // one object, or a list of objects
CallReader pattern_calls(const ToolFormatRow& row);  // json_calls.cpp
CallReader xml_calls(const ToolFormatRow& row, std::string_view mark);
CallReader brace_calls(const ToolFormatRow& row);  // also ToolBody::kPython
// The whole answer, as messages of a header, "<|message|>", a text and an end mark. Never returns kDone. After kReject
// the caller makes the held text content and goes on with a reader that is `in_content`.
CallReader harmony_messages(bool in_content);

}  // namespace pinion
