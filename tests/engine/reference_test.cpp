// The engine against recorded results of the reference implementation: a tiny model of every family
// (tests/data/families) and a published trained one (tests/data/stories260k). See tools/reference/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/load.h"
#include "engine/session/session.h"
#include "kernels/half.h"
#include "loader/config/layer_tensors.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"
#include "tests/engine/families.h"

namespace pinion {
namespace {

const std::filesystem::path kData = PINION_TEST_DATA;

// float32 [rows, columns] of a NumPy file, version 1.0.
struct Array {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<float> values;

  std::span<const float> range(int64_t row, int64_t count) const {
    return std::span(values).subspan(static_cast<size_t>(row * columns), static_cast<size_t>(count * columns));
  }
};

void read_npy(const std::filesystem::path& path, Array* out) {
  std::string file;
  ASSERT_EQ(read_text_file(path, int64_t{1} << 30, &file).message(), "");
  ASSERT_TRUE(file.starts_with(std::string("\x93NUMPY\x01\0", 8))) << path;
  const size_t header_bytes =
      10 + static_cast<unsigned char>(file.at(8)) + 256u * static_cast<unsigned char>(file.at(9));
  const std::string header = file.substr(0, header_bytes);
  ASSERT_NE(header.find("'<f4'"), std::string::npos) << path;
  const size_t shape = header.find("'shape': (");
  ASSERT_NE(shape, std::string::npos) << path;
  long rows = 0, columns = 0;
  ASSERT_EQ(std::sscanf(header.c_str() + shape, "'shape': (%ld, %ld)", &rows, &columns), 2) << path;
  *out = {rows, columns, std::vector<float>(static_cast<size_t>(rows * columns))};
  ASSERT_EQ(file.size() - header_bytes, out->values.size() * sizeof(float)) << path;
  std::memcpy(out->values.data(), file.data() + header_bytes, out->values.size() * sizeof(float));
}

double relative_l2(std::span<const float> value, std::span<const float> reference) {
  double distance = 0, norm = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    distance += std::pow(double{value[i]} - double{reference[i]}, 2);
    norm += std::pow(double{reference[i]}, 2);
  }
  return std::sqrt(distance / norm);
}

std::string fnv1a(const void* data, size_t bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3;
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
  return text.data();
}

struct Engine {
  std::unique_ptr<Model> model;
  Team team{{}};
  std::unique_ptr<Session> session;
};

// The settings of the reference: a bf16 head and an fp32 cache.
void open_engine(const std::filesystem::path& folder, Quant quant, Engine* out) {
  LoadOptions options;
  options.quant = quant;
  options.keep = {"lm_head"};
  ASSERT_EQ(load_model(folder, options, &out->model).message(), "");
  SchedulerOptions session;
  session.kv = KvType::f32;
  session.pass_rows = 32;  // less than the long prompts
  ASSERT_EQ(open_session(*out->model, out->team, session, &out->session).message(), "");
}

// [ids, vocab]
void all_logits(Engine& engine, const std::vector<int32_t>& ids, std::vector<float>* out) {
  rewind(engine.session->sequence, 0);
  out->resize(ids.size() * static_cast<size_t>(engine.model->config.vocab_size));
  ASSERT_EQ(evaluate(*engine.session, ids, true, out->data()).message(), "");
}

void expect_greedy_ids(Engine& engine, const std::vector<int32_t>& prompt, const std::vector<int32_t>& expected) {
  rewind(engine.session->sequence, 0);
  GenerateOptions options;
  options.max_tokens = std::ssize(expected);
  options.ignore_eos = true;
  GenerateResult result;
  const auto continue_always = [](int32_t) { return true; };
  ASSERT_EQ(generate(*engine.session, prompt, options, continue_always, &result).message(), "");
  EXPECT_EQ(result.ids, expected);
}

double perplexity(std::span<const float> logits, std::span<const int32_t> ids, size_t vocab) {
  double sum = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    const std::span<const float> row = logits.subspan(i * vocab, vocab);
    const double max = std::ranges::max(row);
    double total = 0;
    for (const float x : row) total += std::exp(double{x} - max);
    sum += std::log(total) + max - double{row[static_cast<size_t>(ids[i + 1])]};
  }
  return std::exp(sum / static_cast<double>(ids.size() - 1));
}

// Codes and scales of a w8 or w2 tensor, in the order of the file's rows. Several matrices may share a tensor.
struct Codes {
  std::vector<int8_t> codes;
  std::vector<float> scales;
};

// A column of w2: codes minus 1, and the scales of all groups.
Codes ternary_column(const Matrix& m, int64_t n) {
  Codes out;
  const std::byte* panel = panel_of(m, n / kPanelColumns);
  for (int64_t k = 0; k < m.k; ++k) {
    const int byte = std::to_integer<int>(panel[code_offset(Format::w2, k, n)]);
    out.codes.push_back(static_cast<int8_t>((byte >> code_shift(Format::w2, k) & 3) - 1));
  }
  for (int64_t k = 0; k < m.k; k += kW2GroupK) {
    f16 scale;
    std::memcpy(&scale, panel + code_offset(Format::w2, k, 0) + code_bytes(Format::w2) + n % kPanelColumns * 2, 2);
    out.scales.push_back(to_float(scale) * m.scale[n]);
  }
  return out;
}

Codes column(const Matrix& m, int64_t n) {
  if (m.format == Format::w2) return ternary_column(m, n);
  Codes out;
  const auto* panel = reinterpret_cast<const int8_t*>(panel_of(m, n / kPanelColumns));
  for (int64_t k = 0; k < m.k; ++k) out.codes.push_back(panel[w8_offset(k, n)]);
  out.scales.push_back(m.scale[n]);
  return out;
}

template <class T>
void put_row(const std::vector<T>& from, size_t row, std::vector<T>* to) {
  to->resize(std::max(to->size(), (row + 1) * from.size()));
  std::ranges::copy(from, to->begin() + static_cast<std::ptrdiff_t>(row * from.size()));
}

void append(const Matrix& m, const RowOrder& order, Codes* out) {
  const size_t before = order.selects_rows() ? 0 : out->codes.size() / static_cast<size_t>(m.k);
  for (int64_t n = 0; n < m.n; ++n) {
    const Codes one = column(m, n);
    const size_t row = before + static_cast<size_t>(order.file_row(n));
    put_row(one.codes, row, &out->codes);
    put_row(one.scales, row, &out->scales);
  }
}

struct Families : testing::TestWithParam<std::string> {
  const std::filesystem::path folder = kFamilyFolders / GetParam();
  Json expected;

  void SetUp() override { ASSERT_EQ(read_json_file(folder / "expected.json", &expected).message(), ""); }

  // tolerance: relative L2 distance of one prompt's logits.
  void expect_logits(Quant quant, const char* file, double (*tolerance)(const Json& prompt)) {
    Engine engine;
    ASSERT_NO_FATAL_FAILURE(open_engine(folder, quant, &engine));
    Array recorded;
    ASSERT_NO_FATAL_FAILURE(read_npy(folder / file, &recorded));
    ASSERT_EQ(recorded.columns, engine.model->config.vocab_size);
    int64_t first = 0;
    for (const Json& prompt : expected["prompts"]) {
      std::vector<float> logits;
      ASSERT_NO_FATAL_FAILURE(all_logits(engine, prompt["ids"], &logits));
      const std::span<const float> reference = recorded.range(first, prompt["rows"]);
      const double distance = relative_l2(std::span<const float>(logits).last(reference.size()), reference);
      EXPECT_LE(distance, tolerance(prompt)) << prompt["name"];
      first += prompt["rows"].get<int64_t>();
    }
    EXPECT_EQ(first, recorded.rows);
  }
};

TEST_P(Families, GreedyIds) {
  Engine engine;
  ASSERT_NO_FATAL_FAILURE(open_engine(folder, Quant::none, &engine));
  for (const Json& prompt : expected["prompts"]) expect_greedy_ids(engine, prompt["ids"], prompt["greedy_ids"]);
}

TEST_P(Families, LogitsNone) {
  expect_logits(Quant::none, "logits_none.npy", [](const Json&) { return 2e-4; });
}

TEST_P(Families, LogitsW8a8) {
  expect_logits(Quant::w8a8, "logits_w8a8.npy",
                [](const Json& prompt) { return std::max(0.01, 2 * prompt["w8a8_distance"].get<double>()); });
}

TEST_P(Families, Codes) {
  Engine engine;
  ASSERT_NO_FATAL_FAILURE(open_engine(folder, Quant::w8a8, &engine));
  std::map<std::string, Codes> tensors;
  const auto add = [&](const MatrixTensor& one) {
    const std::string part = one.head == kNoHead ? "" : one.transposed ? ".keys" : ".values";
    if (one.is_exact) return;
    append(matrix_of(*engine.model, one).weight, one.order, &tensors[one.module() + part + ".weight"]);
  };
  for (int64_t i = 0; i < engine.model->config.layers; ++i) {
    std::ranges::for_each(layer_matrices(engine.model->config, i), add);
  }
  std::ranges::for_each(model_matrices(engine.model->config), add);
  Json hashes = Json::object();
  for (const auto& [name, t] : tensors) {
    hashes[name] = {fnv1a(t.codes.data(), t.codes.size()), fnv1a(t.scales.data(), t.scales.size() * sizeof(float))};
  }
  EXPECT_EQ(hashes, expected["codes"]);
}

INSTANTIATE_TEST_SUITE_P(Reference, Families, testing::ValuesIn(family_names(FamilyTest::reference)),
                         [](const auto& family) { return family.param; });

// Families whose 4-bit codes w4a8 keeps: the reference computes with their dequantised values.
struct FourBitFamilies : Families {};

// Only the int8 activations differ: measured 0.015 to 0.031. The reference's w8a8, which also rounds the weights, is
// 0.013 to 0.039 from these logits.
TEST_P(FourBitFamilies, LogitsW4a8) {
  expect_logits(Quant::w4a8, "logits_none.npy", [](const Json&) { return 0.04; });
}

INSTANTIATE_TEST_SUITE_P(Reference, FourBitFamilies,
                         testing::Values("llama_gptq", "qwen2_w4a8", "glm_gptq", "gpt_neox_gptq"),
                         [](const auto& family) { return family.param; });

// Folders with an MTP layer: its logits after each token of a prompt and after drafts.
struct MtpFamilies : Families {
  Engine engine;
  std::unique_ptr<Model> model;
  std::unique_ptr<Session> session;

  void open(Quant quant) {
    const LoadOptions options = {.quant = quant, .keep = {"lm_head"}};
    ASSERT_EQ(load_model(folder, options, &engine.model).message(), "");
    ASSERT_EQ(load_mtp(folder, options, *engine.model, &model).message(), "");
    SchedulerOptions whole = {.kv = KvType::f32, .pass_rows = 100, .keeps_hidden = true};
    ASSERT_EQ(open_session(*engine.model, engine.team, whole, &engine.session).message(), "");
    ASSERT_EQ(open_session(*model, engine.team, whole, &session).message(), "");
  }

  // Appends the logits after further tokens; hidden: the hidden states before them.
  void add_logits(std::span<const float> hidden, std::span<const int32_t> tokens, std::vector<float>* out) {
    std::ranges::copy(hidden.first(tokens.size() * static_cast<size_t>(model->config.hidden_size)),
                      session->input_hidden.begin());
    std::vector<float> logits(tokens.size() * static_cast<size_t>(model->config.vocab_size));
    ASSERT_EQ(evaluate(*session, tokens, true, logits.data()).message(), "");
    out->insert(out->end(), logits.begin(), logits.end());
  }

  void expect_mtp_logits(Quant quant, const char* file, double (*tolerance)(const Json& text)) {
    ASSERT_NO_FATAL_FAILURE(open(quant));
    Array recorded;
    ASSERT_NO_FATAL_FAILURE(read_npy(folder / file, &recorded));
    int64_t first = 0;
    for (const Json& text : expected["mtp"]) {
      std::vector<int32_t> tokens = text["ids"];
      const std::vector<int32_t> following = text["following"];
      std::vector<float> logits;
      ASSERT_NO_FATAL_FAILURE(all_logits(engine, tokens, &logits));
      logits.clear();
      rewind(session->sequence, 0);
      tokens.erase(tokens.begin());
      tokens.push_back(following[0]);
      ASSERT_NO_FATAL_FAILURE(add_logits(engine.session->hidden, tokens, &logits));
      size_t last = tokens.size() - 1;
      for (const int32_t draft : std::span(following).subspan(1)) {
        const std::span<const float> own = session->hidden;
        ASSERT_NO_FATAL_FAILURE(
            add_logits(own.subspan(last * static_cast<size_t>(model->config.hidden_size)), {&draft, 1}, &logits));
        last = 0;
      }
      const std::span<const float> reference = recorded.range(first, text["rows"]);
      EXPECT_LE(relative_l2(std::span<const float>(logits).last(reference.size()), reference), tolerance(text))
          << text["name"];
      first += text["rows"].get<int64_t>();
    }
    EXPECT_EQ(first, recorded.rows);
  }
};

TEST_P(MtpFamilies, LogitsNone) {
  expect_mtp_logits(Quant::none, "logits_mtp_none.npy", [](const Json&) { return 2e-4; });
}

TEST_P(MtpFamilies, LogitsW8a8) {
  expect_mtp_logits(Quant::w8a8, "logits_mtp_w8a8.npy",
                    [](const Json& text) { return std::max(0.01, 2 * text["w8a8_distance"].get<double>()); });
}

INSTANTIATE_TEST_SUITE_P(Reference, MtpFamilies, testing::Values("qwen3_5_mtp", "qwen3_5_mtp_beside_vision_packed"),
                         [](const auto& family) { return family.param; });

struct StoriesMode {
  Quant quant;
  const char* ids;         // fields of expected.json
  const char* perplexity;  // of the passage
};

struct Stories : testing::TestWithParam<StoriesMode> {
  const std::filesystem::path folder = kData / "stories260k";
  Json expected;
  Engine engine;

  void SetUp() override {
    ASSERT_EQ(read_json_file(folder / "expected.json", &expected).message(), "");
    ASSERT_NO_FATAL_FAILURE(open_engine(folder, GetParam().quant, &engine));
  }
};

TEST_P(Stories, GreedyIds) {
  for (const Json& generation : expected["generations"]) {
    expect_greedy_ids(engine, generation["prompt_ids"], generation[GetParam().ids]);
  }
}

TEST_P(Stories, Perplexity) {
  const Json& passage = expected["perplexity"];
  const std::vector<int32_t> ids = passage["ids"];
  std::vector<float> logits;
  ASSERT_NO_FATAL_FAILURE(all_logits(engine, ids, &logits));
  const double reference = passage[GetParam().perplexity];
  const double value = perplexity(logits, ids, static_cast<size_t>(engine.model->config.vocab_size));
  EXPECT_NEAR(value, reference, 0.002 * reference);
}

INSTANTIATE_TEST_SUITE_P(Reference, Stories,
                         testing::Values(StoriesMode{Quant::none, "greedy_ids", "ppl"},
                                         StoriesMode{Quant::w8a8, "greedy_ids_w8a8", "ppl_w8a8"}),
                         [](const auto& mode) { return mode.param.quant == Quant::none ? "none" : "w8a8"; });

}  // namespace
}  // namespace pinion
