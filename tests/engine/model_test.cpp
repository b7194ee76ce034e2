// Loading: a checkpoint that says something else than its config.json is refused, never half read.
#include "engine/model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace pinion {
namespace {

namespace fs = std::filesystem;

// A copy of stories260k that a test may damage.
struct Copy {
  fs::path path = fs::temp_directory_path() / ("pinion_model_test_" + std::to_string(getpid()));

  Copy() { fs::copy(PINION_TEST_DATA "/stories260k", path); }
  ~Copy() { fs::remove_all(path); }

  std::string read(const char* name) const {
    std::ifstream file(path / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const char* name, const std::string& bytes) const {
    fs::remove(path / name);
    std::ofstream(path / name, std::ios::binary) << bytes;
  }
  void replace(const char* name, const std::string& from, const std::string& to) const {
    std::string bytes = read(name);
    bytes.replace(bytes.find(from), from.size(), to);
    write(name, bytes);
  }
  std::string load(Quant quant = Quant::w8a8) const {
    std::unique_ptr<Model> model;
    return load_model(path.string(), {.quant = quant, .keep = {}, .threads = 1, .progress = {}}, &model).message();
  }
};

TEST(Model, LoadsAsItIs) {
  const Copy folder;
  EXPECT_EQ(folder.load(), "");
  EXPECT_EQ(folder.load(Quant::none), "");
}

TEST(Model, ATensorThatTheConfigDoesNotAccountForIsRefused) {
  const Copy folder;
  folder.replace("config.json", "\"num_hidden_layers\": 5", "\"num_hidden_layers\": 1");
  const std::string message = folder.load();
  EXPECT_NE(message.find("model.layers.1."), std::string::npos) << message;
  EXPECT_NE(message.find("does not have"), std::string::npos) << message;
}

TEST(Model, AMissingTensorIsRefusedByName) {
  const Copy folder;
  folder.replace("config.json", "\"num_hidden_layers\": 5", "\"num_hidden_layers\": 6");
  EXPECT_EQ(folder.load(), folder.path.string() + ": model.layers.5.input_layernorm.weight: no such tensor");
}

TEST(Model, AShapeThatDiffersIsRefusedWithBoth) {
  const Copy folder;
  folder.replace("config.json", "\"intermediate_size\": 172", "\"intermediate_size\": 171");
  EXPECT_EQ(folder.load(), folder.path.string() +
                               ": model.layers.0.mlp.gate_proj.weight: shape differs: want [171, 64], have [172, 64]");
}

// All bits set is a NaN in every floating-point type.
TEST(Model, NanInANormIsRefused) {
  const Copy folder;
  std::string bytes = folder.read("model.safetensors");
  bytes.replace(bytes.size() - 128, 128, std::string(128, '\xff'));  // the last tensor's end
  folder.write("model.safetensors", bytes);
  const std::string message = folder.load();
  EXPECT_NE(message.find("NaN or infinity in the weights"), std::string::npos) << message;
  EXPECT_EQ(message.rfind(folder.path.string(), 0), 0u) << message;
}

}  // namespace
}  // namespace pinion
