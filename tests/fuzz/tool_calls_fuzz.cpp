// Any text of a model in any format and any chunks: the joined events are the same, calls begin and end, and complete
// arguments are JSON. Text without marks is unchanged.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"
#include "tokenizer/answers/answer_text.h"
#include "tokenizer/answers/tool_calls.h"
#include "tokenizer/tokens/unicode.h"

namespace {

using namespace pinion;
using Json = nlohmann::ordered_json;
using Kind = ToolEvent::Kind;

// Bytes from 128 on stand for these, the others for themselves.
constexpr std::string_view kWords[] = {"<think>",
                                       "</think>",
                                       "<tool_call>",
                                       "</tool_call>",
                                       "<|tool_call|>",
                                       "<|/tool_call|>",
                                       "<function=",
                                       "</function>",
                                       "<parameter=",
                                       "</parameter>",
                                       "[TOOL_CALLS]",
                                       "[ARGS]",
                                       "[CALL_ID]",
                                       "<|python_tag|>",
                                       "<start_function_call>",
                                       "<end_function_call>",
                                       "<escape>",
                                       "<|\"|>",
                                       "call:",
                                       "<|start|>",
                                       "assistant",
                                       "<|channel|>",
                                       "analysis",
                                       "commentary",
                                       "final",
                                       " to=",
                                       "functions.",
                                       "<|constrain|>json",
                                       "<|message|>",
                                       "<|end|>",
                                       "<|call|>",
                                       "<|return|>",
                                       "{\"name\": \"f\", \"arguments\": {",
                                       "\"name\": \"f\"",
                                       "\"arguments\": {",
                                       "\"parameters\": ",
                                       "\"id\": \"1\"",
                                       "f{",
                                       "}}",
                                       "\"s\": ",
                                       "\"i\": ",
                                       "s>\n",
                                       "i>\n",
                                       "o>\n",
                                       "n>\n",
                                       "null",
                                       "None",
                                       "true",
                                       "False",
                                       "-1.5e+3",
                                       "\\ud83d",
                                       "\\ude00",
                                       "\\u00e9",
                                       "\xC3\xA9",
                                       "\xF0\x9F\x98\x80",
                                       "\xC3",
                                       "\n</parameter>\n",
                                       "\n</function>\n",
                                       "[TOOL",
                                       "f(",
                                       "g=",
                                       ")]",
                                       "\"f\", ",
                                       "\n```json\n",
                                       "functions.f:0"};

// The marks and tags of a format.
std::vector<std::string_view> marks_of(const ToolFormatRow& row) {
  std::vector<std::string_view> marks(row.open.begin(), row.open.end());
  marks.insert(marks.end(), row.close.begin(), row.close.end());
  marks.insert(marks.end(), row.other_marks.begin(), row.other_marks.end());
  const XmlTags& tags = row.tags;
  marks.insert(marks.end(), {tags.name, tags.name_end, tags.key, tags.key_end, tags.value_end, tags.end, row.syntax,
                             row.force_before, row.force_after});
  std::erase(marks, "");
  return marks;
}

// Bytes up to 31 stand for the marks of the format.
std::string text_of(const ToolFormatRow& row, std::string_view bytes) {
  const std::vector<std::string_view> marks = marks_of(row);
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 32 && c != '\n' && !marks.empty()) {
      text += marks[byte % marks.size()];
    } else {
      text += byte < 128 ? std::string_view(&c, 1) : kWords[(byte - 128) % std::size(kWords)];
    }
  }
  return to_utf8(text);
}

Json tools() {
  const Json properties = {{"s", {{"type", "string"}}},
                           {"i", {{"type", "integer"}}},
                           {"o", {{"type", "object"}}},
                           {"n", {{"type", {"string", "null"}}}}};
  return {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", {{"properties", properties}}}}}}};
}

// Parses chunks of at least `step` bytes, or of whole characters.
std::vector<ToolEvent> events_of(const ToolCallOptions& options, std::string_view text, size_t step, bool whole) {
  ToolCallParser parser(options);
  std::vector<ToolEvent> events;
  const auto add = [&](const std::vector<ToolEvent>& more) {
    for (const ToolEvent& event : more) {
      require(event.kind == Kind::kCallEnded || !event.text.empty());
      require(!whole || to_utf8(event.text) == event.text);
      const bool continues = !events.empty() && events.back().kind == event.kind && event.kind != Kind::kCallBegun &&
                             event.kind != Kind::kCallEnded;
      if (continues) {
        events.back().text += event.text;
      } else {
        events.push_back(event);
      }
    }
  };
  while (!text.empty()) {
    size_t bytes = std::min(step, text.size());
    while (whole && bytes < text.size() && (text[bytes] & 0xC0) == 0x80) ++bytes;
    add(parser.put(text.substr(0, bytes)));
    text.remove_prefix(bytes);
  }
  add(parser.finish());
  return events;
}

// Valid JSON; nlohmann's parser also rejects numbers beyond a double, so they are replaced.
bool is_json_object(const std::string& text) {
  std::string small;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') small += text[i++];
    if (c == '"') in_string = !in_string;
    const size_t end = std::min(text.find_first_not_of("0123456789+-.eE", i), text.size());
    const bool is_number = !in_string && (c == '-' || (c >= '0' && c <= '9'));
    if (is_number && std::isinf(std::strtod(text.substr(i, end - i).c_str(), nullptr))) {
      small += '0';
      i = end - 1;
    } else {
      small += text[i];
    }
  }
  return text.starts_with('{') && Json::accept(small);
}

void check_calls(const std::vector<ToolEvent>& events) {
  int begun = 0;
  bool in_call = false;
  std::string arguments;
  for (const ToolEvent& event : events) {
    if (event.kind == Kind::kCallBegun) {
      require(!in_call && event.index == begun++);
      arguments.clear();
    } else if (event.kind == Kind::kCallEnded) {
      require(in_call && event.index == begun - 1 && (!event.is_complete || is_json_object(arguments)));
    } else {
      require(in_call == (event.kind == Kind::kArguments) && event.index == (in_call ? begun - 1 : -1));
      arguments += event.text;
    }
    if (event.kind == Kind::kCallBegun || event.kind == Kind::kCallEnded) in_call = !in_call;
  }
  require(!in_call);
}

}  // namespace

FUZZ_TARGET(tool_calls) {
  if (size < 3) return 0;
  ToolCallOptions options;
  const ToolFormatRow& row = tool_formats()[data[0] % tool_formats().size()];
  options.format = row.name;
  const std::string text = text_of(row, {reinterpret_cast<const char*>(data) + 3, size - 3});
  options.inside_thought = data[1] & 1;
  if (data[1] & 2) options.tools = tools();
  if (data[1] & 4)
    options.forced_prefix =
        forced_call(options.format, data[1] & 8 ? "f" : "", options.inside_thought ? "</think>" : "");
  if (data[1] & 16) {  // the first bytes of the text are in the prompt
    size_t bytes = std::min<size_t>((data[1] >> 5) * 5, text.size());
    while (bytes < text.size() && (text[bytes] & 0xC0) == 0x80) ++bytes;  // not within a character
    options.begun = text.substr(0, bytes);
    options.forced_prefix.clear();
  }
  const std::string rest = text.substr(options.begun.size());
  const std::vector<ToolEvent> events = events_of(options, rest, std::max<size_t>(rest.size(), 1), false);
  require(events_of(options, rest, 1 + data[2] % 16, false) == events);
  require(events_of(options, rest, 1 + data[2] % 16, true) == events);
  check_calls(events);

  // Text without calls and thoughts is unchanged, except that marks are left out.
  const auto has = [&](std::string_view word) {
    return (options.forced_prefix + text).find(word) != std::string::npos;
  };
  const bool is_plain =
      !options.inside_thought && options.format != "harmony" &&
      std::ranges::none_of(thinking_marks(), [&](const ThinkingMarks& marks) { return has(marks.open); }) &&
      std::ranges::none_of(marks_of(row), has) &&
      std::ranges::none_of(events, [](const ToolEvent& e) { return e.kind != Kind::kContent; });
  if (is_plain) {
    require((events.empty() ? std::string() : events[0].text) == options.forced_prefix + rest);
  }
  return 0;
}
