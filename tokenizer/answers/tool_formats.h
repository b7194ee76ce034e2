// The formats in which model families write tool calls, one row each. A mark is a delimiter such as <tool_call>.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace pinion {

enum class ToolFormat {
  kNone,
  kHermes,  // <tool_call>{...}</tool_call>
  kQwenXml,
  kLlama,
  kMistral,      // [TOOL_CALLS] and a list
  kMistralArgs,  // [TOOL_CALLS]name[ARGS]{...}
  kFunctionGemma,
  kHarmony,
  kGranite,
  kPhi4Mini,
  kGemma4,
  kLfm2,
  kOlmo3,
  kPythonList,  // [name(key=value)] without marks: Llama 3.2 and 4, ToolACE
  kToolCalls,   // <tool_calls>...</tool_calls>: Apriel, Hunyuan, Jamba, MiniMax M1
  kNemotronV2,
  kApertus,
  kCohere,       // Command R7B, Command A, Cohere 2 MoE
  kCommandR,     // Action: and a JSON list
  kGigaChat3,    // a message of the role "function call"
  kGigaChat31,   // <|function_call|>
  kGranite20b,   // <function_call>
  kInternLm,     // <|action_start|><|plugin|>
  kFunctools,    // functools[...]: Firefunction, Phi-4-mini
  kXlam,         // a JSON list without marks
  kKimiK2,       // functions.name:0
  kDeepSeekR1,   // R1 and V3
  kDeepSeekV31,  // V3.1
  kSolar,
  kMiroThinker,
  kFunctionary31,
  kFunctionary32,
  kSeed,
  kGlm,         // <arg_key>, <arg_value>: GLM 4.5 to 5, Laguna
  kHunyuan3,    // the same with a suffix in each tag
  kMiniMaxM2,   // <invoke name="...">
  kDeepSeekV4,  // <｜DSML｜invoke name="...">: V3.2, V4
  kKimiK3,
  kMiniCpm3,  // Python in a fence
  kMiniCpm5,
  kLast = kMiniCpm5,
};

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
  std::string_view type = {};  // begins an attribute behind the key: string="true" or "false", or type="string" etc.
};

struct ToolFormatRow {
  ToolFormat format;
  ToolBody body;
  std::array<std::string_view, 2> open = {};         // alternative marks that begin a call
  std::array<std::string_view, 2> close = {};        // alternative marks that end it; empty: none
  std::array<std::string_view, 7> other_marks = {};  // other delimiters, such as marks around all calls
  std::string_view bare = {};  // the answer may be calls without marks, which begin with one of these bytes
  // kBraces: the mark around strings. kPattern: the text of a call behind the opening mark; %n is the name, %i the id,
  // %k an id that contains the name ("functions.NAME:0"), %a the arguments as JSON, %_ other text, a space any white
  // space. A word behind ? and the hole behind it may be missing. %j at the beginning: or as kJson.
  std::string_view syntax = {};
  XmlTags tags = {};
  // Appended to a prompt to force a call: the text before the name of the tool, and the text after it if the tool is
  // given. None ends in a space, since vocabularies join a space with the next word.
  std::string_view force_before = {}, force_after = {};
};

constexpr std::string_view kHarmonyCall = "to=functions.";  // begins a call in a header of kHarmony

const ToolFormatRow& tool_format_row(ToolFormat format);

// The format in which a chat template makes the model write calls; kNone: unknown, or no tools.
ToolFormat detect_tool_format(std::string_view chat_template);

// True if ToolCallParser needs the text of this special token. For the marks around thoughts see is_thinking_mark().
bool is_tool_mark(ToolFormat format, std::string_view token);

// The text that, at the end of a prompt, makes a model call the tool `name` (empty: any). The caller also passes it to
// the parser as ToolCallOptions::forced_prefix. `thought_close`: the mark of the thought in which the prompt ends.
std::string forced_call(ToolFormat format, std::string_view name, std::string_view thought_close);

}  // namespace pinion
