// What the readers of tool calls share: the text that is not read yet, and the events that it became.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/answers/tool_calls.h"

namespace pinion {

enum class Step {
  kOn,     // read something
  kMore,   // cannot tell before more text comes
  kDone,   // the call's mark ended
  kWrong,  // the next byte is none of a call
};

enum class Match { kNo, kBegun, kYes };
Match match(std::string_view text, std::string_view word);  // at the front of `text`

// Longer names are no names.
constexpr size_t kMaxNameBytes = 256;

class CallStream {
 public:
  explicit CallStream(nlohmann::ordered_json tools);

  void put(std::string_view text);
  std::string_view rest() const;  // not read yet
  void skip(size_t bytes) { at_ += bytes; }
  void skip_blanks();
  Step skip_word(std::string_view word);  // kDone: the text went on with it

  // From here on text is held back: it becomes content again unless a call begins.
  void hold() { held_from_ = at_; }
  void drop_held() { held_from_ = std::string::npos; }
  std::string take_held();
  bool is_cut() const { return end() < bytes_.size(); }  // more is held than may be: rest() is not all

  bool knows(std::string_view name) const;
  // The JSON types that the tools' schemas allow for a parameter; empty: any.
  std::vector<std::string> types(const std::string& name, const std::string& parameter) const;

  void say(ToolEvent::Kind kind, std::string_view text);
  void begin_call(const std::string& name, const std::string& id);
  void end_call(bool is_complete);  // what is read from here on is held
  bool in_call() const { return in_call_; }
  int begun_calls() const { return begun_calls_; }
  std::vector<ToolEvent> take_events();

 private:
  size_t end() const;

  nlohmann::ordered_json tools_;
  std::map<std::string, const nlohmann::ordered_json*, std::less<>> parameters_;  // of each tool: its properties
  std::string bytes_;
  size_t at_ = 0;
  size_t held_from_ = std::string::npos;
  bool in_call_ = false;
  int begun_calls_ = 0;
  std::vector<ToolEvent> events_;
};

}  // namespace pinion
