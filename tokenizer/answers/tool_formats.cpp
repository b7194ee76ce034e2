#include "tokenizer/answers/tool_formats.h"

#include <algorithm>

#include "tokenizer/answers/json_scanner.h"

namespace pinion {
namespace {

using Marks = std::array<std::string_view, 2>;
using OtherMarks = std::array<std::string_view, 7>;

constexpr std::string_view kArguments = "\", \"arguments\":", kParameters = "\", \"parameters\":";
constexpr XmlTags kQwenTags = {"<function=", ">", "<parameter=", ">", "</parameter>", "</function>"};

constexpr ToolFormatRow row(ToolFormat format, ToolBody body, Marks open, Marks close, std::string_view force_before,
                            std::string_view force_after, OtherMarks other_marks = {}, std::string_view syntax = {},
                            XmlTags tags = {}, std::string_view bare = {}) {
  return {format, body, open, close, other_marks, bare, syntax, tags, force_before, force_after};
}

constexpr ToolFormatRow json_row(ToolFormat format, std::string_view open, std::string_view close,
                                 std::string_view force_before, OtherMarks other_marks = {},
                                 std::string_view force_after = kArguments) {
  return row(format, ToolBody::kJson, {open}, {close}, force_before, force_after, other_marks);
}

// A second mark of `close` ends all calls, and so also a call whose own end is missing.
constexpr ToolFormatRow kToolFormats[] = {
    row(ToolFormat::kHarmony, ToolBody::kHarmony, {}, {"<|call|>"}, "<|channel|>commentary to=functions.",
        " <|constrain|>json<|message|>",
        {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>"}),
    row(ToolFormat::kFunctionGemma, ToolBody::kBraces, {"<start_function_call>"}, {"<end_function_call>"},
        "<start_function_call>call:", "{", {"<escape>"}, "<escape>"),
    row(ToolFormat::kGemma4, ToolBody::kBraces, {"<|tool_call>"}, {"<tool_call|>"}, "<|tool_call>call:", "{",
        {"<|\"|>"}, "<|\"|>"),
    row(ToolFormat::kLfm2, ToolBody::kPython, {"<|tool_call_start|>"}, {"<|tool_call_end|>"}, "<|tool_call_start|>[",
        "("),
    row(ToolFormat::kMiniCpm3, ToolBody::kPython, {"<|tool_call_start|>\n```python"}, {"```", "<|tool_call_end|>"},
        "<|tool_call_start|>\n```python\n", "(", {"<|tool_call_start|>"}),
    row(ToolFormat::kOlmo3, ToolBody::kPython, {"<function_calls>"}, {"</function_calls>"}, "<function_calls>\n", "("),
    row(ToolFormat::kPythonList, ToolBody::kPython, {"<|python_start|>"}, {"<|python_end|>"}, "[", "(", {}, {}, {},
        "["),
    row(ToolFormat::kMistralArgs, ToolBody::kPattern, {"[TOOL_CALLS]"}, {}, "[TOOL_CALLS]", "[ARGS]",
        {"[CALL_ID]", "[ARGS]"}, "%j%n?[CALL_ID]%i?[ARGS] %a"),
    row(ToolFormat::kMistral, ToolBody::kPattern, {"[TOOL_CALLS]"}, {}, "[TOOL_CALLS][{\"name\": \"", kArguments, {},
        "%j%n?[CALL_ID]%i?[ARGS] %a"),
    row(ToolFormat::kQwenXml, ToolBody::kXml, {"<tool_call>", "<function="}, {"</tool_call>"},
        "<tool_call>\n<function=", ">\n", {}, {}, kQwenTags),
    row(ToolFormat::kSeed, ToolBody::kXml, {"<seed:tool_call>", "<function="}, {"</seed:tool_call>"},
        "<seed:tool_call>\n<function=", ">\n", {}, {}, kQwenTags),
    row(ToolFormat::kGlm, ToolBody::kXml, {"<tool_call>"}, {"</tool_call>"}, "<tool_call>", "\n", {}, {},
        {"", "", "<arg_key>", "<arg_value>", "</arg_value>", "</tool_call>"}),
    row(ToolFormat::kHunyuan3, ToolBody::kXml, {"<tool_call:opensource>"},
        {"</tool_call:opensource>", "</tool_calls:opensource>"}, "<tool_call:opensource>", "<tool_sep:opensource>\n",
        {"<tool_calls:opensource>"}, {},
        {"", "<tool_sep:opensource>", "<arg_key:opensource>", "<arg_value:opensource>", "</arg_value:opensource>",
         "</tool_call:opensource>"}),
    row(ToolFormat::kMiniMaxM2, ToolBody::kXml, {"<invoke"}, {"</invoke>", "</minimax:tool_call>"},
        "<minimax:tool_call>\n<invoke name=\"", "\">\n", {"<minimax:tool_call>"}, {},
        {"name=\"", ">", "<parameter name=\"", ">", "</parameter>", "</invoke>"}),
    row(ToolFormat::kDeepSeekV4, ToolBody::kXml, {"<｜DSML｜invoke"}, {"</｜DSML｜invoke>", "</｜DSML｜tool_calls>"},
        "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"", "\">\n",
        {"<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "<｜DSML｜tool_calls>"}, {},
        {"name=\"", ">", "<｜DSML｜parameter name=\"", ">", "</｜DSML｜parameter>", "</｜DSML｜invoke>", " string=\""}),
    row(ToolFormat::kKimiK3, ToolBody::kXml, {"<|open|>call"}, {"<|close|>call<|sep|>", "<|close|>tools<|sep|>"},
        "<|open|>tools<|sep|><|open|>call tool=\"", "\" index=\"1\"<|sep|>",
        {"<|open|>tools<|sep|>", "<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"}, {},
        {"tool=\"", "<|sep|>", "<|open|>argument key=\"", "<|sep|>", "<|close|>argument<|sep|>", "<|close|>call<|sep|>",
         " type=\""}),
    row(ToolFormat::kMiniCpm5, ToolBody::kXml, {"<function"}, {"</function>"}, "<function name=\"", "\">", {}, {},
        {"name=\"", ">", "<param name=\"", ">", "</param>", "</function>"}),
    row(ToolFormat::kKimiK2, ToolBody::kPattern, {"<|tool_call_begin|>"},
        {"<|tool_call_end|>", "<|tool_calls_section_end|>"},
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>",
        {"<|tool_calls_section_begin|>"}, " %k <|tool_call_argument_begin|> %a <|tool_call_end|>"),
    row(ToolFormat::kDeepSeekR1, ToolBody::kPattern, {"<｜tool▁call▁begin｜>"},
        {"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", {"<｜tool▁calls▁begin｜>"},
        "%_<｜tool▁sep｜>%n ```json %a ``` <｜tool▁call▁end｜>"),
    row(ToolFormat::kDeepSeekV31, ToolBody::kPattern, {"<｜tool▁call▁begin｜>"},
        {"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>", {"<｜tool▁calls▁begin｜>"}, "%n<｜tool▁sep｜> %a <｜tool▁call▁end｜>"),
    row(ToolFormat::kSolar, ToolBody::kPattern, {"<|tool_call:begin|>"}, {"<|tool_call:end|>", "<|calls|>"},
        "<|tool_calls|><|tool_call:begin|>call1<|tool_call:name|>", "<|tool_call:args|>", {"<|tool_calls|>"},
        "%i<|tool_call:name|>%n<|tool_call:args|> %a <|tool_call:end|>"),
    row(ToolFormat::kMiroThinker, ToolBody::kPattern, {"<use_mcp_tool>"}, {"</use_mcp_tool>"},
        "<use_mcp_tool>\n<server_name>tools</server_name>\n<tool_name>", "</tool_name>\n<arguments>\n", {},
        " <server_name>%_</server_name> <tool_name>%n</tool_name> <arguments> %a </arguments> </use_mcp_tool>"),
    row(ToolFormat::kFunctionary31, ToolBody::kPattern, {"<function="}, {"</function>"}, "<function=", ">", {},
        "%n> %a </function>"),
    row(ToolFormat::kFunctionary32, ToolBody::kPattern, {">>>"}, {}, "", "\n", {">>>all\n"}, "%n\n %a"),
    json_row(ToolFormat::kPhi4Mini, "<|tool_call|>", "<|/tool_call|>", "<|tool_call|>[{\"name\": \""),
    row(ToolFormat::kGranite, ToolBody::kJson, {"<|tool_call|>", "<tool_call>"}, {"</tool_call>"},
        "<|tool_call|>[{\"name\": \"", kArguments),
    json_row(ToolFormat::kToolCalls, "<tool_calls>", "</tool_calls>", "<tool_calls>[{\"name\": \""),
    json_row(ToolFormat::kNemotronV2, "<TOOLCALL>", "</TOOLCALL>", "<TOOLCALL>[{\"name\": \""),
    json_row(ToolFormat::kApertus, "<|tools_prefix|>", "<|tools_suffix|>", "<|tools_prefix|>[{\"", {}, "\":"),
    json_row(ToolFormat::kCohere, "<|START_ACTION|>", "<|END_ACTION|>",
             "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"", {}, kParameters),
    json_row(ToolFormat::kCommandR, "Action:\n```json", "```", "Action:\n```json\n[\n    {\n        \"tool_name\": \"",
             {}, "\",\n        \"parameters\":"),
    json_row(ToolFormat::kGigaChat3, "function call<|role_sep|>", "<|message_sep|>",
             "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"", {"<|role_sep|>"}),
    json_row(ToolFormat::kGigaChat31, "<|function_call|>", "<|message_sep|>", "<|function_call|>{\"name\": \""),
    json_row(ToolFormat::kGranite20b, "<function_call>", "", "<function_call> {\"name\": \""),
    json_row(ToolFormat::kInternLm, "<|plugin|>", "<|action_end|>", "<|action_start|><|plugin|>\n{\"name\": \"",
             {"<|action_start|>"}),
    json_row(ToolFormat::kFunctools, "functools", "", "functools[{\"name\": \""),
    row(ToolFormat::kXlam, ToolBody::kJson, {}, {}, "[{\"name\": \"", kArguments, {}, {}, {}, "[{"),
    json_row(ToolFormat::kHermes, "<tool_call>", "</tool_call>", "<tool_call>\n{\"name\": \""),
    row(ToolFormat::kLlama, ToolBody::kJson, {"<|python_tag|>"}, {}, "{\"name\": \"", kParameters, {}, {}, {}, "{"),
    {.format = ToolFormat::kNone, .body = ToolBody::kNone},
};

// A chat template that contains both texts has this format. The first match counts, so more specific texts come first.
constexpr struct {
  ToolFormat format;
  std::string_view text, other_text = {};
} kTemplateTexts[] = {
    {ToolFormat::kNone, "]<]minimax[>["},  // MiniMax M3: nested tags named by keys
    {ToolFormat::kKimiK3, "<|open|>", "'argument'"},
    {ToolFormat::kHarmony, "<|channel|>", "<|message|>"},
    {ToolFormat::kGemma4, "<|tool_call>call:"},
    {ToolFormat::kFunctionGemma, "<start_function_call>"},
    {ToolFormat::kKimiK2, "<|tool_call_argument_begin|>"},
    {ToolFormat::kDeepSeekV4, "｜DSML｜"},
    {ToolFormat::kDeepSeekR1, "<｜tool▁sep｜>", "```json"},
    {ToolFormat::kDeepSeekV31, "<｜tool▁sep｜>"},
    {ToolFormat::kSolar, "<|tool_call:args|>"},
    {ToolFormat::kMiroThinker, "<use_mcp_tool>"},
    {ToolFormat::kFunctionary32, ">>>all\\n"},
    {ToolFormat::kMistralArgs, "[TOOL_CALLS]", "[ARGS]"},
    {ToolFormat::kMistral, "[TOOL_CALLS]"},
    {ToolFormat::kSeed, "<seed:tool_call>"},
    {ToolFormat::kMiniMaxM2, "<minimax:tool_call>"},
    {ToolFormat::kMiniCpm5, "<param name="},
    {ToolFormat::kQwenXml, "<function=", "<parameter="},
    {ToolFormat::kFunctionary31, "<function=", "</function>"},
    {ToolFormat::kHunyuan3, "'<arg_key{}>'", "':opensource'"},
    {ToolFormat::kGlm, "<arg_key>"},
    {ToolFormat::kMiniCpm3, "<|tool_call_start|>", "```python"},
    {ToolFormat::kLfm2, "<|tool_call_start|>"},
    {ToolFormat::kLfm2, "List of tools: "},
    {ToolFormat::kOlmo3, "<function_calls>"},
    {ToolFormat::kApertus, "<|tools_prefix|>"},
    {ToolFormat::kNemotronV2, "<TOOLCALL>"},
    {ToolFormat::kCohere, "<|START_ACTION|>"},
    {ToolFormat::kCommandR, "Action:", "```json"},
    {ToolFormat::kGigaChat31, "<|function_call|>"},
    {ToolFormat::kGigaChat3, "function call", "<|role_sep|>"},
    {ToolFormat::kGranite20b, "<function_call>"},
    {ToolFormat::kInternLm, "<|plugin|>"},
    {ToolFormat::kFunctools, "functools["},
    {ToolFormat::kPhi4Mini, "<|tool|>", "<|/tool|>"},
    {ToolFormat::kGranite, "<|tool_call|>"},
    {ToolFormat::kToolCalls, "<tool_calls>"},
    {ToolFormat::kHermes, "<tool_call>", "arguments"},
    {ToolFormat::kXlam, "JSON array", "\"arguments\": "},
    {ToolFormat::kPythonList, "[func_name1("},
    {ToolFormat::kLlama, "ipython", "\"parameters\": "},
};

// Unused marks of a row are empty.
bool contains(const auto& marks, std::string_view mark) {
  return !mark.empty() && std::ranges::find(marks, mark) != marks.end();
}

}  // namespace

const ToolFormatRow& tool_format_row(ToolFormat format) {
  return *std::ranges::find(kToolFormats, format, &ToolFormatRow::format);
}

ToolFormat detect_tool_format(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != std::string_view::npos; };
  for (const auto& row : kTemplateTexts) {
    if (has(row.text) && has(row.other_text)) return row.format;
  }
  return ToolFormat::kNone;
}

bool is_tool_mark(ToolFormat format, std::string_view token) {
  const ToolFormatRow& row = tool_format_row(format);
  const XmlTags& tags = row.tags;
  const auto has_token = [&](std::string_view text) { return text.find(token) != std::string_view::npos; };
  return contains(row.open, token) || contains(row.close, token) || contains(row.other_marks, token) ||
         (token.size() > 2 &&
          std::ranges::any_of(
              std::to_array({row.syntax, tags.name_end, tags.key, tags.key_end, tags.value_end, tags.end}), has_token));
}

std::string forced_call(ToolFormat format, std::string_view name, std::string_view thought_close) {
  const ToolFormatRow& row = tool_format_row(format);
  std::string text;
  if (!thought_close.empty()) text.append("\n").append(thought_close).append("\n\n");
  text += row.force_before;
  return name.empty() ? text : text.append(json_escaped(name)).append(row.force_after);
}

}  // namespace pinion
