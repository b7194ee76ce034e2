// Splits a model's text, which comes in chunks, into thoughts, answer and tool calls.
//
// No text of a model is an error. Text that resembles a call but is none (invalid JSON, no name, unknown tool) becomes
// content, without the marks of calls. A call that lacks one closing quote, bracket or tag is read as if it were there.
// The events of a call come once it is complete, those of a longer one in chunks from kMaxHeldCallBytes on. If a long
// call breaks off or turns invalid, it ends there with is_complete false, and the rest is content.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>

#include "tokenizer/answers/tool_formats.h"

namespace pinion {

struct ToolEvent {
  enum class Kind { kContent, kThought, kCallBegun, kArguments, kCallEnded };
  Kind kind;
  int index = -1;           // number of the call, from 0; -1: kContent and kThought
  std::string text = {};    // content, thought, name of the tool, or a chunk of arguments
  std::string id = {};      // kCallBegun: written by the model before the arguments; may be empty
  bool is_complete = true;  // kCallEnded: the joined arguments are a JSON object
  bool operator==(const ToolEvent&) const = default;
};

struct ToolCallOptions {
  ToolFormat format = {};
  nlohmann::ordered_json tools = nullptr;  // list of schemas as in OpenAI's API; null: any name is a tool
  bool inside_thought = false;             // the prompt ends within a thought
  // A beginning of the answer at the end of the prompt, with the mark before it if that opens a thought. It gives no
  // events, except for a call that is unfinished.
  std::string begun = {};
  std::string forced_prefix = {};  // the text of forced_call() at the end of the prompt, or empty
};

// Limit of the text that is held back while it may be a call: a call is content if its name stands behind longer
// arguments, and a longer value of an XML parameter becomes a JSON string. (Newlines around thoughts and calls have no
// limit.)
constexpr size_t kMaxHeldBytes = 256 << 10;

constexpr size_t kMaxHeldCallBytes = 1024;

// The boundaries of chunks do not change the joined events. Chunks of whole UTF-8 characters give whole characters.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolCallOptions options);
  ~ToolCallParser();

  std::vector<ToolEvent> put(std::string_view text);  // returns the events that are certain
  std::vector<ToolEvent> finish();                    // the text ends here
  // The text of a call that has begun and has no event yet, without white space before its opening mark; empty: none.
  std::string_view open_call() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pinion
