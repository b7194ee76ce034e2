// The forms of tool calls of model families, one row each: detection, two calls, content, thoughts, forced calls, and
// calls that lack a closing character.
#include <gtest/gtest.h>

#include <string>

#include "tests/tokenizer/tool_call_text.h"
#include "tokenizer/answers/tool_formats.h"

namespace pinion {
namespace {

struct Form {
  ToolFormat format;
  const char* in_template;  // text of a chat template
  const char* first;        // a call of f with {"s": "a\"b", "i": 1, "o": {"k": [1, true]}}
  const char* second;       // a call of g
  const char* forced;       // rest of a call of f with {"i": 1} whose beginning was forced
  const char* broken = "";  // a call of f with {"i": 1} that lacks a closing character
  const char* ids[2] = {"", ""};
  bool is_bare = false;  // no content before the first call
};

#define CALL_OF_F R"({"name": "f", "arguments": {"s": "a\"b", "i": 1, "o": {"k": [1, true]}}})"
#define ARGUMENTS R"({"s": "a\"b", "i": 1, "o": {"k": [1, true]}})"

const Form kForms[] = {
    {"hermes", "<tool_call>{\"name\": n, \"arguments\": a}", "<tool_call>\n" CALL_OF_F "\n</tool_call>",
     "\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>", "{\"i\": 1}}\n</tool_call>",
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"i\": 1\n</tool_call>"},
    {"gemma4", "'<|tool_call>call:' + name", "<|tool_call>call:f{s:<|\"|>a\"b<|\"|>,i:1,o:{k:[1,true]}}<tool_call|>",
     "<|tool_call>call:g{}<tool_call|>", "i:1}<tool_call|>", "<|tool_call>call:f{i:1<tool_call|>"},
    {"lfm2", "List of tools: <|tool_list_start|>[", "<|tool_call_start|>[f(s='a\"b', i=1, o={\"k\": [1, True]}), ",
     "g()]<|tool_call_end|>", "i=1)]<|tool_call_end|>", "<|tool_call_start|>[f(i=1]<|tool_call_end|>"},
    {"olmo3", "<function_calls></function_calls>", "<function_calls>\nf(s=\"a\\\"b\", i=1, o={'k': [1, true]})\n",
     "g()\n</function_calls>", "i=1)\n</function_calls>", "<function_calls>\nf(i=1\n</function_calls>"},
    {"minicpm3", "<|tool_call_start|>\\n```python\\nfunc1(params_name=params_value)",
     "<|tool_call_start|>\n```python\nf(s=\"a\\\"b\",i=1,o={\"k\": [1, true]})\n", "g()\n```\n<|tool_call_end|>",
     "i=1)\n```\n<|tool_call_end|>", "<|tool_call_start|>\n```python\nf(i=1\n```\n<|tool_call_end|>"},
    {"python_list",
     "[func_name1(params_name1=params_value1",
     "[f(s='a\"b', i=1, o={'k': [1, True]}), ",
     "g()]",
     "i=1)]",
     "",
     {"", ""},
     true},
    {"tool_calls", "<tool_calls>[{\"name\": ", "<tool_calls>[" CALL_OF_F,
     ", {\"name\": \"g\", \"arguments\": {}}]</tool_calls>", "{\"i\": 1}}]</tool_calls>",
     "<tool_calls>[{\"name\": \"f\", \"arguments\": {\"i\": 1}]</tool_calls>"},
    {"tool_calls", "<tool_calls>\n", "<tool_calls>\n" CALL_OF_F "\n",
     "{\"name\": \"g\", \"arguments\": {}}\n</tool_calls>", "{\"i\": 1}}]</tool_calls>"},
    {"nemotron_v2", "<TOOLCALL>", "<TOOLCALL>[" CALL_OF_F ", ", "{\"name\": \"g\", \"arguments\": {}}]</TOOLCALL>",
     "{\"i\": 1}}]</TOOLCALL>", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"i\": 1}}</TOOLCALL>"},
    {"apertus", "<|tools_prefix|>[", "<|tools_prefix|>[{\"f\": " ARGUMENTS "}, ", "{\"g\": {}}]<|tools_suffix|>",
     "{\"i\": 1}}]<|tools_suffix|>", "<|tools_prefix|>[{\"f\": {\"i\": 1]<|tools_suffix|>"},
    {"cohere",
     "<|START_ACTION|>[",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": " ARGUMENTS "},\n",
     "    {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": {}}\n]<|END_ACTION|>",
     "{\"i\": 1}}\n]<|END_ACTION|>",
     "<|START_ACTION|>[{\"tool_name\": \"f\", \"parameters\": {\"i\": 1}<|END_ACTION|>",
     {":0", ":1"}},
    {"command_r", "Write 'Action:' followed by ```json",
     "Action:\n```json\n[\n    {\n        \"tool_name\": \"f\",\n        \"parameters\": " ARGUMENTS "},\n",
     "    {\n        \"tool_name\": \"g\",\n        \"parameters\": {}\n    }\n]```", "{\"i\": 1}}\n]```"},
    {"gigachat3", "'function call' + '<|role_sep|>'",
     "<|message_sep|>\n\nfunction call<|role_sep|>\n" CALL_OF_F "<|message_sep|>",
     "\n\nfunction call<|role_sep|>\n{\"name\": \"g\", \"arguments\": {}}", "{\"i\": 1}}<|message_sep|>"},
    {"gigachat31", "'<|function_call|>' + call", "<|function_call|>" CALL_OF_F "<|message_sep|>",
     "<|function_call|>{\"name\": \"g\", \"arguments\": {}}<|message_sep|>", "{\"i\": 1}}<|message_sep|>"},
    {"granite_20b", "'<function_call> '", "<function_call> " CALL_OF_F "\n",
     "<function_call> {\"name\": \"g\", \"arguments\": {}}\n", "{\"i\": 1}}\n"},
    {"intern_lm", "<|action_start|><|plugin|>", "<|action_start|><|plugin|>\n" CALL_OF_F "<|action_end|>",
     "<|action_start|><|plugin|>\n{\"name\": \"g\", \"arguments\": {}}<|action_end|>", "{\"i\": 1}}<|action_end|>"},
    {"functools", "prefix calls with functools[{", " functools[" CALL_OF_F ", ",
     "{\"name\": \"g\", \"arguments\": {}}]", "{\"i\": 1}}]"},
    {"xlam",
     "calls in a single JSON array: [{\"name\": \"x\", \"arguments\": ",
     "[" CALL_OF_F ", ",
     "{\"name\": \"g\", \"arguments\": {}}]",
     "{\"i\": 1}}]",
     "",
     {"", ""},
     true},
    {"kimi_k2",
     "<|tool_call_argument_begin|>",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>" ARGUMENTS
     "<|tool_call_end|>",
     "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "{\"i\": 1}<|tool_call_end|><|tool_calls_section_end|>",
     "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"i\": 1<|tool_call_end|>",
     {":functions.f:0", ":functions.g:1"}},
    {"deepseek_r1", "'<｜tool▁sep｜>' + name + '\n```json'",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n" ARGUMENTS
     "\n```<｜tool▁call▁end｜>\n",
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "{\"i\": 1}\n```<｜tool▁call▁end｜>",
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"i\": 1\n```<｜tool▁call▁end｜>"},
    {"deepseek_v31", "'<｜tool▁sep｜>' + name",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>" ARGUMENTS "<｜tool▁call▁end｜>",
     "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "{\"i\": 1}<｜tool▁call▁end｜>",
     "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"i\": 1<｜tool▁call▁end｜>"},
    {"solar",
     "<|tool_call:args|>",
     "<|tool_calls|><|tool_call:begin|>c1<|tool_call:name|>f<|tool_call:args|>" ARGUMENTS "<|tool_call:end|>",
     "<|tool_call:begin|>c2<|tool_call:name|>g<|tool_call:args|>{}<|tool_call:end|><|calls|>",
     "{\"i\": 1}<|tool_call:end|>",
     "<|tool_call:begin|>c1<|tool_call:name|>f<|tool_call:args|>{\"i\": 1<|tool_call:end|>",
     {":c1", ":c2"}},
    {"miro_thinker", "<use_mcp_tool>",
     "<use_mcp_tool>\n<server_name>x</server_name>\n<tool_name>f</tool_name>\n<arguments>\n" ARGUMENTS
     "\n</arguments>\n</use_mcp_tool>",
     "<use_mcp_tool>\n<server_name>x</server_name>\n<tool_name>g</tool_name>\n<arguments>\n{}\n</arguments>\n</"
     "use_mcp_tool>",
     "{\"i\": 1}\n</arguments>\n</use_mcp_tool>"},
    {"functionary31", "'<function=' + name + '</function>'", "<function=f>" ARGUMENTS "</function>",
     "<function=g>{}</function>", "{\"i\": 1}</function>", "<function=f>{\"i\": 1</function>"},
    {"functionary32", "'>>>all\\n' + content", ">>>f\n" ARGUMENTS, ">>>g\n{}", "{\"i\": 1}"},
    {"seed", "<seed:tool_call>",
     "<seed:tool_call>\n<function=f>\n<parameter=s>a\"b</parameter>\n<parameter=i>1</parameter>\n<parameter=o>{\"k\": "
     "[1, true]}"
     "</parameter>\n</function>\n</seed:tool_call>",
     "<seed:tool_call>\n<function=g>\n</function>\n</seed:tool_call>",
     "<parameter=i>1</parameter>\n</function>\n</seed:tool_call>",
     "<seed:tool_call>\n<function=f>\n<parameter=i>1</parameter>\n</seed:tool_call>"},
    {"glm", "<arg_key>",
     "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a\"b</arg_value>\n<arg_key>i</arg_key>\n<arg_value>1</arg_value>\n"
     "<arg_key>o</arg_key>\n<arg_value>{\"k\": [1, true]}</arg_value>\n</tool_call>",
     "\n<tool_call>g</tool_call>", "<arg_key>i</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
     "<tool_call>f<arg_key>i</arg_key><arg_value>1</tool_call>"},
    {"hunyuan3", "'<arg_key{}>' ':opensource'",
     "<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>s</"
     "arg_key:opensource>\n"
     "<arg_value:opensource>a\"b</arg_value:opensource>\n<arg_key:opensource>i</"
     "arg_key:opensource>\n<arg_value:opensource>1"
     "</arg_value:opensource>\n<arg_key:opensource>o</arg_key:opensource>\n<arg_value:opensource>{\"k\": [1, true]}"
     "</arg_value:opensource>\n</tool_call:opensource>\n",
     "<tool_call:opensource>g<tool_sep:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
     "<arg_key:opensource>i</arg_key:opensource>\n<arg_value:opensource>1</arg_value:opensource>\n</"
     "tool_call:opensource>"},
    {"minimax_m2", "<minimax:tool_call>",
     "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">a\"b</parameter>\n<parameter "
     "name=\"i\">1</parameter>\n"
     "<parameter name=\"o\">{\"k\": [1, true]}</parameter>\n</invoke>\n",
     "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
     "<parameter name=\"i\">1</parameter>\n</invoke>\n</minimax:tool_call>",
     "<invoke name=\"f\">\n<parameter name=\"i\">1</parameter>\n</minimax:tool_call>"},
    {"deepseek_v4", "'｜DSML｜'",
     "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
     "string=\"true\">a\"b</｜DSML｜parameter>\n"
     "<｜DSML｜parameter name=\"i\" string=\"false\">1</｜DSML｜parameter>\n"
     "<｜DSML｜parameter name=\"o\" string=\"false\">{\"k\": [1, true]}</｜DSML｜parameter>\n</｜DSML｜invoke>\n",
     "<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     "<｜DSML｜parameter name=\"i\" string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     "<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"i\" string=\"false\">1\n</｜DSML｜invoke>"},
    {"minicpm5", "<function name=\"x\"><param name=\"k\">",
     "<function name=\"f\"><param name=\"s\"><![CDATA[a\"b]]></param><param name=\"i\">1</param>"
     "<param name=\"o\">{\"k\": [1, true]}</param></function>",
     "\n<function name=\"g\"></function>", "<param name=\"i\">1</param></function>",
     "<function name=\"f\"><param name=\"i\">1</function>"},
    {"kimi_k3", "'<|open|>' + tag 'argument'",
     "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"s\" "
     "type=\"string\"<|sep|>a\"b"
     "<|close|>argument<|sep|><|open|>argument key=\"i\" type=\"number\"<|sep|>1<|close|>argument<|sep|>"
     "<|open|>argument key=\"o\" type=\"object\"<|sep|>{\"k\": [1, true]}<|close|>argument<|sep|><|close|>call<|sep|>",
     "<|open|>call tool=\"g\" index=\"2\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
     "<|open|>argument key=\"i\" "
     "type=\"number\"<|sep|>1<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"},
};

class CallForms : public testing::TestWithParam<Form> {};

TEST_P(CallForms, AreReadAtEveryCut) {
  const Form& form = GetParam();
  const std::string content = form.is_bare ? "" : "Now.";
  const std::string calls = "#0 f" + std::string(form.ids[0]) + ARGUMENTS ";",
                    both = calls + "#1 g" + form.ids[1] + "{};";
  EXPECT_EQ(parsed(form.format, std::string(form.first) + form.second), form.first[0] == ' ' ? " " + both : both);
  const std::string shown_text =
      parsed(form.format, "<think>\nWhy?\n</think>\n\n" + content + form.first + form.second);
  EXPECT_EQ(shown_text, "(Why?)" + content + (form.first[0] == ' ' ? " " : "") + both);
}

TEST_P(CallForms, AreDetected) { EXPECT_EQ(detect_tool_format(GetParam().in_template), GetParam().format); }

TEST_P(CallForms, AreForced) {
  const Form& form = GetParam();
  ToolCallOptions options = options_of(form.format);
  options.forced_prefix = forced_call(form.format, "f", "");
  if (form.format == "functionary32") options.forced_prefix.insert(0, ">>>");  // the end of its prompts
  const std::string shown_text = parsed(options, form.forced);
  EXPECT_TRUE(shown_text.starts_with("#0 f") && shown_text.ends_with("{\"i\": 1};")) << shown_text;
  EXPECT_FALSE(options.forced_prefix.ends_with(' '));
}

// A prefix of the text has whole calls only, and no marks in its content.
TEST_P(CallForms, AreNeverCutInHalf) {
  const Form& form = GetParam();
  const ToolFormatRow& row = tool_format_row(form.format);
  const std::string text = std::string(form.first) + form.second;
  for (size_t bytes = 0; bytes < text.size(); ++bytes) {
    const std::string shown_text =
        without(parsed(options_of(form.format), text.substr(0, bytes), bytes, bytes), {"<!"});  // of <![CDATA[
    EXPECT_EQ(shown_text.find('!'), std::string::npos) << shown_text;
    for (const std::string_view mark : {row.open[0], row.close[0], row.other_marks[0]}) {
      const bool is_delimiter = mark.starts_with('<') && mark.ends_with('>');
      EXPECT_FALSE(is_delimiter && shown_text.find(mark) != std::string::npos) << shown_text;
      const size_t call_end = std::min(shown_text.rfind("};"), shown_text.size());
      const std::string behind = call_end == shown_text.size() ? "" : shown_text.substr(call_end + 2);
      EXPECT_FALSE(is_delimiter && behind.size() > 1 && mark.starts_with(behind)) << shown_text;  // a cut mark
    }
  }
}

TEST_P(CallForms, AreMended) {
  const Form& form = GetParam();
  if (form.broken[0] == '\0') return;
  const std::string shown_text = parsed(form.format, "Now." + std::string(form.broken) + "Done.");
  EXPECT_TRUE(shown_text.starts_with("Now.#0 f") && shown_text.ends_with("{\"i\": 1};Done.")) << shown_text;
}

INSTANTIATE_TEST_SUITE_P(All, CallForms, testing::ValuesIn(kForms),
                         [](const auto& form) { return "Row" + std::to_string(form.index); });

}  // namespace
}  // namespace pinion
