// Drafts of the checkpoint's MTP layer: the tokens and hidden states that it reads; the text is the same with wrong
// drafts or without the layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "engine/runtime/load.h"
#include "engine/session/session.h"
#include "engine/session/speculation.h"
#include "tests/engine/made_mtp.h"
#include "tests/engine/texts.h"
#include "tests/loader/checkpoint_edits.h"

namespace pinion {
namespace {

const std::string kFamilies = PINION_TEST_DATA "/families/";

// A model and its MTP layer with a session each.
struct Pair {
  std::unique_ptr<Model> model, layer;
  Team team;
  std::unique_ptr<Session> session;

  explicit Pair(std::vector<int32_t> workers = {-1}) : team(std::move(workers)) {}

  void load(const std::string& folder, Quant quant) {
    ASSERT_EQ(load_model(folder, {.quant = quant}, &model).message(), "");
    ASSERT_EQ(load_mtp(folder, {.quant = quant}, *model, &layer).message(), "");
  }

  void open(SchedulerOptions options) {
    ASSERT_EQ(open_session(*model, team, options, &session).message(), "");
    auto drafting = std::make_unique<DraftModel>();
    ASSERT_EQ(open_session(*layer, team, options, &drafting->session).message(), "");
    add_draft_model(*session, std::move(drafting));
  }

  DraftModel& drafting() { return *session->free_drafts.at(0)->model; }

  GenerateResult run(const TextCase& c, bool speculates) {
    session->speculates = speculates;
    GenerateResult result;
    int64_t seen = 0;
    const Error e = generate(*session, c.prompt, c.options, [&](int32_t) { return ++seen < c.stop_after; }, &result);
    EXPECT_FALSE(e) << e.message();
    return result;
  }
};

void expect_all_accepted(MadeFrom from, Quant quant) {
  const TempFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_made(folder, from));
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.load(folder.string(), quant));
  std::mt19937 random(31);
  int64_t drafted = 0;
  for (const int64_t chunk : {16, 17, 256}) {
    ASSERT_NO_FATAL_FAILURE(pair.open({.pass_rows = chunk, .keeps_hidden = true}));
    std::vector<int32_t> last;
    for (int i = 0; i < 24; ++i) {
      TextCase c = random_text(random, kMadeVocab, 60);
      c.options.ignore_eos = true;
      c.options.rules = {};  // the layer cannot predict their effect
      c.stop_after = 1000;
      if (from == MadeFrom::hidden) c.options.sampler = {};                         // the cycle
      if (i % 3 == 1) c.prompt.insert(c.prompt.begin(), last.begin(), last.end());  // a continued text
      if (i % 3 == 2)
        c.prompt.insert(c.prompt.begin(), last.begin(), last.begin() + std::ssize(last) / 2);  // a shortened text
      pair.session->fixed_drafts = 1 + i % kMaxDrafts;
      const GenerateResult with = pair.run(c, true);
      EXPECT_EQ(with.accepted, with.drafted);
      drafted += with.drafted;
      last = c.prompt;
      last.insert(last.end(), with.ids.begin(), with.ids.end());
      expect_same_text(pair.run(c, false), with);
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(drafted, 1000);
}

// The layer predicts from the last sampled token like the model: every draft is accepted, at any temperature.
TEST(Mtp, ReadsTheNextToken) { expect_all_accepted(MadeFrom::token, Quant::none); }

// The layer predicts from the hidden state before the token; for a draft, from its own hidden state.
TEST(Mtp, ReadsThePreviousHiddenState) {
  for (const Quant quant : {Quant::none, Quant::w8a8}) expect_all_accepted(MadeFrom::hidden, quant);
}

// Random weights: nearly every draft is wrong.
TEST(Mtp, DraftsDoNotChangeTheText) {
  std::mt19937 random(32);
  for (const char* family : {"qwen3_5_mtp", "qwen3_5_mtp_beside_vision_packed"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
      for (const bool keeps_hidden : {true, false}) {
        Pair pair;
        ASSERT_NO_FATAL_FAILURE(pair.load(kFamilies + family, quant));
        ASSERT_NO_FATAL_FAILURE(pair.open({.pass_rows = 24, .keeps_hidden = keeps_hidden}));
        std::vector<int32_t> last;
        int64_t drafted = 0;
        for (int i = 0; i < 24; ++i) {
          TextCase c = random_text(random, pair.model->config.vocab_size, 40);
          const auto kept = below(random, 3) * last.size() / 2;
          c.prompt.insert(c.prompt.begin(), last.begin(), last.begin() + static_cast<std::ptrdiff_t>(kept));
          if (std::ssize(c.prompt) > 150) c.prompt.resize(5);
          pair.session->fixed_drafts = i % 4 == 0 ? 0 : 1 + i % kMaxDrafts;
          const GenerateResult with = pair.run(c, true);
          const GenerateResult alone = pair.run(c, false);
          expect_same_text(alone, with);
          drafted += with.drafted;
          last = c.prompt;
          last.insert(last.end(), with.ids.begin(), with.ids.end());
          if (HasFailure()) return;
        }
        EXPECT_GT(drafted, 100);
      }
    }
  }
}

// The logits after a text do not depend on earlier drafts: they equal those of a layer that reads it at once.
std::vector<float> draft_logits(DraftModel& model, const std::vector<int32_t>& text) {
  begin_drafts(model, text, {});
  std::optional<ModelDraft> draft;
  EXPECT_FALSE(next_draft(model, &draft));
  return model.logits;
}

TEST(Mtp, WrongDraftsLeaveNoState) {
  std::mt19937 random(33);
  Pair pair({-1, -1}), fresh;
  for (Pair* one : {&pair, &fresh}) ASSERT_NO_FATAL_FAILURE(one->load(kFamilies + "qwen3_5_mtp", Quant::w8a8));
  for (int i = 0; i < 12; ++i) {
    ASSERT_NO_FATAL_FAILURE(pair.open({.pass_rows = 16 + i, .keeps_hidden = true}));
    ASSERT_NO_FATAL_FAILURE(fresh.open({.pass_rows = 256, .keeps_hidden = true}));
    TextCase c = random_text(random, pair.model->config.vocab_size, 40);
    c.options.ignore_eos = true;
    c.stop_after = 1000;
    pair.session->fixed_drafts = 1 + i;
    std::vector<int32_t> text = c.prompt;
    for (int turn = 0; turn < 3; ++turn) {  // each continues the last
      c.prompt = text;
      const GenerateResult with = pair.run(c, true);
      EXPECT_LT(with.accepted, with.drafted);
      text.insert(text.end(), with.ids.begin(), with.ids.end());
    }
    // generate() does not evaluate the last token.
    c.prompt.assign(text.begin(), text.end() - 1);
    c.options.max_tokens = 0;
    fresh.run(c, true);
    EXPECT_EQ(draft_logits(pair.drafting(), text), draft_logits(fresh.drafting(), text));
  }
}

// Texts that the layer did not follow: it starts again with zeros in place of the lost hidden states.
TEST(Mtp, MayMissPartOfAText) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.load(kFamilies + "qwen3_5_mtp", Quant::w8a8));
  ASSERT_NO_FATAL_FAILURE(pair.open({.pass_rows = 16, .keeps_hidden = true}));
  pair.session->fixed_drafts = 3;
  TextCase c = {.prompt = {}, .options = {.max_tokens = 8, .sampler = {}, .ignore_eos = true}, .stop_after = 1000};
  for (int32_t i = 0; i < 60; ++i) c.prompt.push_back(4 + i * i % 100);
  pair.run(c, false);
  c.prompt.push_back(7);
  const GenerateResult with = pair.run(c, true);
  EXPECT_GT(with.drafted, 0);
  expect_same_text(pair.run(c, false), with);
  EXPECT_GT(std::ssize(pair.drafting().session->sequence.ids), std::ssize(c.prompt));
}

// A full cache of the layer stops drafts, not the text.
TEST(Mtp, FullCacheStopsDrafts) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.load(kFamilies + "qwen3_5_mtp", Quant::w8a8));
  ASSERT_NO_FATAL_FAILURE(pair.open({.pass_rows = 16, .keeps_hidden = true}));
  SchedulerOptions shorter = {.context = 40, .pass_rows = 16};
  ASSERT_FALSE(open_session(*pair.layer, pair.team, shorter, &pair.drafting().session));
  pair.session->fixed_drafts = 3;
  TextCase c = {.prompt = {}, .options = {.max_tokens = 50, .sampler = {}, .ignore_eos = true}, .stop_after = 1000};
  for (const int32_t length : {5, 90, 20}) {
    c.prompt.assign(static_cast<size_t>(length), 4 + length);
    const GenerateResult with = pair.run(c, true);
    EXPECT_EQ(with.drafted > 0, length < 40);
    expect_same_text(pair.run(c, false), with);
  }
}

// --- Errors

std::string mtp_message(const std::filesystem::path& folder) {
  bool is_there = false;
  std::string message = check_mtp(folder.string(), {}, &is_there).message();
  const size_t at = message.find(folder.string());
  return at == std::string::npos ? message : message.replace(at, folder.string().size(), "DIR");
}

// The family's folder with a changed config.
void write_config(const TempFolder& folder, const std::function<void(nlohmann::json&)>& change) {
  std::filesystem::copy(kFamilies + "qwen3_5_mtp/model.safetensors", folder / "model.safetensors");
  std::string text;
  ASSERT_FALSE(read_text_file(kFamilies + "qwen3_5_mtp/config.json", 1 << 20, &text));
  nlohmann::json config = nlohmann::json::parse(text);
  change(config);
  folder.write("config.json", config.dump());
}

std::string message_with_config(const std::function<void(nlohmann::json&)>& change) {
  const TempFolder folder;
  write_config(folder, change);
  return mtp_message(folder.path);
}

TEST(Mtp, MissingMtpLayerIsAnError) {
  EXPECT_EQ(mtp_message(PINION_TEST_DATA "/stories260k"),
            "MTP layer: this llama model has none; `--speculate ngram` needs none");
  EXPECT_EQ(mtp_message(kFamilies + "qwen3_5"),
            "DIR/model.safetensors: mtp.*: no tensors of an MTP layer (`--speculate ngram` needs none)");
  EXPECT_EQ(mtp_message(kFamilies + "qwen3_5_beside_vision"),
            "DIR/model.safetensors: mtp.fc.weight: shape differs: want [28, 56], have [2, 2]");
  EXPECT_EQ(mtp_message(kFamilies + "qwen3_5_mtp"), "");
  EXPECT_EQ(message_with_config([](nlohmann::json& config) { config.erase("mtp_num_hidden_layers"); }), "");
  EXPECT_EQ(message_with_config([](nlohmann::json& config) { config["mtp_num_hidden_layers"] = 0; }),
            "MTP layer: this qwen3_5 model has none; `--speculate ngram` needs none");
}

TEST(Mtp, OtherKindsAreErrors) {
  const std::string refused = ": not supported with an MTP layer (`--speculate ngram` needs none): want ";
  EXPECT_EQ(message_with_config([](nlohmann::json& config) { config["mtp_num_hidden_layers"] = 2; }),
            "mtp_num_hidden_layers" + refused + "1, have 2");
  EXPECT_EQ(message_with_config([](nlohmann::json& config) { config["mtp_use_dedicated_embeddings"] = true; }),
            "mtp_use_dedicated_embeddings" + refused + "false, have true");
  EXPECT_EQ(message_with_config([](nlohmann::json& config) {
              config["rope_parameters"]["rope_type"] = "dynamic", config["rope_parameters"]["factor"] = 2.0;
            }),
            "rope_type" + refused + "fixed frequencies, have frequencies that depend on the length");
}

// The model alone loads: it does not check tensors of the MTP layer.
TEST(Mtp, WrongTensorsAreNamed) {
  const auto message = [](const std::string& broken, float value, const std::string& renamed) {
    const TempFolder folder;
    write_made(folder, made_config().dump(), [&](const std::string& name, std::vector<float>& values) {
      if (name == broken) values.back() = value;
    });
    if (!renamed.empty()) {
      std::string text;
      EXPECT_FALSE(read_text_file(folder / "model.safetensors", 1 << 24, &text));
      text.replace(text.find(broken), broken.size(), renamed);
      folder.write("model.safetensors", text);
    }
    std::unique_ptr<Model> model;
    EXPECT_EQ(load_model(folder.string(), {}, &model).message(), "");
    return mtp_message(folder.path);
  };
  EXPECT_EQ(message("mtp.norm.weight", 0, ""), "");
  EXPECT_EQ(message("mtp.norm.weight", NAN, ""),
            "DIR/model.safetensors: mtp.norm.weight: NaN or infinity in the weights");
  EXPECT_EQ(message("mtp.norm.weight", 0, "mtp.nerm.weight"), "DIR/model.safetensors: mtp.norm.weight: no such tensor");
  EXPECT_EQ(message("mtp.layers.0.self_attn.k_norm.weight", 0, "mtp.layers.1.self_attn.k_norm.weight"),
            "DIR/model.safetensors: mtp.layers.0.self_attn.k_norm.weight: no such tensor");
  EXPECT_EQ(message("model.norm.weight", 0, ""), "");
}

TEST(Mtp, UnknownTensorIsAnError) {
  const EditableFolder folder("families/qwen3_5_mtp");
  folder.edit_tensors([](std::vector<Tensor>& tensors) {
    tensors.push_back({"mtp.layers.0.self_attn.q_proj.bias", "F32", "[1]", std::string(4, 0)});
  });
  EXPECT_EQ(mtp_message(folder.path),
            "DIR/model.safetensors: mtp.layers.0.self_attn.q_proj.bias: tensor that a qwen3_5 model of this "
            "config.json does not have");
}

// Quantised files whose config does not declare that the MTP layer is in floats.
TEST(Mtp, FloatLayerInAFileOfCodes) {
  const TempFolder folder;
  const std::string from = kFamilies + "qwen3_5_mtp_beside_vision_packed/";
  std::filesystem::copy(from + "model.safetensors", folder / "model.safetensors");
  std::string text;
  ASSERT_FALSE(read_text_file(from + "config.json", 1 << 20, &text));
  nlohmann::json config = nlohmann::json::parse(text);
  nlohmann::json& ignore = config["quantization_config"]["ignore"];
  const size_t before = ignore.size();
  ignore.erase(std::find(ignore.begin(), ignore.end(), "re:mtp.*"));
  ASSERT_EQ(ignore.size() + 1, before);
  folder.write("config.json", config.dump());
  EXPECT_EQ(mtp_message(folder.path), "");
}

// --- Weights and memory

TEST(Mtp, SeparateCacheFile) {
  const TempFolder cache;
  const LoadOptions options = {.quant = Quant::w8a8, .cache_folder = cache.string()};
  const std::string folder = kFamilies + "qwen3_5_mtp";
  std::unique_ptr<Model> model, layer;
  std::vector<std::byte> first;
  for (const bool is_there : {false, true}) {
    ASSERT_EQ(load_model(folder, options, &model).message(), "");
    ASSERT_EQ(load_mtp(folder, options, *model, &layer).message(), "");
    for (const Model* one : {model.get(), layer.get()}) {
      EXPECT_EQ(one->from_cache(), is_there);
      EXPECT_EQ(write_to_cache(*one).message(), "");
    }
    EXPECT_NE(layer->cache.path, model->cache.path);
    EXPECT_EQ(layer->head.weight.panels, model->head.weight.panels);
    EXPECT_EQ(layer->embedding.data, model->embedding.data);
    EXPECT_EQ(layer->weight_bytes, std::ssize(layer->packed()));
    const std::vector<std::byte> packed(layer->packed().begin(), layer->packed().end());
    if (is_there) {
      EXPECT_EQ(packed, first);
    }
    first = packed;
  }
}

TEST(Mtp, SessionMemoryCountsHiddenRows) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.load(kFamilies + "qwen3_5_mtp", Quant::w8a8));
  const auto width = static_cast<size_t>(pair.model->config.hidden_size);
  ASSERT_NO_FATAL_FAILURE(pair.open({.pass_rows = 16}));
  EXPECT_TRUE(pair.session->hidden.empty());
  ASSERT_NO_FATAL_FAILURE(pair.open({.pass_rows = 16, .keeps_hidden = true}));
  EXPECT_EQ(pair.session->hidden.size(), 16 * width);
  EXPECT_TRUE(pair.session->input_hidden.empty());
  const Session& layer = *pair.drafting().session;
  EXPECT_EQ(layer.hidden.size(), 16 * width);
  EXPECT_EQ(layer.input_hidden.size(), 16 * width);
  // The size in the out-of-memory error includes the hidden states and the model's own session.
  for (Model* one : {pair.model.get(), pair.layer.get()}) {
    one->config.max_positions = kMaxPositions;
    for (LayerConfig& of : one->config.layer) of.kv_heads = of.heads = 1024;
    const auto wanted = [&](SchedulerOptions options) {
      std::unique_ptr<Session> huge;
      options.pass_rows = int64_t{1} << 24;
      return open_session(*one, pair.team, options, &huge).expected;
    };
    EXPECT_NE(wanted({}), "");
    EXPECT_NE(wanted({.also_open = pair.session.get()}), "");
    EXPECT_EQ(wanted({.keeps_hidden = true}) == wanted({}), one->reads_hidden());
  }
}

}  // namespace
}  // namespace pinion
