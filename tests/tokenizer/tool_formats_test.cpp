#include "tokenizer/answers/tool_formats.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "configs/families.h"
#include "tests/tokenizer/tool_call_text.h"

namespace pinion {
namespace {

TEST(ToolFormats, QwenXmlTypes) {
  const auto value = [](const std::string& key, const std::string& text) {
    const std::string shown_text = parsed("qwen_xml", "<tool_call>\n<function=f>\n<parameter=" + key + ">\n" + text +
                                                          "\n</parameter>\n</function>\n</tool_call>");
    const std::string before = "#0 f{\"" + key + "\": ", behind = "};";
    EXPECT_TRUE(shown_text.starts_with(before) && shown_text.ends_with(behind)) << shown_text;
    return shown_text.substr(before.size(), shown_text.size() - before.size() - behind.size());
  };
  EXPECT_EQ(value("s", "12"), "\"12\"");
  EXPECT_EQ(value("s", "\na \"b\"\\\n\n"), R"("\na \"b\"\\\n\n")");
  EXPECT_EQ(value("s", ""), "\"\"");
  EXPECT_EQ(value("s", "null"), "\"null\"");
  EXPECT_EQ(value("unknown", "12"), "\"12\"");
  EXPECT_EQ(value("i", "12"), "12");
  EXPECT_EQ(value("i", "twelve"), "\"twelve\"");
  EXPECT_EQ(value("i", "[12]"), "\"[12]\"");
  EXPECT_EQ(value("i", "012"), "\"012\"");
  EXPECT_EQ(value("x", " 1.50 "), "1.50");
  EXPECT_EQ(value("x", std::string("1\0 2", 4)), "\"1\\u0000 2\"");
  EXPECT_EQ(value("x", "1e999"), "\"1e999\"");
  EXPECT_EQ(value("b", "true"), "true");
  EXPECT_EQ(value("b", "False"), "false");
  EXPECT_EQ(value("b", "yes"), "\"yes\"");
  EXPECT_EQ(value("o", "{\"k\": [\n1]}"), "{\"k\": [\n1]}");
  EXPECT_EQ(value("o", "{\"k\": "), "\"{\\\"k\\\": \"");
  EXPECT_EQ(value("a", "[]"), "[]");
  EXPECT_EQ(value("n", "None"), "null");
  EXPECT_EQ(value("n", "nullify"), "\"nullify\"");
  EXPECT_EQ(value("n", "12"), "\"12\"");
  EXPECT_EQ(value("u", "7"), "7");
  EXPECT_EQ(value("u", "null"), "null");
  // Marks inside a value: only one before a tag ends it.
  EXPECT_EQ(value("s", "<b></parameter> </b> </function> <parameter=x>"),
            "\"<b></parameter> </b> </function> <parameter=x>\"");
  EXPECT_EQ(value("i", "1</parameter>2"), "\"1</parameter>2\"");
}

TEST(ToolFormats, QwenXmlSeveralCalls) {
  const auto xml = [](std::string_view text) { return parsed("qwen_xml", text); };
  EXPECT_EQ(xml("</think>\n\nNow.\n\n<tool_call>\n<function=g>\n</function>\n</tool_call>\n<tool_call>\n<function=f>\n"
                "<parameter=i>\n3\n</parameter>\n<parameter=s>\nü\n</parameter>\n</function>\n</tool_call>\n\nDone."),
            "</think>\n\nNow.#0 g{};#1 f{\"i\": 3, \"s\": \"ü\"};Done.");
  EXPECT_EQ(xml("<function=f>\n<parameter=i>3</parameter></function>"), "#0 f{\"i\": 3};");  // no outer mark
  EXPECT_EQ(xml("<tool_call>\n<function=h>\n</function>\n</tool_call>"), "<function=h>\n</function>\n");
  EXPECT_EQ(xml("<tool_call>\n<tool_call>\n<function=g></function></tool_call>"), "#0 g{};");
  for (const std::string call : {"<function=f>\n<parameter=s>\nab\n</para", "<function=f>\n<parameter=o>\n{\"a\"",
                                 "<function=f>\nWell <b>", "<function=f"}) {
    EXPECT_EQ(xml("<tool_call>\n" + call), call);
  }
  const std::string long_text(kMaxHeldCallBytes, 'a');
  EXPECT_EQ(xml("<function=f><parameter=s>" + long_text + "\n</para"), "#0 f{\"s\": \"" + long_text + "\n</para!");
  // One missing tag.
  EXPECT_EQ(xml("<tool_call>\n<function=f>\n<parameter=s>\na\n</function>\n</tool_call> B"), "#0 f{\"s\": \"a\"}; B");
  EXPECT_EQ(xml("<tool_call>\n<function=f>\n<parameter=i>\n1\n</parameter>\n</tool_call> B"), "#0 f{\"i\": 1}; B");
}

TEST(ToolFormats, CdataKeepsText) {
  const auto value = [](const std::string& text) {
    return parsed("minicpm5", "<function name=\"f\"><param name=\"s\">" + text + "</param></function>");
  };
  EXPECT_EQ(value("<![CDATA[\n</param> ]]\n]]>"), "#0 f{\"s\": \"\\n</param> ]]\\n\"};");
  EXPECT_EQ(value("a]]>"), "#0 f{\"s\": \"a]]>\"};");
  EXPECT_EQ(value("\n<![CDATA[a"), "#0 f{\"s\": \"<![CDATA[a\"};");
  EXPECT_EQ(value("<![CDAT"), "#0 f{\"s\": \"<![CDAT\"};");
}

TEST(ToolFormats, LlamaCallsWithoutMarks) {
  const auto llama = [](std::string_view text) { return parsed("llama", text); };
  EXPECT_EQ(llama("{\"name\": \"f\", \"parameters\": {\"s\": \"a\"}}"), "#0 f{\"s\": \"a\"};");
  EXPECT_EQ(
      llama("\n {\"type\": \"function\", \"name\": \"f\", \"parameters\": {}};\n{\"name\": \"g\", \"parameters\": {}}"),
      "#0 f{};#1 g{};");
  EXPECT_EQ(llama("<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}"),
            "#0 f{};#1 g{};");
  EXPECT_EQ(llama("So: <|python_tag|>{\"name\": \"f\", \"parameters\": {}}"), "So: #0 f{};");
  EXPECT_EQ(llama("<think>\n{}\n</think>\n\n{\"name\": \"f\", \"parameters\": {}}\n"), "({})#0 f{};");
  for (const char* text : {
           "So: {\"name\": \"f\", \"parameters\": {}}",
           "{\"name\": \"f\"}",
           "{\"name\": \"Ann\", \"parameters\": {}}",
           "{\"answer\": 42}",
           "{\"name\": \"f\", \"parameters\": ",
           "<|python_tag|>search(query=\"a\")",
           "<th{\"name\": \"f\", \"parameters\": {}}",
           " \n ",
           "; {",
       }) {
    EXPECT_EQ(llama(text), without(text, {"<|python_tag|>"}));
  }
  EXPECT_EQ(llama("{\"name\": \"f\", \"parameters\": {}}; And?"), "#0 f{};; And?");
  EXPECT_EQ(llama("{\"name\": \"f\", \"parameters\": {}};; {\"name\""), "#0 f{};;; {\"name\"");
}

TEST(ToolFormats, MistralListsAndNames) {
  for (const ToolFormat format : std::initializer_list<ToolFormat>{"mistral", "mistral_args"}) {
    const auto mistral = [&](std::string_view text) { return parsed(format, text); };
    EXPECT_EQ(mistral("Now.[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"s\": \"]\"}, \"id\": \"late\"}, "
                      "{\"id\": \"abcdefghi\", \"name\": \"g\", \"arguments\": {}}]"),
              "Now.#0 f{\"s\": \"]\"};#1 g:abcdefghi{};");
    EXPECT_EQ(mistral("[TOOL_CALLS] [{\"name\": \"g\"}]"), "#0 g{};");
    EXPECT_EQ(mistral("[TOOL_CALLS]f[ARGS]{\"i\": 1}[TOOL_CALLS]g[CALL_ID]abcdefghi[ARGS]{}"),
              "#0 f{\"i\": 1};#1 g:abcdefghi{};");
    EXPECT_EQ(mistral("[TOOL_CALLS]f{\"i\": 1}\n"), "#0 f{\"i\": 1};");
    EXPECT_EQ(mistral("[THINK]Is a[0] > [TOOL_CALLS]?[/THINK]So. [TOOL_CALLS]f[ARGS]{}"),
              "(Is a[0] > [TOOL_CALLS]?)So. #0 f{};");
    EXPECT_EQ(mistral("[TOOL_CALLS]f{\"i\": 1"), "f{\"i\": 1");
    for (const char* text : {
             "[TOOL_CALLS]",
             "[TOOL",
             "a[0] = [TOOL_CALL]",
             "[TOOL_CALLS]h[ARGS]{}",
             "[TOOL_CALLS]f[ARGS]",
             "[TOOL_CALLS]f[ARGS]\"a\"",
             "[TOOL_CALLS]f[WHAT]{}",
             "[TOOL_CALLS]f[CALL_ID]a[CALL_ID]b[ARGS]{}",
             "[TOOL_CALLS][{\"name\": \"h\", \"arguments\": {}}]",
         }) {
      const bool has_args = format == "mistral_args";
      const std::string content = without(text, {"[TOOL_CALLS]"});
      EXPECT_EQ(mistral(text), has_args ? without(content, {"[ARGS]", "[CALL_ID]"}) : content);
    }
  }
}

TEST(ToolFormats, GemmaQuotes) {
  const auto gemma = [](std::string_view text) { return parsed("function_gemma", text); };
  EXPECT_EQ(gemma("<start_function_call>call:f{s:<escape>a \"b\", {c}\n<escape>,i:3}<end_function_call>"),
            R"(#0 f{"s": "a \"b\", {c}\n", "i": 3};)");
  EXPECT_EQ(
      gemma(
          "Now.\n<start_function_call>call:g{}<end_function_call><start_function_call>call:f{o:{k:[1,<escape>ü<escape>,"
          "true,null,{}],<escape>a b<escape>:[]},x:-1.5}<end_function_call>\nDone."),
      R"(Now.#0 g{};#1 f{"o": {"k": [1, "ü", true, null, {}], "a b": []}, "x": -1.5};Done.)");
  EXPECT_EQ(gemma("<start_function_call>call:f{s:Paris and more , n:None}"),
            R"(#0 f{"s": "Paris and more", "n": null};)");
  for (const char* text :
       {"<start_function_call>", "<start_function_call>f{}", "<start_function_call>call:h{}<end_function_call>",
        "<start_function_call>call:f", "<start_function_call>call:f{s:<escape>a<esc",
        "<start_function_call>call:f{i:12", "<start_function_call>call:f{i:1,}", "<start_function_call>call:f{i:}",
        "<start_function_call>call:f{a:[1}]}"}) {
    EXPECT_EQ(gemma(text), without(text, {"<start_function_call>", "<end_function_call>", "<escape>"}));
  }
  EXPECT_EQ(gemma("<start_function_call>call:f{a:[1}<end_function_call>B"), "#0 f{\"a\": [1]};B");
  EXPECT_EQ(gemma("<start_function_call>call:f{s:<escape>a}<end_function_call>B"), "#0 f{\"s\": \"a\"};B");
}

TEST(ToolFormats, HarmonyChannels) {
  const auto harmony = [](std::string_view text) { return parsed("harmony", text); };
  EXPECT_EQ(
      harmony(
          "<|channel|>analysis<|message|>Why?<|end|><|start|>assistant<|channel|>final<|message|>So <|b|>.<|return|>"),
      "(Why?)So <|b|>.");
  const std::string call =
      "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"s\": \"<|call|>\"}<|call|>";
  EXPECT_EQ(harmony("<|channel|>analysis<|message|>Why?<|end|><|start|>assistant" + call),
            "(Why?)#0 f{\"s\": \"<|call|>\"};");
  EXPECT_EQ(harmony("<|channel|>commentary<|message|>First.<|end|><|start|>assistant" + call +
                    "<|start|>assistant to=functions.g"
                    "<|channel|>commentary json<|message|><|call|>"),
            "First.#0 f{\"s\": \"<|call|>\"};#1 g{};");
  EXPECT_EQ(harmony(" to=functions.g<|channel|>analysis<|message|>{}"), "#0 g{};");
  EXPECT_EQ(harmony("Hello <think>.<|return|>"), "Hello <think>.");
  EXPECT_EQ(harmony("<|channel|>analysis<|message|>a<|chan"), "(a<|chan)");
  EXPECT_EQ(harmony("<|channel|>analysis<|message|>a < b <"), "(a < b <)");
  EXPECT_EQ(harmony("<|channel|>commentary to=functions.f<|message|>{\"s\": \"a\"<|call|>"), "#0 f{\"s\": \"a\"};");
  EXPECT_EQ(harmony("<|channel|>commentary to=functions.f<|message|>{} more<|end|>"), "#0 f{}; more");
  EXPECT_EQ(harmony("<|channel|>analysis to=python<|message|>1+1<|call|>"), "(1+1)");
  for (const char* text :
       {"<|channel|>commentary to=functions.h<|message|>{}", "<|channel|>commentary to=functions.f<|message|>[",
        "<|channel|>commentary to=functions.f<|message|>", "<|channel|>fin",
        "<|channel|>commentary to=functions.f<|message|>{\"s\": tru}<|call|>",
        "<|channel|>commentary to=functions.f<|message|>{\"s\": \"a"}) {
    EXPECT_EQ(harmony(text), without(text, {"<|channel|>", "<|message|>", "<|call|>"}));
  }
  const std::string endless = "<|channel|>" + std::string(3000, 'a');
  EXPECT_EQ(harmony(endless), without(endless, {"<|channel|>"}));
}

TEST(ToolFormats, GraniteAndPhiCallsAreLists) {
  EXPECT_EQ(parsed("granite",
                   "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"i\": 1}}, {\"arguments\": {}, \"name\": \"g\"}]"),
            "#0 f{\"i\": 1};#1 g{};");
  EXPECT_EQ(parsed("granite", "<tool_call>[{\"name\": \"g\", \"arguments\": {}}]\n\nDone."), "#0 g{};Done.");
  EXPECT_EQ(parsed("phi4_mini", "Now.<|tool_call|>[{\"name\": \"g\", \"arguments\": {}}]<|/tool_call|> Done."),
            "Now.#0 g{}; Done.");
  EXPECT_EQ(parsed("phi4_mini", "<|tool_call|>{\"name\": \"g\", \"arguments\": {}}<|/tool_call|>"), "#0 g{};");
}

TEST(ToolFormats, PromptsForceCalls) {
  const auto forced = [](ToolFormat format, const char* name, std::string_view text, bool inside_thought = false) {
    ToolCallOptions options = options_of(format, inside_thought);
    options.forced_prefix = forced_call(format, name, inside_thought ? "</think>" : "");
    EXPECT_FALSE(options.forced_prefix.ends_with(' ')) << options.forced_prefix;
    return parsed(options, text);
  };
  for (const ToolFormat format :
       std::initializer_list<ToolFormat>{"hermes", "llama", "mistral", "granite", "phi4_mini"}) {
    const std::string key = format == "llama" ? "parameters" : "arguments";
    EXPECT_EQ(forced(format, "f", " {\"i\": 1}}"), "#0 f{\"i\": 1};");
    EXPECT_EQ(forced(format, "", "g\", \"" + key + "\": {}}"), "#0 g{};");
  }
  EXPECT_EQ(forced("hermes", "f", "{}}\n</tool_call>", true), "#0 f{};");
  EXPECT_EQ(forced("hermes", "f", "Never."), "{\"name\": \"f\", \"arguments\":Never.");
  EXPECT_EQ(forced("qwen_xml", "f", "<parameter=i>\n1\n</parameter>\n</function>"), "#0 f{\"i\": 1};");
  EXPECT_EQ(forced("qwen_xml", "", "g>\n</function>\n</tool_call>"), "#0 g{};");
  EXPECT_EQ(forced("mistral_args", "f", "{\"i\": 1}"), "#0 f{\"i\": 1};");
  EXPECT_EQ(forced("mistral_args", "", "g[ARGS]{}"), "#0 g{};");
  EXPECT_EQ(forced("function_gemma", "f", "i:1}<end_function_call>"), "#0 f{\"i\": 1};");
  EXPECT_EQ(forced("function_gemma", "", "g{}<end_function_call>"), "#0 g{};");
  EXPECT_EQ(forced("harmony", "f", "{\"i\": 1}<|call|>"), "#0 f{\"i\": 1};");
  EXPECT_EQ(forced("harmony", "", "g <|constrain|>json<|message|>{}<|call|>"), "#0 g{};");
}

std::string file_text(const std::string& name) {
  std::ifstream file(PINION_TEST_DATA "/templates/" + name);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ToolFormats, DetectsFormatsOfTemplates) {
  EXPECT_EQ(detect_tool_format(file_text("im_tools.jinja")), "hermes");
  EXPECT_EQ(detect_tool_format(file_text("im_macro.jinja")), "qwen_xml");
  EXPECT_EQ(detect_tool_format(file_text("headers.jinja")), "llama");
  EXPECT_EQ(detect_tool_format(file_text("chatml.jinja")), "");
  EXPECT_EQ(detect_tool_format(file_text("turns.jinja")), "");
  EXPECT_EQ(detect_tool_format(""), "");
  // The marks of published templates.
  EXPECT_EQ(detect_tool_format("'<tool_call>\\n<function=' + name + '>\\n<parameter='"), "qwen_xml");
  EXPECT_EQ(detect_tool_format("{{ '[TOOL_CALLS][' }}"), "mistral");
  EXPECT_EQ(detect_tool_format("{{ '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}"), "mistral_args");
  EXPECT_EQ(detect_tool_format("{{ '<start_function_call>call:' + name }}"), "function_gemma");
  EXPECT_EQ(detect_tool_format("'<tool_call>' + call.name + '<arg_key>'"), "glm");
  EXPECT_EQ(detect_tool_format("']<]minimax[>[<tool_call>' + arguments"), "");  // not supported
  EXPECT_EQ(detect_tool_format("within <tool_call></tool_call>: {'arguments': <args-dict>}"), "hermes");
  EXPECT_EQ(detect_tool_format("<|start|>assistant<|channel|>analysis<|message|>"), "harmony");
  EXPECT_EQ(detect_tool_format("respond only with <|tool_call|> followed by a JSON list"), "granite");
  EXPECT_EQ(detect_tool_format("'<|tool|>' + message['tools'] + '<|/tool|>'"), "phi4_mini");
}

TEST(ToolFormats, MarksAreSpecialTokens) {
  EXPECT_TRUE(is_tool_mark("hermes", "<tool_call>"));
  EXPECT_TRUE(is_tool_mark("hermes", "</tool_call>"));
  EXPECT_FALSE(is_tool_mark("hermes", "<|im_end|>"));
  EXPECT_FALSE(is_tool_mark("hermes", ""));
  EXPECT_FALSE(is_tool_mark("", "<tool_call>"));
  EXPECT_TRUE(is_tool_mark("function_gemma", "<escape>"));
  EXPECT_TRUE(is_tool_mark("mistral_args", "[ARGS]"));
  EXPECT_TRUE(is_tool_mark("llama", "<|python_tag|>"));
  for (const char* token :
       {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"}) {
    EXPECT_TRUE(is_tool_mark("harmony", token)) << token;
  }
}

TEST(ToolFormats, RowsHaveKnownFields) {
  constexpr std::string_view kFields[] = {"name", "templates", "body", "open",        "close", "other_marks",
                                          "bare", "syntax",    "tags", "key_is_name", "force"};
  for (const OrderedJson& row : OrderedJson::parse(tool_formats_text())) {
    for (const auto& [key, value] : row.items()) {
      EXPECT_NE(std::ranges::find(kFields, key), std::end(kFields)) << row["name"] << " " << key;
    }
    EXPECT_EQ(tool_format_row(row["name"].get<std::string>()).body == ToolBody::kNone, row["name"] == "");
  }
}

}  // namespace
}  // namespace pinion
