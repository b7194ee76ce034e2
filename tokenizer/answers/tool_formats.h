// The formats in which model families write tool calls, one row each. A mark is a delimiter such as <tool_call>.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace pinion {

// The name of a row of configs/tool_formats.json; empty: none.
using ToolFormat = std::string_view;

// The syntax between the marks around a call.
enum class ToolBody {
  kNone,
  kJson,     // {"name": ..., "arguments": {...}}, or a list of them; "parameters" is a synonym of "arguments"
  kPattern,  // ToolFormatRow::syntax
  kXml,      // a tag with the name, and tags around keys and values
  kBraces,   // call:name{key:value}
  kPython,   // name(key=value), or a list of them
  kHarmony   // messages with headers, in which thoughts and answers are written as well
};

// Tags of kXml: <function=NAME><parameter=KEY>VALUE</parameter></function>. A name or key ends at a quote, an angle
// bracket or a line end; the text up to the end of its tag may hold attributes.
struct XmlTags {
  std::string_view name, name_end, key, key_end, value_end, end;
  std::string_view type;  // begins an attribute behind the key: string="true" or "false", or type="string" etc.
};

struct ToolFormatRow {
  ToolFormat name;
  std::vector<std::vector<std::string_view>> templates;  // texts of chat templates, see configs/families.h
  ToolBody body;
  // A second mark of `close` ends all calls, and so also a call whose own end is missing.
  std::array<std::string_view, 2> open;         // alternative marks that begin a call
  std::array<std::string_view, 2> close;        // alternative marks that end it; empty: none
  std::array<std::string_view, 7> other_marks;  // other delimiters, such as marks around all calls
  std::string_view bare;  // the answer may be calls without marks, which begin with one of these bytes
  // kBraces: the mark around strings. kPattern: the text of a call behind the opening mark; %n is the name, %i the id,
  // %k an id that contains the name ("functions.NAME:0"), %a the arguments as JSON, %_ other text, a space any white
  // space. A word behind ? and the hole behind it may be missing. %j at the beginning: or as kJson.
  std::string_view syntax;
  XmlTags tags;
  bool key_is_name;  // kJson: {NAME: {...}}
  // Appended to a prompt to force a call: the text before the name of the tool, and the text after it if the tool is
  // given. None ends in a space, since vocabularies join a space with the next word.
  std::string_view force_before, force_after;
};

const std::vector<ToolFormatRow>& tool_formats();
constexpr std::string_view kHarmonyCall = "to=functions.";  // begins a call in a header of kHarmony

const ToolFormatRow& tool_format_row(ToolFormat format);

// The format in which a chat template makes the model write calls; empty: unknown, or no tools.
ToolFormat detect_tool_format(std::string_view chat_template);

// True if ToolCallParser needs the text of this special token. For the marks around thoughts see is_thinking_mark().
bool is_tool_mark(ToolFormat format, std::string_view token);

// The text that, at the end of a prompt, makes a model call the tool `name` (empty: any). The caller also passes it to
// the parser as ToolCallOptions::forced_prefix. `thought_close`: the mark of the thought in which the prompt ends.
std::string forced_call(ToolFormat format, std::string_view name, std::string_view thought_close);

}  // namespace pinion
