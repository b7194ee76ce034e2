// Session images: continuation with the same bits in another session, and refusal of all other bytes.
#include "engine/session/session_image.h"

#include "engine/session/session.h"
#include "tests/engine/stories.h"

namespace pinion {
namespace {

using Bytes = std::vector<std::byte>;

struct Opened {
  std::unique_ptr<Model> model;
  Team team{{-1, -1}};
  std::unique_ptr<Session> session;

  explicit Opened(const std::string& folder, const SchedulerOptions& options = {}, Quant quant = Quant::w8a8) {
    const Error loaded = load_model(folder, {.quant = quant}, &model);
    EXPECT_FALSE(loaded) << loaded.message();
    open(options);
  }
  void open(const SchedulerOptions& options) {
    const Error e = open_session(*model, team, options, &session);
    EXPECT_FALSE(e) << e.message();
  }
  GenerateResult answer(const std::vector<int32_t>& prompt, int64_t tokens) {
    GenerateResult result;
    const GenerateOptions options = {.max_tokens = tokens, .sampler = {}, .ignore_eos = true};
    EXPECT_EQ(generate(*session, prompt, options, [](int32_t) { return true; }, &result).message(), "");
    return result;
  }
  Bytes image() {
    std::unique_ptr<SessionImage> image;
    EXPECT_EQ(make_image(*session, &image).message(), "");
    Bytes bytes;
    for (const std::span<const std::byte> part : image->parts) bytes.insert(bytes.end(), part.begin(), part.end());
    return bytes;
  }
  std::string restore(const Bytes& image) { return restore_image(image, "f", session.get()).message(); }
};

const std::string kFamilies = PINION_TEST_DATA "/families/";

class SessionImages : public testing::TestWithParam<std::string> {};

// Recurrent states, caches of some layers only, longrope before, at and after its change of factors.
TEST_P(SessionImages, ContinueWithTheSameBits) {
  const std::string folder = GetParam() == "stories260k" ? kStories : kFamilies + GetParam();
  for (const KvType kv : {KvType::q8, KvType::bf16, KvType::f32}) {
    Opened first(folder, {.kv = kv});
    Opened second(folder, {.kv = kv, .context = 0, .pass_rows = 5});
    std::vector<int32_t> prompt = some_tokens(40, first.model->config.vocab_size);
    for (int turn = 0; turn < 3; ++turn) {
      const GenerateResult result = first.answer(prompt, 6);
      prompt.insert(prompt.end(), result.ids.begin(), result.ids.end());
      ASSERT_EQ(second.restore(first.image()), "") << turn;
      EXPECT_EQ(second.session->sequence.ids, first.session->sequence.ids);
      prompt.push_back(7);
      const GenerateResult here = first.answer(prompt, 4), there = second.answer(prompt, 4);
      EXPECT_EQ(here.reused_tokens, there.reused_tokens);
      EXPECT_EQ(here.ids, there.ids);
      EXPECT_EQ(here.logits_hash, there.logits_hash);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, SessionImages,
                         testing::Values("stories260k", "qwen3_5", "qwen3_5_value_heads", "lfm2", "granite_hybrid",
                                         "falcon_h1", "phi3_crossing", "llama_dynamic", "gemma3", "gemma3n",
                                         "gemma4_e2b", "qwen3_moe", "mamba", "jamba", "kimi_linear", "bailing_hybrid",
                                         "olmo_hybrid", "zamba2", "recurrent_gemma"),
                         [](const auto& name) { return name.param; });

TEST(SessionImage, OneTokenToMoreThanOneBlock) {
  Opened first(kStories), second(kStories);
  for (const int64_t tokens : {1, 2, 256, 257, 258}) {
    rewind(first.session->sequence, 0);
    first.answer(some_tokens(tokens, 512), 0);
    ASSERT_EQ(second.restore(first.image()), "");
    EXPECT_EQ(std::ssize(second.session->sequence.ids), tokens);
  }
  rewind(first.session->sequence, 0);
  std::unique_ptr<SessionImage> image;
  EXPECT_EQ(make_image(*first.session, &image).message(), "session: empty: want at least one token");
}

TEST(SessionImage, RefusesDamage) {
  Opened opened(kStories);
  opened.answer(some_tokens(20, 512), 0);
  const Bytes image = opened.image();
  for (size_t cut : {size_t{0}, size_t{7}, sizeof(ImageHeader) - 1, sizeof(ImageHeader), image.size() - 1}) {
    EXPECT_NE(opened.restore(Bytes(image.begin(), image.begin() + static_cast<int64_t>(cut))), "") << cut;
    EXPECT_TRUE(opened.session->sequence.ids.empty());
  }
  Bytes longer = image;
  longer.resize(image.size() + 4);
  EXPECT_NE(opened.restore(longer), "");
  for (size_t at = 0; at < image.size(); at += at < 400 ? 1 : 1009) {
    Bytes damaged = image;
    damaged[at] ^= std::byte{0x10};
    EXPECT_NE(opened.restore(damaged), "") << at;
  }
  EXPECT_EQ(opened.restore(image), "");
}

// With a correct checksum, as another program may write it.
TEST(SessionImage, RefusesIdsOutsideTheVocabulary) {
  Opened opened(kStories);
  std::vector<int32_t> prompt = some_tokens(20, 512);
  opened.answer(prompt, 0);
  opened.session->sequence.ids[3] = 512;
  const Error e = restore_image(opened.image(), "f", opened.session.get());
  EXPECT_EQ(e.message(), "f: not of this model: ids outside its vocabulary");
}

TEST(SessionImage, RefusesOtherModels) {
  Opened w8a8(kStories), none(kStories, {}, Quant::none), wide(kStories, {.kv = KvType::f32}), small(kStories);
  small.open({.kv = KvType::q8, .context = 10});
  w8a8.answer(some_tokens(20, 512), 0);
  const Bytes image = w8a8.image();
  EXPECT_EQ(none.restore(image), "f: not of this model: different logits");
  EXPECT_EQ(wide.restore(image), "f: its KV cache has another shape than this model's");
  EXPECT_EQ(small.restore(image), "f: does not fit: want at most 10 tokens, have 20");
  // The same shapes, but one different weight in a norm.
  Opened other(kStories);
  const float* norm = other.model->layers[4][VectorRole::attention_norm].weight;
  std::vector<float> moved(norm, norm + other.model->config.hidden_size);
  moved[11] *= 1.5f;
  other.model->layers[4][VectorRole::attention_norm].weight = moved.data();
  EXPECT_EQ(other.restore(image), "f: not of this model: different logits");
}

}  // namespace
}  // namespace pinion
