// The readers behind ToolCallParser: one class for each ToolBody, and the buffer that they read from. Only for files of
// this folder.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

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
  std::string_view rest() const;  // unread text
  void skip(size_t bytes) { at_ += bytes; }
  void skip_white_space();
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

// ToolBody::kJson: one object, or a list of objects (json_calls.cpp).
class JsonCalls {
 public:
  explicit JsonCalls(const ToolFormatRow& row) : row_(&row) {}
  Step step(CallBuffer* buffer);

 private:
  enum class Phase { kStart, kItem, kFirstKey, kKey, kKeyText, kColon, kValue, kValueText, kValueEnd, kComma, kClose };
  enum class Role { kName, kId, kArguments, kOther };

  Step read_punctuation(char c, CallBuffer* buffer);
  Step start(char c, CallBuffer* buffer);
  Step start_key(char c, CallBuffer* buffer);
  Step start_value(char c, CallBuffer* buffer);
  Step read_text(CallBuffer* buffer);
  Step take_value(CallBuffer* buffer);
  Role role_of(const std::string& key) const;
  bool is_bare() const { return !row_->bare.empty(); }
  Step end_object(CallBuffer* buffer);
  Step end_bracket(Phase next, CallBuffer* buffer);
  bool take_arguments();
  void emit_whole(const std::string& arguments, CallBuffer* buffer);
  Step advance(Phase next, CallBuffer* buffer);

  const ToolFormatRow* row_;
  Phase phase_ = Phase::kStart;
  bool in_list_ = false;
  bool may_skip_semicolon_ = true;                   // bare: one ';' may stand before a call
  std::string key_, name_, id_, value_, arguments_;  // fields of the current object
  Role role_ = Role::kOther;
  bool is_ended_ = false;  // the call of the current object has been emitted
  JsonScanner scanner_;
};

// ToolBody::kPattern (pattern_calls.cpp).
class PatternCalls {
 public:
  explicit PatternCalls(const ToolFormatRow& row) : pattern_(row.syntax), list_(row) {}
  Step step(CallBuffer* buffer);

 private:
  Step read_hole(char hole, CallBuffer* buffer);
  Step read_arguments(CallBuffer* buffer);

  std::string_view pattern_;  // the rest of it
  std::string name_, id_;
  JsonScanner scanner_;
  bool is_list_ = false;
  JsonCalls list_;
};

// ToolBody::kXml (xml_calls.cpp).
class XmlCalls {
 public:
  // `mark`: the opening mark that was read.
  XmlCalls(const ToolFormatRow& row, std::string_view mark)
      : row_(&row), phase_(mark == row.tags.name ? Phase::kName : Phase::kFunction) {}
  Step step(CallBuffer* buffer);

 private:
  enum class Phase { kFunction, kName, kNameEnd, kParameter, kKey, kKeyEnd, kNewline, kString, kJson, kClose };

  Step read_word(std::string* out, Phase next, CallBuffer* buffer);
  Step end_name(CallBuffer* buffer);
  Step read_tag(CallBuffer* buffer);
  Step end_key(CallBuffer* buffer);
  Step start_value(CallBuffer* buffer);
  Step read_string(CallBuffer* buffer);
  Step read_json(CallBuffer* buffer);

  const ToolFormatRow* row_;
  Phase phase_;
  std::string name_, key_, value_end_;
  bool has_parameters_ = false;
  std::vector<std::string> types_;  // of the current parameter
  size_t searched_ = 0;             // leading bytes of a JSON value that do not contain its end
};

// ToolBody::kBraces and kPython (brace_calls.cpp).
class BraceCalls {
 public:
  explicit BraceCalls(const ToolFormatRow& row) : row_(&row), is_python_(row.body == ToolBody::kPython) {}
  Step step(CallBuffer* buffer);

 private:
  enum class Phase { kCall, kName, kKeyOrEnd, kKey, kColon, kElementOrEnd, kValue, kString, kComma, kNext, kClose };

  Step start(CallBuffer* buffer);
  Step start_next(CallBuffer* buffer);
  Match match_quote(std::string_view text);
  Step read_python_string(CallBuffer* buffer);
  Step read_name(CallBuffer* buffer);
  Step read_key(CallBuffer* buffer);
  Step read_value(CallBuffer* buffer);
  Step read_plain(CallBuffer* buffer);
  Step read_string(CallBuffer* buffer);
  Step read_comma(CallBuffer* buffer);
  Step open(Phase next, CallBuffer* buffer);
  Step close(CallBuffer* buffer);
  Step emit(std::string_view json, size_t bytes, Phase next, CallBuffer* buffer);

  const ToolFormatRow* row_;
  bool is_python_;
  bool in_list_ = false;  // kPython: of calls
  Phase phase_ = Phase::kCall;
  Phase after_string_ = Phase::kComma;
  std::string open_;        // enclosing brackets: '{', '[', and '(' around the arguments of kPython
  std::string_view quote_;  // around the current string
  size_t searched_ = 0;     // leading bytes of a string of kPython that do not contain its end
};

// ToolBody::kHarmony: the whole answer, as messages of a header, "<|message|>", a text and an end mark (harmony.cpp).
class HarmonyMessages {
 public:
  // Never returns kDone. After kReject the caller makes the held text content and calls resume_as_content().
  Step step(CallBuffer* buffer);
  void finish(CallBuffer* buffer);  // emits unread text that is not held
  void resume_as_content();

 private:
  enum class Phase { kBetween, kHeader, kText, kArguments, kArgumentsText, kAfterCall };

  Step start(CallBuffer* buffer);
  Step read_header(CallBuffer* buffer);
  Step read_text(CallBuffer* buffer);
  Step start_arguments(CallBuffer* buffer);
  Step skip_end(CallBuffer* buffer);

  Phase phase_ = Phase::kBetween;
  EventKind kind_ = EventKind::kContent;  // of the current text
  std::string name_;                      // of the tool
  size_t searched_ = 0;                   // leading bytes of the header that do not contain its end
  JsonScanner scanner_;
};

// Outside of calls.
struct NoCall {
  Step step(CallBuffer*) { return Step::kReject; }
};

using CallReader = std::variant<NoCall, JsonCalls, PatternCalls, XmlCalls, BraceCalls, HarmonyMessages>;

}  // namespace pinion
