// Sessions: the same bits for any threads, prompt chunks and kernels; truncation, limits and errors.
#include "engine/session/session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "tests/engine/one_result.h"
#include "tests/engine/stories.h"
#include "tests/temp_folder.h"

namespace pinion {
namespace {

std::unique_ptr<Model> make_model(const std::string& json, Quant quant) {
  const TempFolder folder;
  const auto path = folder.write("config.json", json);
  std::unique_ptr<Model> model;
  const Error e = synthetic_model(path.string(), {.quant = quant}, &model);
  EXPECT_FALSE(e) << e.message();
  return model;
}

TEST(Session, SameBitsForAnyExecution) {
  for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
    const auto model = load_stories(quant);
    expect_one_result(*model, 40, quant == Quant::none ? KvType::f32 : KvType::q8);
  }
}

// The head in each format with the body in each other one, and single bf16 matrices.
TEST(Session, SameBitsFromMixedFormats) {
  for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
    for (const Format head : {Format::bf16, Format::w8, Format::w4}) {
      LoadOptions options{.quant = quant, .head = head};
      if (quant == Quant::w4a8) options.keep = {"k_proj", "1.mlp.up_proj"};
      std::unique_ptr<Model> model;
      ASSERT_FALSE(load_model(kStories, options, &model));
      EXPECT_EQ(model->head.weight.format, head);
      expect_one_result(*model, 30, KvType::q8);
    }
  }
}

TEST(Session, SameBitsAcrossAttentionChunks) {
  const auto model = load_stories(Quant::w8a8);
  for (const KvType kv : {KvType::bf16, KvType::q8}) expect_one_result(*model, kAttentionChunk + 20, kv);
}

// More panels than a tile has for one row's sums: 79 of the head, 66 each of gate and up.
TEST(Session, SameBitsFromWideMatrices) {
  const std::string wide = R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 4164,
      "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 5003,
      "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false})";
  for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
    expect_one_result(*make_model(wide, quant), 12, quant == Quant::none ? KvType::f32 : KvType::q8);
  }
}

// Decode and prefill teams of different sizes, each of them the larger one once.
TEST(Session, SameBitsWithAPrefillTeam) {
  const auto model = load_stories(Quant::w8a8);
  const std::vector<int32_t> ids = some_tokens(40, model->config.vocab_size);
  const std::vector<float> reference = all_logits(*model, ids, 40, {1, {}});
  for (const int32_t threads : {1, 3}) {
    Team prefill({-1, -1});
    const SchedulerOptions options = {.pass_rows = 9, .prefill_team = &prefill};
    EXPECT_TRUE(same_bits(all_logits(*model, ids, 28, {threads, options}), reference));
    EXPECT_EQ(prefill.regions(), 3) << "28 tokens: three passes of 9, and one token of the decode team";
  }
}

std::atomic<int> follower_calls = 0;

void count_gemm_s8(const GemmTerm* terms, int64_t count, const RowBlocks& blocks, int64_t rows,
                   const int32_t* column_sum, int32_t* acc) {
  ++follower_calls;
  best_kernels().gemm_s8(terms, count, blocks, rows, column_sum, acc);
}

void count_gemm_grouped(const int8_t* a, const RowBlocks& blocks, int64_t rows, const GroupedPanel& panel, float* acc) {
  ++follower_calls;
  best_kernels().gemm_grouped(a, blocks, rows, panel, acc);
}

// As with SME: one worker of a cluster uses one kernel table, the others another one on the same packed rows.
TEST(Session, SameBitsFromMixedKernelTables) {
  for (const Quant quant : {Quant::w8a8, Quant::w4a8}) {
    std::unique_ptr<Model> model;
    ASSERT_FALSE(load_model(kStories, {.quant = quant, .head = Format::bf16}, &model));
    const std::vector<int32_t> ids = some_tokens(60, model->config.vocab_size);
    Kernels follower = best_kernels(), mixed = best_kernels();
    follower.gemm_s8 = count_gemm_s8;
    follower.gemm_grouped = count_gemm_grouped;
    mixed.companion = &follower;
    follower_calls = 0;
    const std::vector<float> reference = all_logits(*model, ids, 60, {1, {}});
    EXPECT_TRUE(same_bits(all_logits(*model, ids, 60, {1, {.kernels = &mixed}}), reference));
    EXPECT_EQ(follower_calls, 0) << "the first worker uses its own table";
    EXPECT_TRUE(same_bits(all_logits(*model, ids, 60, {4, {.kernels = &mixed}}), reference));
    EXPECT_GT(follower_calls, 0) << "three of four workers use the companion";
  }
}

// A window across two attention chunks, and a head_dim that is no multiple of 16.
TEST(Session, SameBitsWithASlidingWindow) {
  const auto model = make_model(R"({"architectures": ["MistralForCausalLM"], "model_type": "mistral", "vocab_size": 70,
      "hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 10, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
      "max_position_embeddings": 700, "sliding_window": 270, "tie_word_embeddings": false})",
                                Quant::w8a8);
  for (const KvType kv : {KvType::bf16, KvType::q8}) expect_one_result(*model, 560, kv);
}

// Soft caps, four norms per layer, GeGLU, layers with different windows and ropes.
TEST(Session, SameBitsFromGemma) {
  const auto gemma2 = make_model(R"({"architectures": ["Gemma2ForCausalLM"], "vocab_size": 70, "hidden_size": 40,
      "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10,
      "query_pre_attn_scalar": 10, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "sliding_window": 9})",
                                 Quant::w8a8);
  expect_one_result(*gemma2, 60, KvType::q8);
  const auto gemma3 = make_model(R"({"architectures": ["Gemma3ForCausalLM"], "vocab_size": 70, "hidden_size": 40,
      "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 10,
      "sliding_window": 9, "sliding_window_pattern": 2})",
                                 Quant::none);
  expect_one_result(*gemma3, 60, KvType::f32);
}

// Norms over all heads and after the branches; a layer without rope; scaled branches.
TEST(Session, SameBitsFromOtherFamilies) {
  const auto olmo2 = make_model(R"({"architectures": ["Olmo2ForCausalLM"], "vocab_size": 70, "hidden_size": 40,
      "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2})",
                                Quant::w8a8);
  expect_one_result(*olmo2, 40, KvType::q8);
  const auto smollm3 = make_model(R"({"architectures": ["SmolLM3ForCausalLM"], "vocab_size": 70, "hidden_size": 40,
      "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4, "no_rope_layer_interval": 2})",
                                  Quant::w8a8);
  expect_one_result(*smollm3, 40, KvType::q8);
  const auto granite = make_model(R"({"architectures": ["GraniteForCausalLM"], "vocab_size": 70, "hidden_size": 40,
      "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4, "embedding_multiplier": 3,
      "attention_multiplier": 0.3, "residual_multiplier": 0.7, "logits_scaling": 3, "attention_bias": true})",
                                  Quant::w8a8);
  expect_one_result(*granite, 40, KvType::q8);
}

// Experts of few and of all tokens, layers with and without experts, more tokens per expert than rows of a tile.
TEST(Session, SameBitsFromMixturesOfExperts) {
  for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
    const auto qwen = make_model(R"({"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 70, "hidden_size": 72,
        "intermediate_size": 52, "moe_intermediate_size": 70, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "num_experts": 9, "num_experts_per_tok": 3, "mlp_only_layers": [1]})",
                                 quant);
    EXPECT_TRUE(qwen->layers[1].experts.empty());
    EXPECT_EQ(qwen->layers[2].experts.size(), 9u);
    EXPECT_EQ(qwen->layers[2][MatrixRole::router].weight.format, Format::bf16);
    expect_one_result(*qwen, 90, quant == Quant::none ? KvType::f32 : KvType::q8);
  }
  const auto mixtral = make_model(R"({"architectures": ["MixtralForCausalLM"], "vocab_size": 70, "hidden_size": 40,
      "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "num_local_experts": 2, "num_experts_per_tok": 2})",
                                  Quant::w8a8);
  expect_one_result(*mixtral, 150, KvType::q8);
}

TEST(Session, SameBitsFromSinksAndFusedExperts) {
  for (const char* name : {"gpt_oss", "gpt_oss_mxfp4"}) {
    std::unique_ptr<Model> model;
    ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + std::string(name), {.quant = Quant::w8a8}, &model));
    expect_one_result(*model, 90, KvType::q8);
  }
  const auto long_text = make_model(R"({"architectures": ["GptOssForCausalLM"], "vocab_size": 70, "hidden_size": 40,
      "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 16, "sliding_window": 270, "num_local_experts": 3, "num_experts_per_tok": 2})",
                                    Quant::none);
  expect_one_result(*long_text, kAttentionChunk + 50, KvType::f32);
}

// Experts as rows of one tensor; rows packed in another order than the file's, with their codes; a branch norm, and a
// rope that some layers lack.
TEST(Session, SameBitsForAnyOrderOfRows) {
  for (const std::string family : {"granite_moe", "glm_codes", "glm_gptq"}) {
    for (const Quant quant : {Quant::w8a8, Quant::w4a8}) {
      std::unique_ptr<Model> model;
      ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, {.quant = quant}, &model));
      expect_one_result(*model, 40, KvType::q8);
    }
  }
}

// Experts wider than all other matrices: the widest quantised rows are the inputs of their down matrices.
TEST(Session, SameBitsFromWideExperts) {
  const std::string wide = R"({"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 70, "hidden_size": 32,
      "intermediate_size": 32, "moe_intermediate_size": 500, "num_hidden_layers": 1, "num_attention_heads": 2,
      "num_key_value_heads": 1, "head_dim": 16, "num_experts": 2, "num_experts_per_tok": 1})";
  for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
    const auto model = make_model(wide, quant);
    EXPECT_EQ(model->layers[0].experts[1][MatrixRole::gate].weight.interleaved, 2);
    expect_one_result(*model, 40, quant == Quant::none ? KvType::f32 : KvType::q8);
  }
}

// Some experts' matrices, or all matrices of one role, stay bf16: inputs are needed in both forms.
TEST(Session, SameBitsFromExpertsOfMixedFormats) {
  for (const std::string keep : {".w2", "experts.1.", "experts.0.w3"}) {
    std::unique_ptr<Model> model;
    ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/mixtral", {.quant = Quant::w8a8, .keep = {keep}}, &model));
    expect_one_result(*model, 50, KvType::q8);
  }
}

// Matrices with a common input: some use the file's codes and the unrotated input, others the rotated one or bf16.
TEST(Session, SameBitsFromCodesBesideRotatedWeights) {
  for (const std::string family : {"llama_mixed", "qwen3_moe_mixed"}) {
    for (const std::vector<std::string>& keep : {std::vector<std::string>{}, {"v_proj", "up_proj"}}) {
      std::unique_ptr<Model> model;
      const LoadOptions options = {.quant = Quant::w8a8, .keep = keep};
      ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/" + family, options, &model));
      expect_one_result(*model, 50, KvType::q8);
    }
  }
}

// Recurrent layers beside gated attention; passes shorter and longer than the convolution.
TEST(Session, SameBitsFromARecurrentState) {
  for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
    std::unique_ptr<Model> model;
    ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/qwen3_5_value_heads", {.quant = quant}, &model));
    expect_one_result(*model, 75, quant == Quant::none ? KvType::f32 : KvType::q8);
    const std::vector<int32_t> ids = some_tokens(30, model->config.vocab_size);
    const std::vector<float> reference = all_logits(*model, ids, 30, {1, {}});
    for (const int64_t chunk : {2, 3, 4, 5}) {
      EXPECT_TRUE(same_bits(all_logits(*model, ids, 26, {2, {.pass_rows = chunk}}), reference)) << chunk;
    }
  }
  const auto wide = make_model(R"({"architectures": ["Qwen3_5ForCausalLM"], "vocab_size": 70, "hidden_size": 40,
      "intermediate_size": 72, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 2,
      "linear_num_value_heads": 4})",
                               Quant::w8a8);
  expect_one_result(*wide, 40, KvType::q8);
}

// A sequence always uses the factors for its length.
TEST(Session, LongRopeReevaluatesAtFactorChange) {
  const auto model = make_model(R"({"architectures": ["Phi3ForCausalLM"], "vocab_size": 70, "hidden_size": 40,
      "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 200,
      "original_max_position_embeddings": 20, "partial_rotary_factor": 0.4, "rope_scaling": {"type": "longrope",
      "short_factor": [1, 1.5], "long_factor": [3, 9]}})",
                                Quant::none);
  const auto vocab = static_cast<size_t>(model->config.vocab_size);
  const std::vector<int32_t> ids = some_tokens(40, model->config.vocab_size);
  const std::span<const int32_t> all = ids;
  Team team({-1, -1});
  const auto fresh = [&](size_t length) {
    std::unique_ptr<Session> session;
    EXPECT_FALSE(open_session(*model, team, {.kv = KvType::f32}, &session));
    std::vector<float> logits(vocab);
    EXPECT_FALSE(evaluate(*session, all.first(length), false, logits.data()));
    return logits;
  };
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {.kv = KvType::f32, .context = 0, .pass_rows = 7}, &session));
  std::vector<float> logits(vocab);
  for (size_t length = 1; length <= ids.size(); ++length) {
    ASSERT_FALSE(evaluate(*session, all.subspan(length - 1, 1), false, logits.data()));
    EXPECT_TRUE(same_bits(logits, fresh(length))) << length << " tokens, one by one";
  }
  rewind(session->sequence, 12);
  ASSERT_FALSE(evaluate(*session, all.subspan(12, 3), false, logits.data()));
  EXPECT_TRUE(same_bits(logits, fresh(15))) << "short factors again";
  EXPECT_EQ(session->sequence.ids.size(), 15u);
}

// More query heads per kv head than one attention task handles.
TEST(Session, SameBitsWithManyQueryHeads) {
  const auto model = make_model(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64,
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 70,
      "num_key_value_heads": 1, "head_dim": 4, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
      "max_position_embeddings": 300, "tie_word_embeddings": true})",
                                Quant::none);
  for (const KvType kv : {KvType::f32, KvType::bf16, KvType::q8}) expect_one_result(*model, 30, kv);
}

TEST(Session, PanelBestOfLastRow) {
  const auto model = load_stories(Quant::w8a8);
  const auto vocab = static_cast<size_t>(model->config.vocab_size);
  const std::vector<int32_t> ids = some_tokens(9, model->config.vocab_size);
  Team team({-1, -1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  std::vector<float> logits(ids.size() * vocab);
  for (const bool all : {true, false}) {
    rewind(session->sequence, 0);
    ASSERT_FALSE(evaluate(*session, ids, all, logits.data()));
    const float* last = logits.data() + (all ? ids.size() - 1 : 0) * vocab;
    const std::span<const int32_t> best = panel_best(*session, session->last_logit_row);
    ASSERT_EQ(std::ssize(best), panel_count(model->config.vocab_size));
    for (size_t panel = 0; panel < best.size(); ++panel) {
      const size_t first = panel * kPanelColumns, end = std::min(vocab, first + kPanelColumns);
      EXPECT_EQ(best[panel], std::max_element(last + first, last + end) - last) << panel;
    }
  }
}

TEST(Session, RewindDropsExactly) {
  const auto model = load_stories(Quant::w8a8);
  const auto vocab = static_cast<size_t>(model->config.vocab_size);
  const std::vector<int32_t> ids = some_tokens(60, model->config.vocab_size);
  Team team({-1, -1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  std::vector<float> first(vocab), second(vocab);
  const std::span<const int32_t> all = ids;
  ASSERT_FALSE(evaluate(*session, all.first(30), false, first.data()));
  ASSERT_FALSE(evaluate(*session, all.subspan(30), false, second.data()));
  rewind(session->sequence, 10);
  EXPECT_EQ(session->sequence.ids.size(), 10u);
  ASSERT_FALSE(evaluate(*session, all.subspan(10, 20), false, second.data()));
  EXPECT_TRUE(same_bits(first, second));
}

// Remains of an older text after the last token, which may be in the same pair of positions, have no effect.
void expect_old_texts_ignored(const Model& model, KvType kv) {
  const auto vocab = static_cast<size_t>(model.config.vocab_size);
  const std::vector<int32_t> ids = some_tokens(60, model.config.vocab_size);
  Team team({-1, -1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(model, team, {.kv = kv}, &session));
  std::vector<float> first(vocab), second(vocab);
  const std::span<const int32_t> all = ids;
  KvCache& cache = session->sequence.cache;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> damage(static_cast<size_t>(model.config.layer[0].head_dim), nan);
  const auto reset_with_nan = [&] {
    rewind(session->sequence, 0);
    take_blocks(&cache, 60);
    for (int64_t position = 0; position < 60; ++position) {
      for (int64_t layer = 0; layer < std::ssize(cache.shape().layers); ++layer) {
        for (int64_t head = 0; head < cache.layer(layer).kv_heads; ++head) {
          if (kv == KvType::q8) {
            std::vector<float> key(static_cast<size_t>(cache.layer(layer).head_dim), nan), value = key;
            cache.write_codes(best_kernels(), position, layer, head, key.data(), value.data());
          } else {
            cache.write(position, layer, head, damage.data(), damage.data(), std::ssize(damage));
          }
        }
      }
    }
  };
  for (const size_t count : {1, 2, 9, 16, 29}) {
    reset_with_nan();
    ASSERT_FALSE(evaluate(*session, all.first(count), false, first.data()));
    EXPECT_FALSE(std::isnan(first[0])) << count;
    reset_with_nan();
    for (size_t i = 0; i < count; ++i) ASSERT_FALSE(evaluate(*session, all.subspan(i, 1), false, second.data()));
    EXPECT_TRUE(same_bits(first, second)) << count << ", one by one";
  }
}

TEST(Session, OldTextsHaveNoEffect) {
  const auto model = load_stories(Quant::w8a8);
  for (const KvType kv : {KvType::f32, KvType::bf16, KvType::q8}) expect_old_texts_ignored(*model, kv);
}

TEST(Session, RefusedTokensChangeNothing) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {.kv = KvType::q8, .context = 8}, &session));
  std::vector<float> logits(static_cast<size_t>(model->config.vocab_size));
  const std::vector<int32_t> nine(9, 1), outside = {1, 512}, negative = {-1};
  EXPECT_EQ(evaluate(*session, nine, false, logits.data()).message(),
            "context: too many tokens: want at most 8, have 9");
  EXPECT_EQ(evaluate(*session, outside, false, logits.data()).message(),
            "token id: not in the vocabulary: want 0 to 511, have 512");
  EXPECT_TRUE(evaluate(*session, negative, false, logits.data()));
  EXPECT_TRUE(session->sequence.ids.empty());
}

TEST(Session, TooLargeCacheIsAnErrorWithSizes) {
  const auto model = make_model(R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 64,
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 64,
      "num_key_value_heads": 64, "head_dim": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
      "max_position_embeddings": 1000000000, "tie_word_embeddings": true})",
                                Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> session;
  const Error e = open_session(*model, team, {}, &session);
  ASSERT_TRUE(e);
  EXPECT_NE(e.message().find("session: too little memory for 1000000000 positions: want"), std::string::npos)
      << e.message();
}

// 5 layers, 4 heads of 8 padded to 16, with scales and centres: 206080 bytes of K and V per 256 positions.
TEST(Session, UntouchedMemoryOfOtherSessionCounts) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> first, second;
  ASSERT_FALSE(open_session(*model, team, {}, &first));
  ASSERT_FALSE(open_session(*model, team, {.also_open = first.get()}, &second));
  first->pool.memory.bytes = 206080 * (int64_t{1} << 32);
  std::byte* const pages = std::exchange(first->pool.memory.data, nullptr);  // none of that size is touched
  const Error e = open_session(*model, team, {.also_open = first.get()}, &second);
  first->pool.memory.data = pages;
  EXPECT_NE(e.message().find(" for the other open model)"), std::string::npos) << e.message();
  EXPECT_NE(e.message().find("885106862 MB"), std::string::npos) << e.message();
}

}  // namespace
}  // namespace pinion
