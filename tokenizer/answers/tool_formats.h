// The formats in which model families write tool calls, one row each. A mark is a delimiter such as <tool_call>.
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

// The syntax between the marks around a call.
enum class ToolBody {
  kNone,
  kJson,    // {"name": ..., "arguments": {...}}, or a list of them; "parameters" is a synonym of "arguments"
  kNamed,   // name[ARGS]{...}, name[CALL_ID]id[ARGS]{...}, name{...}; or as kJson
  kXml,     // <function=name><parameter=key>value</parameter></function>
  kBraces,  // call:name{key:value}
  kHarmony  // messages with headers, in which thoughts and answers are written as well
};

struct ToolFormatRow {
  ToolFormat format;
  ToolBody body;
  std::array<std::string_view, 2> open = {};         // alternative marks that begin a call
  std::array<std::string_view, 2> close = {};        // alternative marks that end it; empty: none
  std::string_view quote = {};                       // kBraces: around strings
  bool is_bare = false;                              // the answer may be calls without marks, separated by ';'
  std::array<std::string_view, 7> other_marks = {};  // other delimiters of the format; is_tool_mark() covers them
  std::array<std::string_view, 2> in_template = {};  // a chat template that contains both has this format
  // Appended to a prompt to force a call: the text before the name of the tool, and the text after it if the tool is
  // given. None ends in a space, since vocabularies join a space with the next word.
  std::string_view force_before = {}, force_after = {};
};

const ToolFormatRow& tool_format_row(ToolFormat format);

// The format in which a chat template makes the model write calls; kNone: unknown, or no tools.
ToolFormat detect_tool_format(std::string_view chat_template);

// True if ToolCallParser needs the text of this special token. For the marks around thoughts see is_thinking_mark().
bool is_tool_mark(ToolFormat format, std::string_view token);

// The text that, at the end of a prompt, makes a model call the tool `name` (empty: any). The caller also passes it to
// the parser as ToolCallOptions::forced_prefix. `inside_thought`: the prompt ends in a thought, which the text closes.
std::string forced_call(ToolFormat format, std::string_view name, bool inside_thought);

}  // namespace pinion
