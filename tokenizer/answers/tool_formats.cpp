#include "tokenizer/answers/tool_formats.h"

#include <algorithm>

#include "tokenizer/answers/json_scanner.h"

namespace pinion {
namespace {

// Rows that ask for more in a template stand before those that ask for less.
constexpr ToolFormatRow kRows[] = {
    {
        .format = ToolFormat::kHarmony,
        .name = "harmony",
        .body = ToolBody::kHarmony,
        .other_marks = {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>",
                        "<|return|>"},
        .in_template = {"<|channel|>", "<|message|>"},
        .force_any = "<|channel|>commentary to=functions.",
        .force_before_name = "<|channel|>commentary to=functions.",
        .force_behind_name = " <|constrain|>json<|message|>",
    },
    {
        .format = ToolFormat::kFunctionGemma,
        .name = "function_gemma",
        .body = ToolBody::kBraces,
        .open = {"<start_function_call>"},
        .close = {"<end_function_call>"},
        .quote = "<escape>",
        .other_marks = {"<escape>"},
        .in_template = {"<start_function_call>"},
        .force_any = "<start_function_call>call:",
        .force_before_name = "<start_function_call>call:",
        .force_behind_name = "{",
    },
    {
        .format = ToolFormat::kMistralArgs,
        .name = "mistral_args",
        .body = ToolBody::kNamed,
        .open = {"[TOOL_CALLS]"},
        .other_marks = {"[CALL_ID]", "[ARGS]"},
        .in_template = {"[TOOL_CALLS]", "[ARGS]"},
        .force_any = "[TOOL_CALLS]",
        .force_before_name = "[TOOL_CALLS]",
        .force_behind_name = "[ARGS]",
    },
    {
        .format = ToolFormat::kMistral,
        .name = "mistral",
        .body = ToolBody::kNamed,
        .open = {"[TOOL_CALLS]"},
        .in_template = {"[TOOL_CALLS]"},
        .force_any = "[TOOL_CALLS][{\"name\": \"",
        .force_before_name = "[TOOL_CALLS][{\"name\": \"",
        .force_behind_name = "\", \"arguments\":",
    },
    {
        .format = ToolFormat::kQwenXml,
        .name = "qwen_xml",
        .body = ToolBody::kXml,
        .open = {"<tool_call>", "<function="},
        .close = {"</tool_call>"},
        .in_template = {"<function=", "<parameter="},
        .force_any = "<tool_call>\n<function=",
        .force_before_name = "<tool_call>\n<function=",
        .force_behind_name = ">\n",
    },
    {
        .format = ToolFormat::kPhi4Mini,
        .name = "phi4_mini",
        .body = ToolBody::kJson,
        .open = {"<|tool_call|>"},
        .close = {"<|/tool_call|>"},
        .in_template = {"<|tool|>", "<|/tool|>"},
        .force_any = "<|tool_call|>[{\"name\": \"",
        .force_before_name = "<|tool_call|>[{\"name\": \"",
        .force_behind_name = "\", \"arguments\":",
    },
    {
        .format = ToolFormat::kGranite,
        .name = "granite",
        .body = ToolBody::kJson,
        .open = {"<|tool_call|>", "<tool_call>"},
        .close = {"</tool_call>"},
        .in_template = {"<|tool_call|>"},
        .force_any = "<|tool_call|>[{\"name\": \"",
        .force_before_name = "<|tool_call|>[{\"name\": \"",
        .force_behind_name = "\", \"arguments\":",
    },
    {
        .format = ToolFormat::kHermes,
        .name = "hermes",
        .body = ToolBody::kJson,
        .open = {"<tool_call>"},
        .close = {"</tool_call>"},
        .in_template = {"<tool_call>", "\"name"},  // others write no JSON there
        .force_any = "<tool_call>\n{\"name\": \"",
        .force_before_name = "<tool_call>\n{\"name\": \"",
        .force_behind_name = "\", \"arguments\":",
    },
    {
        .format = ToolFormat::kLlama,
        .name = "llama",
        .body = ToolBody::kJson,
        .open = {"<|python_tag|>"},
        .is_bare = true,
        .in_template = {"ipython", "\"parameters\": "},
        .force_any = "{\"name\": \"",
        .force_before_name = "{\"name\": \"",
        .force_behind_name = "\", \"parameters\":",
    },
    {.format = ToolFormat::kNone, .name = "none", .body = ToolBody::kNone},
};

// Of a row's marks, those that it does not use are empty.
bool contains(const auto& marks, std::string_view mark) {
  return !mark.empty() && std::ranges::find(marks, mark) != marks.end();
}

}  // namespace

const ToolFormatRow& tool_format_row(ToolFormat format) {
  return *std::ranges::find(kRows, format, &ToolFormatRow::format);
}

ToolFormat detect_tool_format(std::string_view chat_template) {
  for (const ToolFormatRow& row : kRows) {
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
  if (name.empty()) return text.append(row.force_any);
  text += row.force_before_name;
  append_json_escaped(name, &text);  // changes no name that is plain
  return text.append(row.force_behind_name);
}

}  // namespace pinion
