// Splits a model's text, as it comes in chunks, into thoughts, answer and tool calls.
//
// No text of a model is an error or gets lost. Text that resembles a call but is none (no JSON, no name, unknown tool)
// is content, unchanged. Once a known name has been read and the arguments begin, it is a call, whose arguments are
// passed on as they come. If they break off or turn invalid, the call ends there with is_complete false, its arguments
// may be no JSON, and the rest is content.
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
  int index = -1;           // number of the call; -1: kContent and kThought
  std::string text = {};    // content, thought, name of the tool, or a chunk of arguments
  std::string id = {};      // kCallBegun: written by the model before the arguments; may be empty
  bool is_complete = true;  // kCallEnded: the joined arguments are a JSON object
  bool operator==(const ToolEvent&) const = default;
};

struct ToolCallOptions {
  ToolFormat format = ToolFormat::kNone;
  nlohmann::ordered_json tools = nullptr;  // list of schemas as in OpenAI's API; null: any name is a tool
  bool inside_thought = false;             // the prompt has opened a thought
  std::string forced_prefix = {};          // forced_call() if the prompt ends with it
};

// Limit of text held back until it is known to be a call. A call whose name stands behind longer arguments is content.
// (Blank lines around thoughts and calls, which are dropped, and XML values that must be JSON are held back as a
// whole.)
constexpr size_t kMaxHeldBytes = 256 << 10;

// The chunks change only the number of the events, not their joined content. Chunks of whole UTF-8 characters
// give events of whole characters.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolCallOptions options);
  ~ToolCallParser();

  std::vector<ToolEvent> put(std::string_view text);  // returns the events that are certain
  std::vector<ToolEvent> finish();                    // the text ends here

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pinion
