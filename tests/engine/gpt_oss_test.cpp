// gpt-oss: attention sinks, by hand, and MXFP4 experts against the same model in bf16.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/runtime/load.h"
#include "engine/session/session.h"
#include "kernels/half.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/files/json.h"
#include "tests/loader/make_files.h"

namespace pinion {
namespace {

const std::string kFamilies = PINION_TEST_DATA "/families/";

struct Tensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

using Tensors = std::map<std::string, Tensor>;

Tensor floats(const std::vector<int64_t>& shape, const std::vector<float>& values) {
  return {"F32", shape, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}};
}

void write_model(const TempFolder& folder, const Json& config, const Tensors& tensors) {
  Json header = Json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  folder.write("config.json", config.dump());
  folder.write("model.safetensors", safetensors_text(header.dump(), data));
}

// Logits of every position.
std::vector<float> logits_of(const std::string& folder, Quant quant, const std::vector<int32_t>& ids) {
  std::unique_ptr<Model> model;
  EXPECT_EQ(load_model(folder, {.quant = quant}, &model).message(), "");
  if (!model) return {};
  Team team({-1, -1});
  std::unique_ptr<Session> session;
  EXPECT_EQ(
      open_session(*model, team, {.kv = KvType::f32, .context = std::ssize(ids), .pass_rows = 3}, &session).message(),
      "");
  std::vector<float> logits(ids.size() * static_cast<size_t>(model->config.vocab_size));
  EXPECT_EQ(evaluate(*session, ids, true, logits.data()).message(), "");
  return logits;
}

// One layer with scores 0, values (3, -3) and experts of zeros. With t tokens in the window, the residual stream (1, 1)
// becomes (1 + 3 w, 1 - 3 w), w = t / (t + e^sink), and the logits have that ratio.
std::vector<float> ratios(const std::string& layer_type, float sink, size_t tokens) {
  const Json config = {{"architectures", {"GptOssForCausalLM"}},
                       {"hidden_size", 2},
                       {"intermediate_size", 1},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", 1},
                       {"num_key_value_heads", 1},
                       {"head_dim", 2},
                       {"num_local_experts", 1},
                       {"num_experts_per_tok", 1},
                       {"vocab_size", 2},
                       {"sliding_window", 2},
                       {"layer_types", {layer_type}}};
  const std::string layer = "model.layers.0.";
  const Tensor zero = floats({2, 2}, {0, 0, 0, 0}), one = floats({2, 2}, {1, 0, 0, 1});
  const Tensor zeros = floats({2}, {0, 0}), ones = floats({2}, {1, 1});
  Tensors tensors = {{"model.embed_tokens.weight", floats({2, 2}, {1, 1, 1, 1})},
                     {"model.norm.weight", ones},
                     {"lm_head.weight", one},
                     {layer + "input_layernorm.weight", ones},
                     {layer + "post_attention_layernorm.weight", ones},
                     {layer + "self_attn.sinks", floats({1}, {sink})},
                     {layer + "mlp.router.weight", floats({1, 2}, {0, 0})},
                     {layer + "mlp.router.bias", floats({1}, {0})},
                     {layer + "mlp.experts.gate_up_proj", floats({1, 2, 2}, {0, 0, 0, 0})},
                     {layer + "mlp.experts.gate_up_proj_bias", floats({1, 2}, {0, 0})},
                     {layer + "mlp.experts.down_proj", floats({1, 1, 2}, {0, 0})},
                     {layer + "mlp.experts.down_proj_bias", floats({1, 2}, {0, 0})}};
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    const std::string module = layer + "self_attn." + name;
    tensors[module + ".weight"] = name[0] == 'o' ? one : zero;
    tensors[module + ".bias"] = name[0] == 'v' ? floats({2}, {3, -3}) : zeros;
  }
  const TempFolder folder;
  write_model(folder, config, tensors);
  const std::vector<float> logits = logits_of(folder.path, Quant::none, std::vector<int32_t>(tokens, 0));
  std::vector<float> result;
  for (size_t i = 0; i < logits.size(); i += 2) result.push_back(logits[i] / logits[i + 1]);
  return result;
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-4f) << i;
}

TEST(GptOss, SinkEqualsATokenWithoutValue) {
  // Sink 0: w = 1/2, 2/3, 3/4, 4/5; residual stream (5/2, -1/2), (3, -1), (13/4, -5/4), (17/5, -7/5).
  expect_near(ratios("full_attention", 0, 4), {-5, -3, -13.0f / 5, -17.0f / 7});
  // A window of two tokens does not hide the sink.
  expect_near(ratios("sliding_attention", 0, 4), {-5, -3, -3, -3});
  // Sink ln 3: w = 1/4, 2/5, 1/2.
  expect_near(ratios("full_attention", 1.0986123f, 3), {7, -11, -5});
  // A sink without weight, and one with all the weight.
  expect_near(ratios("full_attention", -1e30f, 3), {-2, -2, -2});
  expect_near(ratios("full_attention", 1e30f, 3), {1, 1, 1});
}

TEST(GptOss, SinkOfMinusInfinityChangesNoBit) {
  std::unique_ptr<Model> model;
  ASSERT_EQ(load_model(kFamilies + "gpt_oss", {.quant = Quant::w8a8}, &model).message(), "");
  Team team({-1, -1});
  std::unique_ptr<Session> session;
  ASSERT_EQ(open_session(*model, team, {.pass_rows = 5}, &session).message(), "");
  const std::vector<int32_t> ids = {7, 90, 33, 4, 61, 12, 100, 5, 18};
  const auto logits_with = [&](const float* sinks) {
    for (Layer& layer : model->layers) layer[VectorRole::sinks].weight = sinks;
    rewind(session->sequence, 0);
    std::vector<float> logits(ids.size() * 120);
    EXPECT_EQ(evaluate(*session, ids, true, logits.data()).message(), "");
    return logits;
  };
  const std::array<float, 4> nothing = {-1e30f, -1e30f, -1e30f, -1e30f};
  const std::array<float, 4> something = {-1e30f, -1e30f, -3, -1e30f};
  EXPECT_EQ(logits_with(nothing.data()), logits_with(nullptr));
  EXPECT_NE(logits_with(something.data()), logits_with(nullptr));
}

// The values of the codes of a layer's experts, transposed, in bf16.
Tensor decoded(const TensorView& blocks, const TensorView& scales) {
  constexpr float kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const int64_t experts = blocks.shape[0], n = blocks.shape[1], k = blocks.shape[2] * 32;
  Tensor out = {"BF16", {experts, k, n}, std::string(static_cast<size_t>(experts * n * k * 2), '\0')};
  for (int64_t i = 0; i < experts * n * k; ++i) {
    const auto byte = std::to_integer<unsigned>(blocks.data[i / 2]);
    const unsigned code = i % 2 == 0 ? byte & 15 : byte >> 4;
    const int exponent = std::to_integer<int>(scales.data[i / 32]) - 127;
    const float value = std::ldexp(code < 8 ? kNumbers[code] : -kNumbers[code - 8], exponent);
    const int64_t expert = i / (n * k), row = i / k % n, column = i % k;
    const uint16_t bits = to_bf16(value).bits;
    std::memcpy(out.bytes.data() + ((expert * k + column) * n + row) * 2, &bits, sizeof bits);
  }
  return out;
}

TEST(GptOss, Mxfp4EqualsBf16) {
  const std::string coded = kFamilies + "gpt_oss_mxfp4";
  Checkpoint checkpoint;
  ASSERT_EQ(open_checkpoint(coded, &checkpoint).message(), "");
  Tensors tensors;
  for (const TensorView& view : checkpoint.tensors) {
    if (view.name.ends_with("_scales")) continue;
    if (view.name.ends_with("_blocks")) {
      const std::string module = view.name.substr(0, view.name.size() - 7);
      tensors[module] = decoded(view, *checkpoint.find(module + "_scales"));
    } else {
      ASSERT_EQ(view.dtype, DType::bf16) << view.name;
      tensors[view.name] = {"BF16", view.shape, {reinterpret_cast<const char*>(view.data), view.contents().size()}};
    }
  }
  Json config;
  ASSERT_EQ(read_json_file(coded + "/config.json", &config).message(), "");
  config.erase("quantization_config");
  const TempFolder plain;
  write_model(plain, config, tensors);
  const std::vector<int32_t> ids = {7, 90, 33, 4, 61, 12, 100, 5, 18};
  for (const Quant quant : {Quant::none, Quant::w8a8}) {
    const std::vector<float> logits = logits_of(coded, quant, ids);
    ASSERT_EQ(logits.size(), ids.size() * 120);
    EXPECT_EQ(logits, logits_of(plain.path, quant, ids));
  }
}

// The packed levels and scales of an expert's row give the numbers of the file.
TEST(GptOss, FourBitsKeepTheCodesOfMxfp4) {
  const std::string folder = kFamilies + "gpt_oss_mxfp4";
  std::unique_ptr<Model> kept, floats;
  ASSERT_EQ(load_model(folder, {.quant = Quant::w4a8}, &kept).message(), "");
  ASSERT_EQ(load_model(folder, {.quant = Quant::none}, &floats).message(), "");
  EXPECT_EQ(kept->layers[0][MatrixRole::q].weight.format, Format::w8);
  int64_t nonzero = 0;
  for (const MatrixRole role : {MatrixRole::gate, MatrixRole::up, MatrixRole::down}) {
    const Matrix &m = kept->layers[1].experts[2][role].weight, &exact = floats->layers[1].experts[2][role].weight;
    ASSERT_EQ(m.format, Format::mxfp4);
    EXPECT_EQ(m.rotation, 1);
    for (int64_t n = 0; n < m.n; ++n) {
      for (int64_t k = 0; k < m.k; ++k) {
        const std::byte* panel = panel_of(m, n / kPanelColumns);
        const int code = std::to_integer<int>(panel[code_offset(m.format, k, n)]) >> code_shift(m.format, k) & 15;
        f16 scale;
        std::memcpy(&scale, panel + code_offset(m.format, k - k % 32, 0) + code_bytes(m.format) + n % kPanelColumns * 2,
                    2);
        bf16 number;
        std::memcpy(&number, panel_of(exact, n / kPanelColumns) + 2 * bf16_offset(k, n), 2);
        ASSERT_EQ(static_cast<float>(kMxfp4Levels[code]) * to_float(scale) * m.scale[n], to_float(number));
        nonzero += to_float(number) != 0.0f;
      }
    }
  }
  EXPECT_GT(nonzero, 1000);
}

}  // namespace
}  // namespace pinion
