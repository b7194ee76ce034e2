// Templates against the recorded output of transformers (tests/data/templates, tools/reference).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "loader/files/json.h"
#include "loader/files/mapped_file.h"
#include "tests/temp_folder.h"
#include "tokenizer/templates/chat_template.h"
#include "tokenizer/templates/jinja.h"

namespace pinion {
namespace {

using OrderedJson = nlohmann::ordered_json;

const std::filesystem::path kFolder = std::filesystem::path(PINION_TEST_DATA) / "templates";

OrderedJson read_ordered(const char* name) {
  std::string text;
  OrderedJson json;
  EXPECT_EQ(read_text_file(kFolder / name, int64_t{1} << 24, &text).message(), "");
  EXPECT_EQ(parse_ordered_json(text, name, &json).message(), "");
  return json;
}

// Null for a template that fails, as in the recorded files; *message is the reason.
OrderedJson rendered(const std::string& source, const Conversation& conversation, std::string* message) {
  const TempFolder folder;
  folder.write("chat_template.jinja", source);
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  std::shared_ptr<const ChatTemplate> chat_template;
  std::string text;
  Error e = load_chat_template(folder.string(), &chat_template);
  if (!e) e = render(*chat_template, conversation, &text);
  *message = e.message();
  return e ? OrderedJson(nullptr) : OrderedJson(text);
}

// Intended differences from the reference.
const std::map<std::pair<std::string, std::string>, const char*> kDifferent = {
    {{"headers.jinja", "parts"}, "a list that is printed is refused"},
    {{"lines.jinja", "parts"}, "a list that is printed is refused"},
    {{"marks.jinja", "parts"}, "a list that is printed is refused"},
    {{"headers.jinja", "continued_parts"}, "a list that is printed is refused"},
    {{"lines.jinja", "continued_parts"}, "a list that is printed is refused"},
    {{"role_pipes.jinja", "continued_parts"}, "a list that is printed is refused"},
};

struct Templates : testing::TestWithParam<std::string> {};

TEST_P(Templates, EqualTheReference) {
  const OrderedJson conversations = read_ordered("conversations.json"), expected = read_ordered("expected.json");
  std::string source;
  ASSERT_EQ(read_text_file(kFolder / GetParam(), int64_t{1} << 24, &source).message(), "");
  ASSERT_EQ(expected[GetParam()].size(), conversations.size());
  for (const OrderedJson& conversation : conversations) {
    const auto name = conversation["name"].get<std::string>();
    std::string message;
    const OrderedJson text = rendered(source,
                                      {.messages = conversation["messages"],
                                       .tools = conversation.value("tools", OrderedJson()),
                                       .variables = conversation.value("variables", OrderedJson::object()),
                                       .add_generation_prompt = conversation.value("add_generation_prompt", true),
                                       .continue_final_message = conversation.contains("continue_final_message"),
                                       .is_strict = true},
                                      &message);
    const auto different = kDifferent.find({GetParam(), name});
    if (different == kDifferent.end()) {
      EXPECT_EQ(text, expected[GetParam()][name]) << name << ": " << message;
    } else {
      EXPECT_NE(text, expected[GetParam()][name]) << name << " no longer differs: " << different->second;
    }
  }
}

// A difference that disappeared fails, so that the list stays correct.
TEST(TemplateDifferences, StillExist) {
  for (const OrderedJson& difference : read_ordered("differences.json")) {
    std::string message;
    const OrderedJson text = rendered(difference["template"], {}, &message);
    EXPECT_NE(text, difference["expected"]) << difference["why"];
  }
}

// All filters, tests, methods and operators with unusual values. `false`: the reference prints an address.
TEST(JinjaCases, EqualTheReference) {
  const OrderedJson cases = read_ordered("jinja.json");
  size_t count = 0;
  for (const OrderedJson& group : cases["groups"]) {
    for (const auto& [form, expected] : group["forms"].items()) {
      for (size_t i = 0; i < expected.size(); ++i) {
        std::string source = form, text;
        const size_t hole = source.find('X');
        const auto value = group["values"][i].get<std::string>();
        if (hole != std::string::npos && !value.empty()) source.replace(hole, 1, value);
        const Error e = jinja::run_source(jinja::normalized_source(source), "t", cases["variables"], &text);
        if (expected[i] == false) continue;
        EXPECT_EQ(e ? OrderedJson(nullptr) : OrderedJson(text), expected[i]) << source << ": " << e.message();
        ++count;
      }
    }
  }
  EXPECT_GT(count, 10000U);
}

std::vector<std::string> template_files() {
  std::vector<std::string> names;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, failure)) {
    if (entry.path().extension() == ".jinja") names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Reference, Templates, testing::ValuesIn(template_files()),
                         [](const auto& file) { return file.param.substr(0, file.param.find('.')); });

}  // namespace
}  // namespace pinion
