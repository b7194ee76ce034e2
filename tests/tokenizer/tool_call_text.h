// Parsed tool calls as text.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/answers/tool_calls.h"

namespace pinion {

using OrderedJson = nlohmann::ordered_json;

inline OrderedJson tool(const char* name, OrderedJson properties) {
  return {{"type", "function"},
          {"function", {{"name", name}, {"parameters", {{"type", "object"}, {"properties", std::move(properties)}}}}}};
}

inline OrderedJson tools() {
  return {tool("f", {{"s", {{"type", "string"}}},
                     {"i", {{"type", "integer"}}},
                     {"x", {{"type", "number"}}},
                     {"b", {{"type", "boolean"}}},
                     {"o", {{"type", "object"}}},
                     {"a", {{"type", "array"}}},
                     {"n", {{"type", {"string", "null"}}}},
                     {"u", {{"anyOf", {{{"type", "integer"}}, {{"type", "null"}}}}}}}),
          tool("g", OrderedJson::object())};
}

// Thoughts in (), calls as #0 name:id{arguments} with ; at the end, or ! if incomplete.
inline std::string shown(const std::vector<ToolEvent>& events) {
  std::string text;
  bool in_thought = false;
  for (const ToolEvent& event : events) {
    const bool is_thought = event.kind == ToolEvent::Kind::kThought;
    if (is_thought != in_thought) text += is_thought ? "(" : ")";
    in_thought = is_thought;
    if (event.kind == ToolEvent::Kind::kCallBegun) text += "#" + std::to_string(event.index) + " ";
    text += event.text;
    if (event.kind == ToolEvent::Kind::kCallBegun && !event.id.empty()) text += ":" + event.id;
    if (event.kind == ToolEvent::Kind::kCallEnded) text += event.is_complete ? ";" : "!";
  }
  return text + (in_thought ? ")" : "");
}

inline ToolCallOptions options_of(ToolFormat format, bool inside_thought = false) {
  return {.format = format, .tools = tools(), .inside_thought = inside_thought};
}

inline std::string parsed(const ToolCallOptions& options, std::string_view text, size_t first_bytes,
                          size_t step_bytes) {
  ToolCallParser parser(options);
  std::vector<ToolEvent> events;
  const auto add = [&](const std::vector<ToolEvent>& more) { events.insert(events.end(), more.begin(), more.end()); };
  add(parser.put(text.substr(0, first_bytes)));
  for (text.remove_prefix(std::min(first_bytes, text.size())); !text.empty();) {
    add(parser.put(text.substr(0, step_bytes)));
    text.remove_prefix(std::min(step_bytes, text.size()));
  }
  add(parser.finish());
  return shown(events);
}

// The parsed text; expects the same for chunks of any size.
inline std::string parsed(const ToolCallOptions& options, std::string_view text) {
  const std::string whole = parsed(options, text, text.size(), text.size());
  EXPECT_EQ(parsed(options, text, 1, 1), whole) << text;
  EXPECT_EQ(parsed(options, text, 3, 3), whole) << text;
  for (size_t cut = 0; cut < text.size(); ++cut) EXPECT_EQ(parsed(options, text, cut, text.size()), whole) << cut;
  return whole;
}

inline std::string parsed(ToolFormat format, std::string_view text) { return parsed(options_of(format), text); }

// `text` without the marks, each with a line end behind it.
inline std::string without(std::string text, std::initializer_list<std::string_view> marks) {
  for (const std::string_view mark : marks) {
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) {
      text.erase(at, mark.size() + (text.compare(at + mark.size(), 1, "\n") == 0));
    }
  }
  return text;
}

}  // namespace pinion
