// Fill-in prompts of each family, with its marks added to a small vocabulary.
#include "tokenizer/templates/fill_in.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/temp_folder.h"

namespace pinion {
namespace {

constexpr int32_t kBos = 1, kFirst = 504;  // first id of the marks, which replace characters that no merge uses

std::shared_ptr<const Tokenizer> tokenizer_with(const std::vector<std::string>& marks) {
  using nlohmann::json;
  json file = json::parse(std::ifstream(PINION_TEST_DATA "/stories260k/tokenizer.json"));
  json& vocabulary = file["model"]["vocab"];
  for (size_t i = 0; i < marks.size(); ++i) {
    const auto id = kFirst + static_cast<int32_t>(i);
    for (auto at = vocabulary.begin(); at != vocabulary.end(); ++at) {
      if (*at != id) continue;
      vocabulary.erase(at);
      break;
    }
    vocabulary[marks[i]] = id;
    json added = file["added_tokens"][0];
    added["id"] = id;
    added["content"] = marks[i];
    file["added_tokens"].push_back(added);
  }
  const TempFolder folder;
  std::ofstream(folder.path / "tokenizer.json") << file.dump();
  std::filesystem::copy_file(PINION_TEST_DATA "/stories260k/tokenizer_config.json",
                             folder.path / "tokenizer_config.json");
  std::shared_ptr<const Tokenizer> tokenizer;
  EXPECT_EQ(load_tokenizer(folder.path, &tokenizer).message(), "");
  return tokenizer;
}

// The pieces of the ids, with ▁ for blanks.
std::string spelled(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += token_text(tokenizer, id);
  return text;
}

struct Case {
  std::vector<std::string> marks;
  std::string name, prompt;
  std::vector<std::string> ends;
};

TEST(FillIn, PromptsOfAllFamilies) {
  const Case cases[] = {
      {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|endoftext|>"},
       "qwen2.5-coder",
       "<s><|fim_prefix|>▁a▁dog<|fim_suffix|>▁the▁end<|fim_middle|>",
       {"<|endoftext|>"}},
      {{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
       "starcoder",
       "<s><fim_prefix>▁a▁dog<fim_suffix>▁the▁end<fim_middle>",
       {}},
      {{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
       "deepseek-coder",
       "<s><｜fim▁begin｜>▁a▁dog<｜fim▁hole｜>▁the▁end<｜fim▁end｜>",
       {}},
      {{"▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"}, "codellama", "<s>▁<PRE>▁a▁dog▁<SUF>the▁end▁<MID>", {"▁<EOT>"}},
      {{"[PREFIX]", "[SUFFIX]"}, "codestral", "<s>[SUFFIX]the▁end[PREFIX]▁a▁dog", {}},
  };
  for (const Case& family : cases) {
    const auto tokenizer = tokenizer_with(family.marks);
    ASSERT_TRUE(tokenizer);
    const FillInRow* row = find_fill_in(*tokenizer);
    ASSERT_TRUE(row) << family.name;
    EXPECT_EQ(row->name, family.name);
    std::vector<int32_t> ids;
    ASSERT_EQ(encode_fill_in(*tokenizer, *row, "a dog", "the end", 100, &ids).message(), "");
    EXPECT_EQ(spelled(*tokenizer, ids), family.prompt);
    EXPECT_EQ(ids[0], kBos);
    EXPECT_GE(ids[1], kFirst);
    EXPECT_EQ(fill_in_ends(*tokenizer, *row), family.ends);
    // Typed marks are text.
    ASSERT_EQ(encode_fill_in(*tokenizer, *row, family.marks[0], family.marks[1], 100, &ids).message(), "");
    const auto marks = static_cast<int32_t>(family.marks.size());
    EXPECT_EQ(std::ranges::count_if(ids, [&](int32_t id) { return id >= kFirst && id < kFirst + marks; }),
              std::min(marks, 3));
    EXPECT_EQ(encode_fill_in(*tokenizer, *row, "a dog", "the end", 5, &ids).what, "too long");
  }
}

TEST(FillIn, OtherVocabularies) {
  EXPECT_EQ(find_fill_in(*tokenizer_with({})), nullptr);
  EXPECT_EQ(find_fill_in(*tokenizer_with({"<fim_prefix>", "<fim_suffix>"})), nullptr);
}

}  // namespace
}  // namespace pinion
