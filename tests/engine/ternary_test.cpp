// Ternary weights: detection, exact packing and equal bits for any run. tests/data/families/qwen3_ternary has one
// matrix that is not ternary, v of layer 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/runtime/load.h"
#include "engine/runtime/runtime.h"
#include "engine/session/board_messages.h"
#include "kernels/half.h"
#include "loader/config/layer_tensors.h"
#include "loader/files/json.h"
#include "tests/engine/boards.h"
#include "tests/engine/one_result.h"
#include "tests/temp_folder.h"

namespace pinion {
namespace {

const std::string kFolder = PINION_TEST_DATA "/families/qwen3_ternary";

std::unique_ptr<Model> load(const LoadOptions& options, const std::string& folder = kFolder) {
  std::unique_ptr<Model> model;
  EXPECT_EQ(load_model(folder, options, &model).message(), "");
  return model;
}

// f(matrix, name) for the matrices of all layers.
template <class F>
void each_matrix(const Model& model, F f) {
  for (size_t i = 0; i < model.layers.size(); ++i) {
    for (const MatrixTensor& one : layer_matrices(model.config, static_cast<int64_t>(i))) {
      f(matrix_of(model, one).weight, one.module());
    }
  }
}

void expect_formats(const LoadOptions& options, Format ternary, Format other) {
  const auto model = load(options);
  each_matrix(*model, [&](const Matrix& m, const std::string& name) {
    const Format format = name == "model.layers.1.self_attn.v_proj" ? other : ternary;
    EXPECT_EQ(m.format, format) << name;
    EXPECT_EQ(m.rotation, format == Format::w8 || format == Format::w4n ? 128 : 1) << name;
  });
  EXPECT_EQ(model->head.weight.format, options.quant == Quant::none ? Format::bf16 : Format::w8h);
}

TEST(Ternary, DetectedInQuantisingModes) {
  expect_formats({.quant = Quant::w8a8}, Format::w2, Format::w8);
  expect_formats({.quant = Quant::w4a8}, Format::w2, Format::w4n);
  expect_formats({.quant = Quant::none}, Format::bf16, Format::bf16);
  expect_formats({.quant = Quant::w8a8, .ternary = false}, Format::w8, Format::w8);
  const auto kept = load({.quant = Quant::w8a8, .keep = {"layers.0.mlp.up_proj"}});
  EXPECT_EQ(kept->layers[0][MatrixRole::up].weight.format, Format::bf16);
  EXPECT_EQ(kept->layers[0][MatrixRole::gate].weight.format, Format::w2);
}

float weight(const Matrix& m, int64_t n, int64_t k) {
  const std::byte* panel = panel_of(m, n / kPanelColumns);
  if (m.format == Format::bf16) return to_float(reinterpret_cast<const bf16*>(panel)[bf16_offset(k, n)]);
  const int code = std::to_integer<int>(panel[code_offset(m.format, k, n)]) >> code_shift(m.format, k) & 3;
  const std::byte* scales = panel + code_offset(m.format, k / kW2GroupK * kW2GroupK, 0) + code_bytes(m.format);
  f16 scale;
  std::memcpy(&scale, scales + n % kPanelColumns * 2, sizeof scale);
  return static_cast<float>(code - 1) * to_float(scale) * m.scale[n];
}

TEST(Ternary, NoRounding) {
  const auto exact = load({.quant = Quant::none}), model = load({.quant = Quant::w8a8});
  std::vector<const Matrix*> wanted;
  each_matrix(*exact, [&](const Matrix& m, const std::string&) { wanted.push_back(&m); });
  size_t i = 0;
  each_matrix(*model, [&](const Matrix& m, const std::string& name) {
    const Matrix& want = *wanted[i++];
    if (m.format != Format::w2) return;
    for (int64_t n = 0; n < m.n; ++n) {
      for (int64_t k = 0; k < m.k; ++k) ASSERT_EQ(weight(m, n, k), weight(want, n, k)) << name << " " << n << " " << k;
    }
  });
}

TEST(Ternary, SameBitsForAnyRun) {
  for (const Quant quant : {Quant::w8a8, Quant::w4a8}) {
    const auto model = load({.quant = quant});
    EXPECT_EQ(model->layers[0][MatrixRole::up].weight.interleaved, 2);
    expect_one_result(*model, 60, KvType::q8);
  }
  // An input of both a rotated and an unrotated matrix; gate and up of different formats.
  expect_one_result(*load({.quant = Quant::w8a8, .keep = {"up_proj"}}), 40, KvType::q8);
}

TEST(Ternary, RoundTripThroughCache) {
  const TempFolder cache;
  const LoadOptions options = {.quant = Quant::w8a8, .cache_folder = cache.path};
  const auto packed = load(options);
  ASSERT_EQ(write_to_cache(*packed).message(), "");
  const auto cached = load(options);
  EXPECT_TRUE(cached->from_cache());
  EXPECT_TRUE(std::ranges::equal(cached->packed(), packed->packed()));
  EXPECT_FALSE(load({.quant = Quant::w8a8, .ternary = false, .cache_folder = cache.path})->from_cache());
}

// The folder with one changed weight, in a row that the detection does not sample.
void write_damaged(const std::string& tensor, int64_t at, const TempFolder& folder) {
  std::filesystem::copy(kFolder, folder.path, std::filesystem::copy_options::recursive);
  const std::filesystem::path path = folder / "model.safetensors";
  std::string file;
  ASSERT_EQ(read_text_file(path, int64_t{1} << 30, &file).message(), "");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  const Json header = Json::parse(file.substr(8, header_bytes));
  const bf16 other = to_bf16(0.7f);
  std::memcpy(file.data() + 8 + header_bytes + header[tensor]["data_offsets"][0].get<size_t>() + 2 * at, &other, 2);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << file;
}

TEST(Ternary, OneOtherRowQuantisesTheMatrix) {
  const TempFolder folder, cache;
  ASSERT_NO_FATAL_FAILURE(write_damaged("model.layers.1.mlp.down_proj.weight", 2 * 128 + 5, folder));
  std::vector<std::string> warnings;
  const LoadOptions options = {.quant = Quant::w8a8, .cache_folder = cache.path, .warn = [&](const Error& e) {
                                 warnings.push_back(e.message());
                               }};
  const auto model = load(options, folder.path);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("model.layers.1.mlp.down_proj.weight row 2: not ternary"), std::string::npos);
  const auto plain = load({.quant = Quant::w8a8, .ternary = false}, folder.path);
  EXPECT_TRUE(std::ranges::equal(model->packed(), plain->packed()));
  ASSERT_EQ(write_to_cache(*model).message(), "");
  EXPECT_TRUE(load(options, folder.path)->from_cache()) << "the second attempt hits";
}

// The changed row belongs to one board only.
TEST(Ternary, BoardsAgreeOnTernaryMatrices) {
  const TempFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_damaged("model.layers.1.mlp.down_proj.weight", 2 * 128 + 5, folder));
  on_boards(3, 4, [&](Exchange& exchange) {
    RuntimeOptions options;
    options.model = folder.path;
    options.load.quant = Quant::w8a8;
    options.exchange = &exchange;
    Plan& plan = options.plan.emplace();
    plan.decode.cpus = plan.prefill.cpus = {-1};
    int warnings = 0;
    options.load.warn = [&](const Error& e) { warnings += e.message().find("are not ternary") != std::string::npos; };
    if (!exchange.is_first()) {
      std::vector<std::byte> message;
      exchange.receive(&message);
      MessageReader reader(message);
      ASSERT_EQ(reader.read<BoardCommand>(), BoardCommand::load);
      read_load_options(reader, &options.load);
    }
    Runtime runtime;
    EXPECT_EQ(open_runtime(options, &runtime).message(), "");
    each_matrix(*runtime.model,
                [](const Matrix& m, const std::string& name) { EXPECT_NE(m.format, Format::w2) << name; });
    EXPECT_EQ(warnings, 1);
  });
}

// Codes of the file; norms before o and down.
TEST(Ternary, Bitnet) {
  for (const std::string family : {"bitnet", "bitnet_divided"}) {
    const std::string folder = PINION_TEST_DATA "/families/" + family;
    for (const Quant quant : {Quant::w8a8, Quant::w4a8}) {
      const auto model = load({.quant = quant}, folder);
      each_matrix(*model, [&](const Matrix& m, const std::string& name) { EXPECT_EQ(m.format, Format::w2) << name; });
      EXPECT_TRUE(model->conversions.empty());
      expect_one_result(*model, 60, KvType::q8);
    }
    expect_one_result(*load({.quant = Quant::none}, folder), 40, KvType::f32);
  }
}

TEST(Ternary, SyntheticWeights) {
  std::unique_ptr<Model> model;
  ASSERT_EQ(
      synthetic_model(kFolder + "/config.json", {.quant = Quant::w8a8, .synthetic_ternary = true}, &model).message(),
      "");
  each_matrix(*model, [&](const Matrix& m, const std::string& name) { EXPECT_EQ(m.format, Format::w2) << name; });
  expect_one_result(*model, 40, KvType::q8);
}

}  // namespace
}  // namespace pinion
