// The ways in which model families write tool calls: one row each.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace pinion {

enum class ToolFormat {
  kNone,
  kHermes,
  kQwenXml,
  kLlama,
  kMistral,      // [TOOL_CALLS] and a list
  kMistralArgs,  // [TOOL_CALLS]name[ARGS]{...}
  kFunctionGemma,
  kHarmony,
  kGranite,
  kPhi4Mini,
};

// What stands between the marks around a call.
enum class ToolBody {
  kNone,
  kJson,    // {"name": ..., "arguments": {...}}, or a list of them; "parameters" is the same as "arguments"
  kNamed,   // name[ARGS]{...}, name[CALL_ID]id[ARGS]{...}, name{...}; or as kJson
  kXml,     // <function=name><parameter=key>value</parameter></function>
  kBraces,  // call:name{key:value}
  kHarmony  // messages with headers; they are also what thoughts and answers are written in
};

struct ToolFormatRow {
  ToolFormat format;
  std::string_view name;
  ToolBody body;
  std::array<std::string_view, 2> open = {};   // either begins a call
  std::array<std::string_view, 2> close = {};  // either may end it; none: nothing does
  std::string_view quote = {};                 // kBraces: around strings
  // A call may also be all of the answer, without a mark; several have ';' between them.
  bool is_bare = false;
  std::array<std::string_view, 7> other_marks = {};  // that some vocabularies have as special tokens
  // A template that contains both is for this format; the first row counts.
  std::array<std::string_view, 2> in_template = {};
  // Appended to a prompt: begins a call of any tool; of one, whose name stands between two. None ends in a blank, which
  // models have learnt as part of the token behind it.
  std::string_view force_any = {}, force_before_name = {}, force_behind_name = {};
};

const ToolFormatRow& tool_format_row(ToolFormat format);

// The format that a chat template has the model speak; kNone: its calls cannot be parsed.
ToolFormat detect_tool_format(std::string_view chat_template);

// Whether a special token is for ToolCallParser to see as text. Marks around thoughts are is_thinking_mark's.
bool is_tool_mark(ToolFormat format, std::string_view token);

// What has a model call a tool when it is appended to the prompt: the tool `name`, or any where it is empty. The parser
// must be told (ToolCallOptions::written). `inside_thought`: the prompt ends in a thought, which is ended before.
std::string forced_call(ToolFormat format, std::string_view name, bool inside_thought);

}  // namespace pinion
