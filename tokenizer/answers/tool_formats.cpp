#include "tokenizer/answers/tool_formats.h"

#include <algorithm>

#include "tokenizer/answers/json_scanner.h"

namespace pinion {
namespace {

// The first matching row counts, so more specific rows come first.
constexpr ToolFormatRow kToolFormats[] = {
    {.format = ToolFormat::kHarmony,
     .body = ToolBody::kHarmony,
     .other_marks = {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"},
     .in_template = {"<|channel|>", "<|message|>"},
     .force_before = "<|channel|>commentary to=functions.",
     .force_after = " <|constrain|>json<|message|>"},
    {.format = ToolFormat::kFunctionGemma,
     .body = ToolBody::kBraces,
     .open = {"<start_function_call>"},
     .close = {"<end_function_call>"},
     .quote = "<escape>",
     .other_marks = {"<escape>"},
     .in_template = {"<start_function_call>"},
     .force_before = "<start_function_call>call:",
     .force_after = "{"},
    {.format = ToolFormat::kMistralArgs,
     .body = ToolBody::kNamed,
     .open = {"[TOOL_CALLS]"},
     .other_marks = {"[CALL_ID]", "[ARGS]"},
     .in_template = {"[TOOL_CALLS]", "[ARGS]"},
     .force_before = "[TOOL_CALLS]",
     .force_after = "[ARGS]"},
    {.format = ToolFormat::kMistral,
     .body = ToolBody::kNamed,
     .open = {"[TOOL_CALLS]"},
     .in_template = {"[TOOL_CALLS]"},
     .force_before = "[TOOL_CALLS][{\"name\": \"",
     .force_after = "\", \"arguments\":"},
    {.format = ToolFormat::kQwenXml,
     .body = ToolBody::kXml,
     .open = {"<tool_call>", "<function="},
     .close = {"</tool_call>"},
     .in_template = {"<function=", "<parameter="},
     .force_before = "<tool_call>\n<function=",
     .force_after = ">\n"},
    {.format = ToolFormat::kPhi4Mini,
     .body = ToolBody::kJson,
     .open = {"<|tool_call|>"},
     .close = {"<|/tool_call|>"},
     .in_template = {"<|tool|>", "<|/tool|>"},
     .force_before = "<|tool_call|>[{\"name\": \"",
     .force_after = "\", \"arguments\":"},
    {.format = ToolFormat::kGranite,
     .body = ToolBody::kJson,
     .open = {"<|tool_call|>", "<tool_call>"},
     .close = {"</tool_call>"},
     .in_template = {"<|tool_call|>"},
     .force_before = "<|tool_call|>[{\"name\": \"",
     .force_after = "\", \"arguments\":"},
    {.format = ToolFormat::kHermes,
     .body = ToolBody::kJson,
     .open = {"<tool_call>"},
     .close = {"</tool_call>"},
     .in_template = {"<tool_call>", "\"name"},  // excludes formats without JSON
     .force_before = "<tool_call>\n{\"name\": \"",
     .force_after = "\", \"arguments\":"},
    {.format = ToolFormat::kLlama,
     .body = ToolBody::kJson,
     .open = {"<|python_tag|>"},
     .is_bare = true,
     .in_template = {"ipython", "\"parameters\": "},
     .force_before = "{\"name\": \"",
     .force_after = "\", \"parameters\":"},
    {.format = ToolFormat::kNone, .body = ToolBody::kNone},
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
  for (const ToolFormatRow& row : kToolFormats) {
    const auto has = [&](std::string_view mark) { return chat_template.find(mark) != std::string_view::npos; };
    if (!row.in_template[0].empty() && std::ranges::all_of(row.in_template, has)) return row.format;
  }
  return ToolFormat::kNone;
}

bool is_tool_mark(ToolFormat format, std::string_view token) {
  const ToolFormatRow& row = tool_format_row(format);
  return contains(row.open, token) || contains(row.close, token) || contains(row.other_marks, token);
}

std::string forced_call(ToolFormat format, std::string_view name, bool inside_thought) {
  const ToolFormatRow& row = tool_format_row(format);
  std::string text = inside_thought ? "\n</think>\n\n" : "";
  text += row.force_before;
  if (name.empty()) return text;
  append_json_escaped(name, &text);
  return text.append(row.force_after);
}

}  // namespace pinion
