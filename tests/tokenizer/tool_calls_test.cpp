#include "tokenizer/answers/tool_calls.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/tokenizer/tool_call_text.h"

namespace pinion {
namespace {

TEST(ToolCalls, HermesJson) {
  const auto hermes = [](std::string_view text) { return parsed("hermes", text); };
  EXPECT_EQ(hermes("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a\"}}\n</tool_call>"),
            "#0 f{\"s\": \"a\"};");
  EXPECT_EQ(hermes("Now.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n"
                   "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"o\": {\"a\": [1, -2.5e3, null, "
                   "true]}}}\n</tool_call>\nDone."),
            "Now.#0 f{};#1 g{\"o\": {\"a\": [1, -2.5e3, null, true]}};Done.");
  EXPECT_EQ(hermes("<think>\nWhy <tool_call>?\n</think>\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"),
            "(Why <tool_call>?)#0 f{};");
}

TEST(ToolCalls, AnyOrderOfJsonFields) {
  const auto hermes = [](std::string_view text) { return parsed("hermes", text); };
  EXPECT_EQ(
      hermes("<tool_call>{\"arguments\": {\"s\": \"a\"}, \"x\": [{}], \"id\": \"k1\", \"name\": \"f\"}</tool_call>"),
      "#0 f:k1{\"s\": \"a\"};");
  EXPECT_EQ(hermes("<tool_call>{\"id\": \"k1\", \"name\": \"f\", \"parameters\": {} , \"more\": 1 }</tool_call>"),
            "#0 f:k1{};");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"g\"}</tool_call>"), "#0 g{};");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"g\", \"arguments\": null}</tool_call>"), "#0 g{};");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"s\\\": 1}\"}</tool_call>"), "#0 f{\"s\": 1};");
  EXPECT_EQ(
      hermes("<tool_call>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]</tool_call>"),
      "#0 f{};#1 g{};");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {}}</tool_call>"),
            "#0 f{};#1 g{};");
}

TEST(ToolCalls, StringsMayContainMarks) {
  EXPECT_EQ(
      parsed(
          "hermes",
          R"(<tool_call>{"name": "f", "arguments": {"s": "</tool_call> <think> {\"\\ \u00e9 \ud83d\ude00 ü 😀"}}</tool_call>.)"),
      R"(#0 f{"s": "</tool_call> <think> {\"\\ \u00e9 \ud83d\ude00 ü 😀"};.)");
  // Models write newlines in strings, JSON does not allow them.
  EXPECT_EQ(parsed("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"a\n\tb\x01\"}}</tool_call>"),
            R"(#0 f{"s": "a\n\tb\u0001"};)");
}

TEST(ToolCalls, InvalidCallsAreContentWithoutMarks) {
  for (const char* text : {
           "<tool_call>",
           "a < b <tool",
           "<tool_call>\n\nNo.\n</tool_call>",
           "<tool_call>{\"name\": \"h\", \"arguments\": {}}</tool_call>",
           "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>",
           "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
           "<tool_call>{\"arguments\": {\"s\": \"<think>\"}}</tool_call>",
           "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
           "<tool_call>{\"name\": \"f\", \"arguments\": \"{\"}</tool_call>",
           "<tool_call>{'name': 'f'}</tool_call>",
           "<tool_call>{}</tool_call>",
           "<tool_call>[]</tool_call>",
           "<tool_call>{\"name\": \"f\"",
           "<tool_call>{\"name\": \"f\", \"arguments\":",
           "Text\n\n<tool_call>\n{\"na",
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"a",
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": tru}}</tool_call>",
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"i\": 01}}</tool_call>",
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": }}\n</tool_call>",
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": 'a'}}\n</tool_call> <b>",
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"\\ud800\"}}</tool_call>",
           "<tool_call>{\"name\": \"f\", \"arguments\": {\"o\": {\"a\": [1</tool_call>",
           "Done.</tool_call>",
       }) {
    EXPECT_EQ(parsed("hermes", text), without(text, {"<tool_call>", "</tool_call>"}));
  }
  EXPECT_EQ(parsed("hermes", "<tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>"), "#0 g{};");
  EXPECT_EQ(parsed("hermes",
                   "<tool_call>{\"name\": \"f\", \"arguments\": {\"i\": x</tool_call>"
                   "<tool_call>{\"name\": \"g\"}</tool_call>"),
            "{\"name\": \"f\", \"arguments\": {\"i\": x#0 g{};");
}

TEST(ToolCalls, MendsOneMissingCloser) {
  const auto arguments = [](ToolFormat format, const std::string& begin, const std::string& end) {
    const std::string text = parsed(format, "A " + begin + end + " B");
    EXPECT_TRUE(text.starts_with("A #0 f") && text.ends_with("; B")) << text;
    return text.size() < 12 ? text : text.substr(6, text.size() - 9);
  };
  const auto hermes = [&](const std::string& json) {
    return arguments("hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": " + json, "\n</tool_call>");
  };
  EXPECT_EQ(hermes("{\"s\": \"a\""), "{\"s\": \"a\"}");  // two braces, but one of the arguments
  EXPECT_EQ(hermes("{\"s\": \"a\"}"), "{\"s\": \"a\"}");
  EXPECT_EQ(hermes("{\"s\": \"a}}"), "{\"s\": \"a\"}");
  EXPECT_EQ(hermes("{\"a\": [1, 2}}"), "{\"a\": [1, 2]}");
  EXPECT_EQ(hermes("{\"a\": [\"b\"}"), "{\"a\": [\"b\"]}");
  EXPECT_EQ(hermes("{\"o\": {\"k\": 1}"), "{\"o\": {\"k\": 1}}");
}

TEST(ToolCalls, BrokenCallsEnd) {
  const auto hermes = [](std::string_view text) { return parsed("hermes", text); };
  // Long calls are sent before they are complete.
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"", text(kMaxHeldCallBytes, 'a');
  EXPECT_EQ(hermes(call + text), "#0 f{\"s\": \"" + text + "!");
  EXPECT_EQ(hermes(call + text + "\", x}}\n</tool_call> B"), "#0 f{\"s\": \"" + text + "\", !x}}\n B");
  // Complete, whatever follows: a missing brace, an extra one, a missing mark, more text.
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"f\", \"arguments\": {}"), "#0 f{};");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"f\", \"arguments\": {}}}</tool_call>"), "#0 f{};");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"f\", \"arguments\": {}}} So."), "#0 f{};} So.");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"f\", \"arguments\": {}}\n"), "#0 f{};");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"f\", \"arguments\": {}} So."), "#0 f{}; So.");
  EXPECT_EQ(hermes("<tool_call>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"h\"}]"),
            "#0 f{};, {\"name\": \"h\"}]");
}

TEST(ToolCalls, NestingIsLimited) {
  const std::string open = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ";
  const auto nested = [&](size_t depth) {
    return open + std::string(depth, '[') + std::string(depth, ']') + "}}</tool_call>";
  };
  EXPECT_TRUE(parsed("hermes", nested(127)).ends_with("]};"));
  EXPECT_EQ(parsed("hermes", nested(128)), open.substr(11) + std::string(128, '[') + std::string(128, ']') + "}}");
}

TEST(ToolCalls, NoFormatGivesOnlyThoughts) {
  const std::string call = "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(parsed("", "<think>\nWhy?\n</think>\n\n" + call), "(Why?)" + call);
  EXPECT_EQ(parsed(options_of("hermes", true), "Why " + call + "?\n</think>\n\n" + call), "(Why " + call + "?)#0 g{};");
}

// The prompt ends in the beginning of the answer: only the rest gives events, except for a call that is unfinished.
TEST(ToolCalls, BegunAnswers) {
  const auto rest = [](ToolFormat format, const char* begun, std::string_view text) {
    ToolCallOptions options = options_of(format);
    options.begun = begun;
    return parsed(options, text);
  };
  const auto hermes = [&](const char* begun, std::string_view text) { return rest("hermes", begun, text); };
  EXPECT_EQ(hermes("I am", " here."), " here.");
  EXPECT_EQ(hermes("I am\n", "\nSo"), "\nSo");
  EXPECT_EQ(hermes("I am\n", "<think>so</think>So"), "(so)So");
  EXPECT_EQ(hermes("<think>\nI am", "\n\nhere.\n</think>\n\nSo"), "(\n\nhere.)So");
  EXPECT_EQ(hermes("<think>\nI am\n", "here"), "(here)");
  EXPECT_EQ(hermes("<think>\n", "\nhere"), "(here)");
  EXPECT_EQ(hermes("<think>a</think>\n\nb", "c<think>d"), "c(d)");
  EXPECT_EQ(hermes("a <thi", "nk>b</think>c"), "(b)c");
  EXPECT_EQ(hermes("a <thi", "rd>"), "rd>");
  EXPECT_EQ(hermes("a <thi", ""), "");
  EXPECT_EQ(hermes("[THINK]a", "</think>b[/THINK]c"), "(</think>b)c");
  EXPECT_EQ(hermes("<tool_call>", " is a mark"), " is a mark");
  EXPECT_EQ(hermes("a <tool_", "call>{\"name\": \"g\"}</tool_call>"), "#0 g{};");
  EXPECT_EQ(hermes("Now.<tool_call>\n{\"name\": \"f\", \"argum", "ents\": {}}\n</tool_call>."), "#0 f{};.");
  EXPECT_EQ(hermes("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\"", ": \"a\"}}\n</tool_call>"),
            "#0 f{\"s\": \"a\"};");
  EXPECT_EQ(hermes("<tool_call>{\"name\": \"g\"}</tool_call>", "<tool_call>{\"name\": \"f\"}</tool_call>"), "#0 f{};");
  EXPECT_EQ(rest("llama", "{", "\"a\": 1}"), "\"a\": 1}");
  EXPECT_EQ(rest("llama", "{\"name\": \"f\", ", "\"parameters\": {}}"), "#0 f{};");
  EXPECT_EQ(rest("harmony", "<|channel|>final<|message|>I am", " here.<|return|>"), " here.");
  EXPECT_EQ(
      rest("harmony", "<|channel|>analysis<|message|>I", " am<|end|><|start|>assistant<|channel|>final<|message|>So"),
      "( am)So");
  EXPECT_EQ(rest("", "<think>", "\nhm</think>a"), "(hm)a");
}

TEST(ToolCalls, NoToolListAllowsAnyName) {
  const std::string call = "<tool_call>{\"name\": \"any\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(parsed({.format = "hermes"}, call), "#0 any{};");
  EXPECT_EQ(parsed({.format = "hermes", .tools = OrderedJson::array()}, call),
            without(call, {"<tool_call>", "</tool_call>"}));
  EXPECT_EQ(
      parsed({.format = "qwen_xml"}, "<tool_call><function=any><parameter=k>1</parameter></function></tool_call>"),
      "#0 any{\"k\": \"1\"};");
}

// The events of the last chunk.
std::string last_events(ToolFormat format, std::initializer_list<std::string_view> pieces) {
  ToolCallParser parser(options_of(format));
  std::string text;
  for (const std::string_view piece : pieces) text = shown(parser.put(piece));
  return text;
}

TEST(ToolCalls, EmitsEventsEarly) {
  EXPECT_EQ(last_events("hermes", {"a < b <tool"}), "a < b ");
  EXPECT_EQ(last_events("hermes", {"<tool", "s>"}), "<tools>");
  const std::string text(kMaxHeldCallBytes, 'a');
  const auto long_call = [&](ToolFormat format, const std::string& begin, const std::string& more) {
    EXPECT_EQ(last_events(format, {begin}), "");  // short so far, so it may become content
    EXPECT_EQ(last_events(format, {begin, text}).substr(0, 15), "#0 f{\"s\": \"aaaa");
    return last_events(format, {begin, text, more});
  };
  const std::string hermes = "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"";
  EXPECT_EQ(long_call("hermes", hermes, "cd\""), "cd\"");
  EXPECT_EQ(long_call("hermes", hermes, "\"}"), "\"};");
  EXPECT_EQ(long_call("qwen_xml", "<tool_call>\n<function=f>\n<parameter=s>\n", "b\nc</par"), "b\\nc");
  EXPECT_EQ(long_call("function_gemma", "<start_function_call>call:f{s:<escape>", "b<esc"), "b");
  EXPECT_EQ(long_call("mistral_args", "[TOOL_CALLS]f[ARGS]{\"s\": \"", "b"), "b");
  EXPECT_EQ(long_call("llama", "{\"name\": \"f\", \"parameters\": {\"s\": \"", "b"), "b");
  EXPECT_EQ(last_events("hermes", {hermes, "a\"", "}"}), "#0 f{\"s\": \"a\"};");
  EXPECT_EQ(last_events("qwen_xml", {"<function=f><parameter=i>", "\n12", "\n</parameter>\n</"}), "");
  EXPECT_EQ(last_events("qwen_xml", {"<function=f><parameter=i>", "\n12", "\n</parameter>\n</function>"}),
            "#0 f{\"i\": 12};");
  EXPECT_EQ(last_events("llama", {"{\"answer\": 4"}), "{\"answer\": 4");
  EXPECT_EQ(last_events("harmony", {"<|channel|>analysis<|message|>a <|e"}), "(a )");
}

TEST(ToolCalls, TruncatedTextsLoseNothing) {
  const std::pair<ToolFormat, std::string> texts[] = {
      {"hermes", "A\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"a\"}}\n</tool_call>"},
      {"qwen_xml", "A\n<tool_call>\n<function=f>\n<parameter=i>\n1\n</parameter>\n</function>\n</tool_call>"},
      {"llama", " {\"name\": \"f\", \"parameters\": {\"s\": \"a\"}}; "},
      {"mistral", "A[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"s\": \"a\"}}]"},
      {"mistral_args", "A[TOOL_CALLS]f[CALL_ID]b[ARGS]{\"s\": \"a\"}"},
      {"function_gemma", "A<start_function_call>call:f{s:<escape>a<escape>}<end_function_call>"},
      {"phi4_mini", "A<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"s\": \"a\"}}]<|/tool_call|>"},
      {"harmony", "<|channel|>commentary to=functions.f<|message|>{\"s\": \"a\"}<|call|>"},
  };
  // Each prefix is a complete call, or content without marks: never half a call.
  for (const auto& [format, text] : texts) {
    bool was_call = false;
    for (size_t bytes = 0; bytes <= text.size(); ++bytes) {
      const std::string shown_text = parsed(options_of(format), text.substr(0, bytes));
      const bool is_call = shown_text.find("#0 f") != std::string::npos;
      EXPECT_EQ(is_call, shown_text.find("};") != std::string::npos) << shown_text;
      EXPECT_EQ(shown_text.find('!'), std::string::npos) << shown_text;
      EXPECT_GE(is_call, was_call) << shown_text;  // a call stays a call
      if (!is_call) {
        EXPECT_EQ(shown_text, without(text.substr(0, bytes),
                                      {"<tool_call>", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "<start_function_call>",
                                       "<escape>", "<|tool_call|>", "<|channel|>", "<|message|>"}));
      }
      was_call = is_call;
    }
    EXPECT_TRUE(was_call) << text;
  }
}

TEST(ToolCalls, HeldTextIsBounded) {
  const std::string open = "<tool_call>{\"arguments\": {\"s\": \"", close = "\"}, \"name\": \"f\"}</tool_call>";
  const auto text = [&](size_t bytes) { return open + std::string(bytes - open.size(), 'a') + close; };
  const ToolCallOptions hermes = options_of("hermes");
  const std::string longest = text(kMaxHeldBytes + 11 - close.size()), longer = text(kMaxHeldBytes + 1);
  EXPECT_TRUE(parsed(hermes, longest, 1, 1000).starts_with("#0 f{\"s\": \"aa"));
  const std::string content = without(longer, {"<tool_call>", "</tool_call>"});
  EXPECT_EQ(parsed(hermes, longer, 1, 1000), content);
  EXPECT_EQ(parsed(hermes, longer, longer.size(), 1), content);
  // One event: the limit splits a character.
  const std::string wide = open + std::string(kMaxHeldBytes - open.size() - 1, 'a') + "üü";
  ToolCallParser parser(hermes);
  const std::vector<ToolEvent> events = parser.put(wide);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, without(wide, {"<tool_call>"}));

  const auto number = [](size_t digits) {
    return "<function=f><parameter=i>" + std::string(digits, '1') + "</parameter></function>";
  };
  const ToolCallOptions xml = options_of("qwen_xml");
  EXPECT_EQ(parsed(xml, number(300), 1, 1), "#0 f{\"i\": " + std::string(300, '1') + "};");
  EXPECT_TRUE(parsed(xml, number(kMaxHeldBytes + 1), 1, 1000).starts_with("#0 f{\"i\": \"1"));
}

constexpr size_t kBytes = 300000;

// Chunks of one byte exceed the time of a test if the reader is quadratic.
TEST(ToolCalls, LongTextsTakeLinearTime) {
  const auto take = [](ToolFormat format, const std::string& begin, std::string_view word,
                       size_t kept_bytes = kBytes / 2) {
    std::string text = begin;
    while (text.size() < kBytes) text += word;
    const size_t shown_text = parsed(options_of(format), text, 1, 1).size();
    EXPECT_GE(shown_text, kept_bytes) << begin << word;
    EXPECT_LE(shown_text, 2 * kBytes) << begin << word;
  };
  take("hermes", "a", "<tool_call>{", kBytes / 12);
  take("hermes", "<tool_call>", " ");
  take("hermes", "<tool_call>{\"arguments\": \"", "a");
  take("hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}", " ");
  take("qwen_xml", "<function=f><parameter=o>", "</parameter>\n");
  take("qwen_xml", "<function=f><parameter=s>", "</parameter>\n");
  take("function_gemma", "<start_function_call>call:f{s:<escape>", "<escape");
  take("mistral", "", "[TOOL_CALLS]", 0);
  take("harmony", "", "<|start|>", 0);
  take("hermes", "", "<tool_call>{\"name\": \"f\", \"arguments\": {x]]]]</tool_call>",
       kBytes / 3);  // not mended
  take("", "a", "\n");
}

}  // namespace
}  // namespace pinion
