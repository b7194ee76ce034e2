// Weights whose numbers overflow: every command says where that began, and none goes on with it.
#include "tests/apps/overflowing.h"

namespace pinion {
namespace {

TEST(UnfitNumbers, AreAnErrorOfEveryCommand) {
  const Overflowing model(kStories);
  write_file(model / "prompts.json", R"([{"prompt": "Once", "max_tokens": 8}])");
  write_file(model / "text", "Once upon a time there was a fox.");
  const std::vector<std::vector<std::string>> commands = {
      {"generate", "--prompt", "Once"},
      {"generate", "--prompt", "Once", "--quant", "none"},
      {"generate", "--prompt", "Once", "--temperature", "1", "--json"},
      {"logits", "--prompt", "Once", "--all", "--out", model / "F.npy"},
      {"quality", "--file", model / "text"},
      {"golden", "record", "--prompts", model / "prompts.json", "--out", model / "G.json"},
      {"bench", "-p", "4", "-n", "2", "-r", "1", "-t", "1"},
  };
  for (std::vector<std::string> command : commands) {
    command.insert(command.end(), {"--model", model.path});
    expect_failure(run_pinion(command), 1, "logits: NaN or infinity, first from layer 1, o;");
  }
  EXPECT_FALSE(fs::exists(model / "F.npy"));
  EXPECT_FALSE(fs::exists(model / "G.json"));
  const Overflowing talker(kDemo);
  expect_failure(run_pinion({"chat", "--model", talker.path}, "Hi\n"), 1,
                 "logits: NaN or infinity, first from layer 1");
}

}  // namespace
}  // namespace pinion
