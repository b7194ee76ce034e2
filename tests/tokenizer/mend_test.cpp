// Conversations that templates refuse or cut, with extracts of published templates (tests/data/templates/refusing):
// alternating: Mistral's; ordered: Qwen 3.5, Qwen3-Coder, gpt-oss; silent: SmolLM3, DeepSeek R1 and others without
// tools; no_system: Gemma 2; typed_tools: Hermes 2, Command R+, functionary.
#include "tokenizer/templates/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "loader/files/json.h"
#include "tests/temp_folder.h"

namespace pinion {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The text and what was changed, or the error.
std::string rendered(const std::string& name, const char* messages, const char* tools = "null", bool is_strict = false,
                     bool is_continued = false) {
  const TempFolder folder;
  std::filesystem::copy_file(PINION_TEST_DATA "/templates/refusing/" + name + ".jinja",
                             std::filesystem::path(folder) / "chat_template.jinja");
  std::shared_ptr<const ChatTemplate> chat_template;
  EXPECT_EQ(load_chat_template(folder.string(), &chat_template).message(), "");
  const Conversation conversation{.messages = OrderedJson::parse(messages),
                                  .tools = OrderedJson::parse(tools),
                                  .continue_final_message = is_continued,
                                  .is_strict = is_strict};
  std::string text;
  std::vector<std::string> mended;
  const Error e = render(*chat_template, conversation, &text, &mended);
  if (e) return "error: " + e.message();
  return text + (mended.empty() ? "" : "  # " + joined(mended));
}

std::string refused(const std::string& name, const char* messages, const char* tools = "null") {
  return rendered(name, messages, tools, true);
}

constexpr const char* kTwoSystems = R"([{"role": "system", "content": "One."}, {"role": "system", "content": "Two."},
    {"role": "user", "content": "Hi"}])";
constexpr const char* kLateSystem = R"([{"role": "system", "content": "One."}, {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yes?"}, {"role": "system", "content": "Two."},
    {"role": "user", "content": "Go"}])";
constexpr const char* kDeveloper = R"([{"role": "developer", "content": "One."}, {"role": "user", "content": "Hi"}])";
constexpr const char* kTwoUsers = R"([{"role": "user", "content": "Hi"},
    {"role": "user", "content": [{"type": "text", "text": "Go"}]}])";

TEST(Mend, SystemMessages) {
  EXPECT_EQ(rendered("ordered", kTwoSystems), "<system>One.\n\nTwo.<user>Hi  # system messages merged");
  EXPECT_EQ(rendered("alternating", kTwoSystems), "[INST]One.\n\nTwo. / Hi[/INST]  # system messages merged");
  EXPECT_EQ(rendered("silent", kTwoSystems), "S:One.\n\nTwo.;U:Hi;  # system messages merged");
  EXPECT_EQ(rendered("no_system", kTwoSystems), "<user>One.\n\nTwo.\n\nHi  # system messages as user text");
  EXPECT_EQ(rendered("ordered", kLateSystem),
            "<system>One.<user>Hi<assistant>Yes?<user>Two.\n\nGo  # late system messages as user text");
  EXPECT_EQ(rendered("alternating", kLateSystem),
            "[INST]Hi[/INST]Yes?</s>[INST]One. / Two.\n\nGo[/INST]  # late system messages as user text");
  EXPECT_EQ(rendered("silent", kLateSystem), "S:One.;U:Hi;A:Yes?;U:Two.\n\nGo;  # late system messages as user text");
  EXPECT_EQ(rendered("no_system", kLateSystem),
            "<user>One.\n\nHi<assistant>Yes?<user>Two.\n\nGo  # system messages as user text");
  EXPECT_EQ(rendered("ordered", R"([{"role": "user", "content": "Hi"}, {"role": "system", "content": "Two."}])"),
            "<user>Hi<user>Two.  # late system messages as user text");
  EXPECT_EQ(rendered("alternating", R"([{"role": "user", "content": "Hi"}, {"role": "system", "content": "Two."}])"),
            "[INST]Hi\n\nTwo.[/INST]  # late system messages as user text, messages of one role merged");
}

TEST(Mend, DeveloperRole) {
  EXPECT_EQ(rendered("ordered", kDeveloper), "<system>One.<user>Hi  # developer as system");
  EXPECT_EQ(rendered("silent", kDeveloper), "S:One.;U:Hi;  # developer as system");
  EXPECT_EQ(rendered("no_system", kDeveloper), "<user>One.\n\nHi  # developer as system, system messages as user text");
  EXPECT_EQ(rendered("typed_tools", kDeveloper, "[]"), "<developer>One.<user>Hi") << "the template knows the role";
}

TEST(Mend, MessagesOfOneRole) {
  EXPECT_EQ(rendered("alternating", kTwoUsers),
            "[INST]Hi\n\nGo[/INST]  # contents as text, messages of one role merged");
  EXPECT_EQ(rendered("ordered", R"([{"role": "user", "content": "Hi"}, {"role": "user", "content": "Go"}])"),
            "<user>Hi<user>Go");
  const char* assistants = R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "A"},
      {"role": "assistant", "content": "B"}, {"role": "user", "content": "Go"}])";
  EXPECT_EQ(rendered("no_system", assistants), "<user>Hi<assistant>A\n\nB<user>Go  # messages of one role merged");
  EXPECT_EQ(rendered("no_system", R"([{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Go"}])"),
            "<user><assistant>Hi<user>Go  # empty user message added");
}

TEST(Mend, ContinuesAMergedMessage) {
  const char* assistants = R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "A"},
      {"role": "assistant", "content": "B"}])";
  EXPECT_EQ(rendered("no_system", assistants, "null", false, true),
            "<user>Hi<assistant>A\n\nB  # messages of one role merged");
}

std::string with_arguments(const std::string& arguments) {
  return R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "", "tool_calls": [{"type": "function",
      "id": "call_0123456789", "function": {"name": "f", "arguments": )" +
         arguments + R"(}}]}, {"role": "tool", "tool_call_id": "call_0123456789", "content": "done"}])";
}

TEST(Mend, Arguments) {
  const auto ordered = [](const std::string& arguments) {
    return rendered("ordered", with_arguments(arguments).c_str());
  };
  const std::string before = "<user>Hi<assistant><call=f>", after = "<result>done";
  EXPECT_EQ(ordered(R"({"a": "b"})"), before + "<a=b>" + after);
  EXPECT_EQ(ordered(R"("{\"a\": \"b\"}")"), before + "<a=b>" + after + "  # arguments as an object");
  EXPECT_EQ(ordered(R"("{\"a\": ")"), before + "<arguments={\"a\": >" + after + "  # arguments as an object");
  for (const char* empty : {"\"\"", "null", "\"{}\""}) {
    EXPECT_EQ(ordered(empty), before + after + "  # arguments as an object") << empty;
  }
  EXPECT_TRUE(ordered("5").starts_with("error: messages[1]: template fails: ")) << "a number cannot be appended";
  EXPECT_EQ(rendered("typed_tools", with_arguments(R"({"a": "b"})").c_str(), "[]"),
            "<user>Hi<assistant>f{\"a\":\"b\"}<tool>done  # arguments as text");
  EXPECT_TRUE(
      rendered("alternating", with_arguments("{}").c_str()).ends_with("{}[RESULT]done  # ids of calls shortened"));
}

TEST(Mend, Tools) {
  const char* question = R"([{"role": "user", "content": "Hi"}])";
  EXPECT_EQ(rendered("ordered", question, R"([{"type": "function", "function": {"name": "f"}}])"),
            "f: ;<user>Hi  # missing fields of tools added");
  EXPECT_EQ(
      rendered("typed_tools", question, R"([{"type": "function", "function": {"name": "f", "description": null}}])"),
      "f: ()<user>Hi  # missing fields of tools added");
  EXPECT_EQ(rendered("typed_tools", question), "<user>Hi  # no tools as an empty list");
  EXPECT_EQ(rendered("typed_tools", question, R"([{"function": {"name": "f", "description": "F", "parameters":
      {"type": "object", "properties": {"a": {"type": ["null", "string"]}, "b": {"type": "integer"}}}}}])"),
            "f: F(a: string ,b: integer ,)<user>Hi  # schemas of tools simplified");
}

TEST(Mend, ToolResults) {
  const char* lone = R"([{"role": "tool", "tool_call_id": "1", "content": "done"}, {"role": "user", "content": "Hi"}])";
  EXPECT_EQ(rendered("typed_tools", lone, "[]"), "<user>done<user>Hi  # tool results without calls as user text");
  EXPECT_EQ(rendered("silent", with_arguments("{}").c_str()), "U:Hi;A:;U:done;  # tool results as user text");
  EXPECT_EQ(rendered("no_system", with_arguments("{}").c_str()),
            "<user>Hi<assistant><user>done  # tool results as user text");
  const std::string goes_on = with_arguments("{}");
  EXPECT_EQ(
      rendered("silent", R"([{"role": "user", "content": "Hi"}, {"role": "tool", "content": "{\"a\": [\"b c\"]}"}])"),
      "U:Hi;U:{\"a\": [\"b c\"]};  # tool results without calls as user text");
}

// A template may remove a flag from a system message, escape results, or write the system message last.
TEST(Mend, LeavesConversationsThatTemplatesChange) {
  EXPECT_EQ(rendered("silent",
                     R"([{"role": "system", "content": "Be brief. /no_think"}, {"role": "user", "content": "Hi"}])"),
            "S:Be brief. ;U:Hi;");
  EXPECT_EQ(rendered("alternating", R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Go"}])"),
            "[INST]Hi[/INST]Yes?</s>[INST]Be brief. / Go[/INST]");
}

TEST(Mend, Contents) {
  const char* parts = R"([{"role": "system", "content": [{"type": "text", "text": "One."}]},
      {"role": "user", "content": [{"type": "text", "text": "Hi "}, {"type": "text", "text": "you"}]}])";
  EXPECT_EQ(rendered("ordered", parts), "<system>One.<user>Hi you  # contents as text");
  EXPECT_EQ(rendered("no_system", parts), "<user>One.\n\nHi you  # contents as text, system messages as user text");
  const char* no_content = R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [{"function":
      {"name": "f", "arguments": {}}}]}, {"role": "assistant", "content": null}])";
  EXPECT_EQ(rendered("ordered", no_content), "<user>Hi<assistant><call=f><assistant>  # contents as text");
  const char* picture = R"([{"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image"}]}])";
  EXPECT_TRUE(rendered("ordered", picture).starts_with("error: messages[0]: template fails: "));
}

TEST(Mend, SeveralAtOnce) {
  EXPECT_EQ(rendered("ordered", R"([{"role": "developer", "content": "One."}, {"role": "user", "content": "Hi"},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
      {"role": "tool", "content": [{"type": "text", "text": "done"}]}, {"role": "developer", "content": "Two."}])",
                     R"([{"function": {"name": "f"}}])"),
            "f: ;<system>One.<user>Hi<assistant><call=f><arguments={><result>done<user>Two.  # contents as text, "
            "developer as system, "
            "late system messages as user text, missing fields of tools added, arguments as an object");
}

TEST(Mend, StrictModeRefusesAndOmits) {
  EXPECT_EQ(refused("ordered", kTwoSystems).find("error: messages[1]: template fails: System message must"), 0u);
  EXPECT_EQ(refused("ordered", kLateSystem).find("error: messages[3]: template fails: System message must"), 0u);
  EXPECT_EQ(refused("ordered", kDeveloper).find("error: messages[0]: template fails: Unexpected message role."), 0u);
  EXPECT_EQ(refused("alternating", kTwoUsers).find("error: messages[1]: template fails: roles must alternate"), 0u);
  EXPECT_EQ(refused("ordered", with_arguments("\"{\"").c_str()).find("error: messages[1]: template fails: "), 0u);
  EXPECT_EQ(refused("ordered", R"([{"role": "user", "content": "Hi"}])",
                    R"([{"function": {"name": "f", "description": "F"}}, {"function": {"name": "g"}}])")
                .find("error: tools[1]: template fails: "),
            0u);
  EXPECT_EQ(refused("silent", kDeveloper), "U:Hi;");
}

TEST(Mend, HopelessTemplatesNameTheMessage) {
  EXPECT_EQ(rendered("ordered", R"([{"role": "user", "content": "Hi"}, {"role": "critic", "content": "No"},
      {"role": "user", "content": "Go"}])")
                .find("error: messages[1]: template fails: Unexpected message role. at row"),
            0u);
  EXPECT_EQ(rendered("alternating", "[]").find("error: messages: template fails: "), 0u);
}

}  // namespace
}  // namespace pinion
