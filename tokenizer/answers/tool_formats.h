// The ways in which model families write tool calls, one row each.
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

// The text between the marks around a call.
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
  bool is_bare = false;                              // the answer may be calls without marks, joined by ';'
  std::array<std::string_view, 7> other_marks = {};  // further special tokens in some vocabularies
  std::array<std::string_view, 2> in_template = {};  // a chat template with both has this format; the first row counts
  // Appended to a prompt to force a call: the text before the name of the tool, and after it if the tool is given. None
  // ends in a blank: vocabularies join a blank with the next word.
  std::string_view force_before = {}, force_after = {};
};

const ToolFormatRow& tool_format_row(ToolFormat format);

// The format in which a chat template makes the model write calls; kNone: unknown, or no tools.
ToolFormat detect_tool_format(std::string_view chat_template);

// True if ToolCallParser needs the text of a special token. is_thinking_mark() covers the marks around thoughts.
bool is_tool_mark(ToolFormat format, std::string_view token);

// The text that makes a model call the tool `name` (empty: any) when the prompt ends with it; also goes to
// ToolCallOptions::forced_prefix. `inside_thought`: the prompt ends in a thought, which the text closes first.
std::string forced_call(ToolFormat format, std::string_view name, bool inside_thought);

}  // namespace pinion
