// Weights whose numbers overflow: every command says where that began, and none goes on with it.
#include <cstdint>
#include <cstring>

#include "tests/apps/program.h"

namespace pinion {
namespace {

// A model with norm weights of a layer so large that what they multiply becomes infinite.
struct Overflowing : Folder {
  explicit Overflowing(const std::string& from) {
    fs::copy(from, path);
    std::string file = read_file(path / "model.safetensors");
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
    const json header = json::parse(file.substr(8, header_bytes));
    const json& norm = header["model.layers.1.input_layernorm.weight"];
    const auto begin = norm["data_offsets"][0].get<size_t>(), end = norm["data_offsets"][1].get<size_t>();
    const std::string large = norm["dtype"] == "F32" ? std::string("\xff\xff\x7f\x7f", 4) : "\x7f\x7f";
    for (size_t at = begin; at < end; at += large.size()) file.replace(8 + header_bytes + at, large.size(), large);
    write_file(path / "model.safetensors", file);
  }
};

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
