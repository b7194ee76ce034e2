// Cuts a model's text, as it comes, into thoughts, answer and tool calls.
//
// Nothing that a model writes is an error or gets lost. What looks like a call but is none (no JSON, no name, no tool
// of that name) is content, as the model wrote it. From the moment that a call's name is known and its arguments begin,
// it is a call: its arguments come as the model writes them. If they break off, or go wrong, the call ends there, with
// is_complete false and arguments that may be no JSON; what follows is content.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/answers/tool_formats.h"

namespace pinion {

struct ToolEvent {
  enum class Kind { kContent, kThought, kCallBegun, kArguments, kCallEnded };
  Kind kind;
  int index = -1;           // which call
  std::string text = {};    // content, thought, the call's name, a piece of its arguments
  std::string id = {};      // kCallBegun: the model's, if it gave one before the arguments
  bool is_complete = true;  // kCallEnded: the pieces of arguments, joined, are a JSON object
  bool operator==(const ToolEvent&) const = default;
};

struct ToolCallOptions {
  ToolFormat format = ToolFormat::kNone;
  nlohmann::ordered_json tools = nullptr;  // OpenAI's list of schemas; null: any name is a tool's
  bool inside_thought = false;             // the prompt has opened a thought already
  std::string written = {};                // by the prompt instead of the model: forced_call()
};

// Most that is held back before it is known whether it is a call. A call whose name stands behind longer arguments is
// content. (Blank lines around thoughts and calls, which are left out, and a value of an XML call that has to be JSON
// are held back as a whole.)
constexpr size_t kMaxHeldBytes = 256 << 10;

// What the events say does not depend on how the text is cut, only their number does. Pieces of whole UTF-8 characters
// give events of whole characters.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolCallOptions options);
  ~ToolCallParser();

  // What is certain by now, in order.
  std::vector<ToolEvent> put(std::string_view text);
  std::vector<ToolEvent> finish();  // the text ends here

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pinion
