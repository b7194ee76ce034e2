// Chat templates from their two places, and what becomes of bad ones.
#include "tokenizer/chat_template.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "loader/json.h"

namespace pinion {
namespace {

constexpr const char* kChatMl =
    "{% for message in messages %}\n"
    "    {{- '<|im_start|>' + message['role'] + '\\n' + message.content | trim + '<|im_end|>' + '\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|im_start|>assistant\\n' }}\n"
    "{%- endif %}\n";

const std::vector<Message> kTalk = {{"system", "Be brief."}, {"user", " Hi {{ bos_token }}! "}};

// A fresh folder with the given tokenizer_config.json; empty: none.
std::filesystem::path make_folder(const std::string& config) {
  static int count = 0;
  const auto folder = std::filesystem::path(testing::TempDir()) /
                      ("chat_template_" + std::to_string(getpid()) + "_" + std::to_string(count++));
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  if (!config.empty()) std::ofstream(folder / "tokenizer_config.json") << config;
  return folder;
}

std::string rendered(const std::filesystem::path& folder, bool add_generation_prompt = true) {
  std::shared_ptr<const ChatTemplate> chat_template;
  std::string text;
  const Error e = load_chat_template(folder.string(), &chat_template);
  EXPECT_FALSE(e) << e.message();
  if (chat_template == nullptr) return "no template";
  const Error refused = render(*chat_template, kTalk, add_generation_prompt, &text);
  return refused ? "error: " + refused.message() : text;
}

std::string load_error(const std::string& source) {
  std::shared_ptr<const ChatTemplate> chat_template;
  return load_chat_template(make_folder(Json{{"chat_template", source}}.dump()).string(), &chat_template).message();
}

TEST(ChatTemplate, RendersAConversation) {
  const auto folder = make_folder(Json{{"chat_template", kChatMl}}.dump());
  const std::string talk = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi {{ bos_token }}!<|im_end|>\n";
  EXPECT_EQ(rendered(folder, false), talk);
  EXPECT_EQ(rendered(folder, true), talk + "<|im_start|>assistant\n");
}

TEST(ChatTemplate, IsFoundWhereverItIs) {
  const Json list = {{{"name", "tool_use"}, {"template", "T"}}, {{"name", "default"}, {"template", "D"}}};
  EXPECT_EQ(rendered(make_folder("")), "no template");
  EXPECT_EQ(rendered(make_folder("{}")), "no template");
  EXPECT_EQ(rendered(make_folder(Json{{"chat_template", list}}.dump())), "D");
  const auto folder = make_folder(Json{{"chat_template", "old"}, {"bos_token", {{"content", "<s>"}}}}.dump());
  std::ofstream(folder / "chat_template.jinja") << "{{ bos_token }}new";
  EXPECT_EQ(rendered(folder), "<s>new");
}

TEST(ChatTemplate, HasTheFunctionsTemplatesCall) {
  const auto folder = make_folder(Json{{"chat_template", "{{ strftime_now('%Y') | length }}"}}.dump());
  EXPECT_EQ(rendered(folder), "4");
}

TEST(ChatTemplate, PassesOnTheTemplatesOwnRefusal) {
  const auto folder = make_folder(Json{{"chat_template", "a\n{{ raise_exception('No system role.') }}"}}.dump());
  const std::string text = rendered(folder);
  EXPECT_NE(text.find("No system role. at row 2"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

TEST(ChatTemplate, RefusesBadOnes) {
  for (const std::string& source :
       std::vector<std::string>{"{% if %}", "{{ x", "{% for a in b %}", "{% endfor %}", "{{ " + std::string(20000, '('),
                                "{{ 1" + std::string(9000, '+'), std::string(100000, 'x')}) {
    EXPECT_NE(load_error(source), "") << source.substr(0, 20);
  }
  std::shared_ptr<const ChatTemplate> chat_template;
  for (const char* config : {"", "[1]", "{\"chat_template\": 1}", "{\"chat_template\": [1]}",
                             "{\"chat_template\": [{\"name\": \"default\"}]}"}) {
    const auto folder = make_folder("{}");
    std::ofstream(folder / "tokenizer_config.json") << config;
    EXPECT_TRUE(load_chat_template(folder.string(), &chat_template)) << config;
  }
}

}  // namespace
}  // namespace pinion
