// libpinion: its results equal the program's bit for bit.
#include <cstdio>
#include <cstring>

#include "kernels/base/hash.h"
#include "tests/apps/library.h"

namespace pinion {
namespace {

std::string joined_ids(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

std::string hash_text(uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// The data of the file that `pinion logits --all` writes, without the header.
std::vector<float> program_logits(const std::string& folder, const char* quant, std::span<const int32_t> ids) {
  const Folder out;
  const Outcome outcome = run_pinion({"logits", "--model", folder, "--no-cache", "--quant", quant, "--prompt-ids",
                                      joined_ids(ids), "--all", "--out", out / "F.npy"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  const std::string bytes = read_file(out / "F.npy");
  const size_t begin = bytes.find('\n') + 1;
  std::vector<float> values((bytes.size() - begin) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + begin, values.size() * sizeof(float));
  return values;
}

std::vector<fs::path> families() {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(PINION_TEST_DATA "/families")) {
    // Folders of MTP layers have no reference texts.
    if (fs::exists(entry.path() / "expected.json") && read_json(entry.path() / "expected.json").contains("prompts")) {
      folders.push_back(entry.path());
    }
  }
  std::ranges::sort(folders);
  return folders;
}

TEST(Library, GreedyIdsOfFamiliesEqualReference) {
  int64_t compared = 0;
  for (const fs::path& folder : families()) {
    const OwnModel model = open_model_for_test(folder, {.quant = "none", .threads = 1});
    ASSERT_TRUE(model) << folder;
    const json expected = read_json(folder / "expected.json");
    for (const json& prompt : expected["prompts"]) {
      const std::vector<int32_t> ids = prompt["ids"], want = prompt["greedy_ids"];
      const OwnSession session = open_session_for_test(model);
      pinion_generate_options options = generate_options(std::ssize(want));
      options.ignore_end = 1;
      const OwnResult result = generate_in(session.get(), ids, options);
      ASSERT_TRUE(result) << folder;
      EXPECT_EQ(ids_of(result), want) << folder << " " << prompt["name"];
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(Library, LogitsAndIdsEqualProgram) {
  for (const std::string family : {"llama", "qwen3_5", "gpt_oss", "gemma3", "llama_gptq"}) {
    const std::string folder = PINION_TEST_DATA "/families/" + family;
    for (const char* quant : {"none", "w8a8", "w4a8"}) {
      const OwnModel model = open_model_for_test(folder, {.quant = quant});
      const std::vector<int32_t> ids = read_json(folder + "/expected.json")["prompts"][0]["ids"];
      const OwnSession session = open_session_for_test(model);
      const std::vector<float> want = program_logits(folder, quant, ids);
      ASSERT_FALSE(want.empty());
      EXPECT_EQ(logits_after(model, session.get(), ids, true), want) << family << " " << quant;

      const json answer = run_json({"generate", "--model", folder, "--no-cache", "--quant", quant, "--prompt-ids",
                                    joined_ids(ids), "--max-tokens", "20", "--ignore-eos", "--temperature", "0.8",
                                    "--top-k", "40", "--seed", "7", "--json"});
      const uint64_t seed = 7;
      const pinion_setting settings[] = {{"temperature", 0.8}, {"top_k", 40}};
      pinion_generate_options options = generate_options(20);
      options.settings = settings;
      options.setting_count = 2;
      options.seed = &seed;
      options.ignore_end = 1;
      const OwnResult result = generate_in(session.get(), ids, options);
      ASSERT_TRUE(result);
      EXPECT_EQ(ids_of(result), answer["ids"].get<std::vector<int32_t>>()) << family << " " << quant;
      EXPECT_EQ(hash_text(result->logits_hash), answer["stats"]["logits_hash"].get<std::string>())
          << family << " " << quant;
      EXPECT_EQ(result->seed, 7u);
      EXPECT_EQ(result->finish, PINION_FINISH_LENGTH);
      EXPECT_EQ(result->text, nullptr) << "the folder has no tokenizer";
    }
  }
}

TEST(Library, TokenizationEqualsProgram) {
  const OwnModel model = open_model_for_test(kStories);
  for (const std::string text : {"Once upon a time", "", " \n\xC3\xA9 \xF0\x9F\x98\x80", "<s>not a \xFF text"}) {
    for (const bool add_special : {true, false}) {
      std::vector<std::string> arguments = {"tokenize", "--model", kStories};
      if (!add_special) arguments.push_back("--no-special");
      const std::vector<int32_t> ids = tokens_of(model, text, add_special);
      EXPECT_EQ(joined_ids(ids) + "\n", run_pinion(arguments, text).out) << text;
      if (ids.empty()) continue;
      char* back = nullptr;
      size_t bytes = 0;
      expect_ok(pinion_detokenize(model.get(), ids.data(), ids.size(), 0, &back, &bytes));
      EXPECT_EQ(bytes, std::strlen(back));
      EXPECT_EQ(taken(back) + "\n", run_pinion({"detokenize", "--model", kStories, "--ids", joined_ids(ids)}).out);
    }
  }
  const std::string with_zero("a\0b", 3);
  EXPECT_EQ(joined_ids(tokens_of(model, with_zero)) + "\n",
            run_pinion({"tokenize", "--model", kStories}, with_zero).out);
}

TEST(Library, ConversationsEqualTemplateCommand) {
  const OwnModel model = open_model_for_test(kDemo);
  const std::string messages = R"([{"role": "user", "content": "What is <|user|>?"}])";
  const Folder folder;
  write_file(folder / "m.json", messages);
  for (const char* option : {"", "--no-generation-prompt", "--continue-final-message"}) {
    pinion_chat chat = {};
    chat.size = sizeof chat;
    chat.messages = messages.c_str();
    chat.no_generation_prompt = std::string(option) == "--no-generation-prompt";
    chat.continue_final_message = std::string(option) == "--continue-final-message";
    std::vector<std::string> arguments = {"template", "--model", kDemo, "--messages", folder / "m.json"};
    if (*option != '\0') arguments.emplace_back(option);
    char* text = nullptr;
    int32_t* ids = nullptr;
    size_t count = 0;
    expect_ok(pinion_chat_render(model.get(), &chat, &text, &ids, &count));
    EXPECT_EQ(taken(text), run_pinion(arguments).out);
    arguments.push_back("--ids");
    EXPECT_EQ(joined_ids(taken(ids, count)) + "\n", run_pinion(arguments).out);
    expect_ok(pinion_chat_render(model.get(), &chat, &text, nullptr, nullptr));
    pinion_free(text);
  }
}

struct Heard {
  std::vector<int32_t> ids;
  std::string text;
  size_t most = 1000;  // tokens before it ends the text

  static int put(void* user, int32_t id, const char* text, size_t bytes) {
    auto* self = static_cast<Heard*>(user);
    if (id >= 0) self->ids.push_back(id);
    self->text.append(text, bytes);
    return self->ids.size() >= self->most;
  }
};

TEST(Library, CallbackReceivesAndEndsText) {
  const OwnModel model = open_model_for_test(kStories);
  const OwnSession session = open_session_for_test(model);
  const std::vector<int32_t> prompt = tokens_of(model, "Once upon a time");
  const json answer = run_json(generate(kStories, {"--no-cache", "--prompt", "Once upon a time", "--max-tokens", "60",
                                                   "--temperature", "0", "--stop", "park", "--json"}));
  const char* stops[] = {"zzz", "park"};
  Heard heard;
  pinion_generate_options options = generate_options(60);
  options.stops = stops;
  options.stop_count = 2;
  options.user = &heard;
  options.on_token = Heard::put;
  const OwnResult whole = generate_in(session.get(), prompt, options);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->text, answer["text"].get<std::string>());
  EXPECT_EQ(whole->text_bytes, std::strlen(whole->text));
  EXPECT_EQ(ids_of(whole), answer["ids"].get<std::vector<int32_t>>());
  EXPECT_EQ(heard.ids, ids_of(whole));
  EXPECT_EQ(heard.text, whole->text);

  Heard five = {.most = 5};
  options.user = &five;
  const OwnResult cut = generate_in(session.get(), prompt, options);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->finish, PINION_FINISH_STOP);
  EXPECT_EQ(ids_of(cut), std::vector<int32_t>(whole->ids, whole->ids + 5));
  EXPECT_EQ(cut->reused_tokens, std::ssize(prompt) - 1) << "the session held all of the prompt";
}

TEST(Library, BatchEqualsSingleRuns) {
  const OwnModel model = open_model_for_test(kStories);
  const std::vector<std::string> texts = {"Once upon a time", "The dog", "One day, a girl named", "She"};
  const uint64_t seed = 3;
  const pinion_setting warm[] = {{"temperature", 0.9}, {"min_p", 0.05}};
  std::vector<std::vector<int32_t>> prompts;
  std::vector<pinion_generate_options> options;
  std::vector<Heard> heard(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    prompts.push_back(tokens_of(model, texts[i]));
    options.push_back(generate_options(10 + 7 * static_cast<int64_t>(i)));
    if (i % 2) {
      options[i].settings = warm;
      options[i].setting_count = 2;
      options[i].seed = &seed;
    }
    options[i].user = &heard[i];
    options[i].on_token = Heard::put;
  }
  std::vector<pinion_request> requests;
  for (size_t i = 0; i < texts.size(); ++i) requests.push_back({prompts[i].data(), prompts[i].size(), &options[i]});
  for (const int64_t parallel : {0, 1, 3}) {
    heard.assign(texts.size(), {});
    std::vector<pinion_result*> results(texts.size());
    expect_ok(pinion_generate_batch(model.get(), requests.data(), requests.size(), parallel, results.data()));
    for (size_t i = 0; i < texts.size(); ++i) {
      const OwnResult together(results[i]);
      ASSERT_TRUE(together);
      EXPECT_EQ(together->status, PINION_OK);
      EXPECT_STREQ(together->error, "");
      EXPECT_EQ(heard[i].text, together->text);
      const OwnSession session = open_session_for_test(model);
      const OwnResult alone = generate_in(session.get(), prompts[i], options[i]);
      ASSERT_TRUE(alone);
      EXPECT_EQ(ids_of(together), ids_of(alone)) << i;
      EXPECT_EQ(together->logits_hash, alone->logits_hash) << i;
      EXPECT_STREQ(together->text, alone->text) << i;
    }
  }
  expect_ok(pinion_generate_batch(model.get(), nullptr, 0, 0, nullptr));
}

TEST(Library, VectorsEqualThoseOfTheCommand) {
  const std::string folder = PINION_TEST_DATA "/embeddings/gemma3_mean";
  const OwnModel model = open_model_for_test(folder);
  const char* texts[] = {"Ships leave early.", "A recipe"};
  pinion_embed_options options = {sizeof options};
  options.prompt_name = "query";
  options.dimensions = 4;
  float* vectors = nullptr;
  size_t width = 0;
  expect_ok(pinion_embed(model.get(), texts, 2, &options, &vectors, &width));
  ASSERT_EQ(width, 4u);
  for (size_t i = 0; i < 2; ++i) {
    const json line = run_json(
        {"embed", "--model", folder, "--no-cache", "--prompt-name", "query", "--dimensions", "4", "--text", texts[i]});
    for (size_t k = 0; k < 4; ++k) EXPECT_EQ(line["embedding"][k].get<float>(), vectors[4 * i + k]);
  }
  pinion_free(vectors);
}

// Also tests a model with a recurrent state.
TEST(Library, SavedStateContinuesWithSameBits) {
  for (const std::string family : {"llama", "qwen3_5", "lfm2", "falcon_h1"}) {
    const std::string folder = PINION_TEST_DATA "/families/" + family;
    const OwnModel model = open_model_for_test(folder);
    const OwnSession one = open_session_for_test(model, 64), other = open_session_for_test(model, 64);
    const std::vector<int32_t> begin = {4, 9, 2, 17, 5}, rest = {8, 3};
    logits_after(model, one.get(), begin);
    void* state = nullptr;
    size_t bytes = 0;
    expect_ok(pinion_session_save(one.get(), &state, &bytes));
    logits_after(model, other.get(), {{1, 2, 3}});
    expect_ok(pinion_session_load(other.get(), state, bytes));
    int32_t* ids = nullptr;
    size_t count = 0;
    expect_ok(pinion_session_ids(other.get(), &ids, &count));
    EXPECT_EQ(taken(ids, count), begin);
    EXPECT_EQ(logits_after(model, other.get(), rest), logits_after(model, one.get(), rest)) << family;

    static_cast<char*>(state)[bytes / 2] ^= 1;
    EXPECT_EQ(pinion_session_load(other.get(), state, bytes), PINION_ERROR_STATE);
    EXPECT_EQ(pinion_session_load(other.get(), state, bytes - 1), PINION_ERROR_STATE);
    EXPECT_EQ(pinion_session_load(other.get(), state, 0), PINION_ERROR_STATE);
    expect_ok(pinion_session_ids(other.get(), &ids, &count));
    EXPECT_TRUE(taken(ids, count).empty());
    pinion_free(state);
  }
}

TEST(Library, SessionsRewind) {
  const OwnModel model = open_model_for_test(PINION_TEST_DATA "/families/qwen3");
  const OwnSession session = open_session_for_test(model, 32);
  EXPECT_EQ(pinion_session_context(session.get()), 32);
  const std::vector<float> want = logits_after(model, session.get(), {{4, 5, 6}});
  logits_after(model, session.get(), {{7, 8}});
  int64_t left = -1;
  expect_ok(pinion_session_rewind(session.get(), 2, &left));
  EXPECT_EQ(left, 2);
  EXPECT_EQ(logits_after(model, session.get(), {{6}}), want);
  EXPECT_EQ(pinion_session_rewind(session.get(), 4, &left), PINION_ERROR_ARGUMENT);
  EXPECT_EQ(pinion_session_rewind(session.get(), -1, &left), PINION_ERROR_ARGUMENT);
}

TEST(Library, ModelIsDescribed) {
  const OwnModel model =
      open_model_for_test(kStories, {.quant = "w4a8", .kv = "bf16", .threads = 1, .kernels = "scalar"});
  pinion_model_info info = {};
  info.size = sizeof info;
  expect_ok(pinion_model_describe(model.get(), &info));
  EXPECT_STREQ(info.family, "llama");
  EXPECT_STREQ(info.quant, "w4a8");
  EXPECT_STREQ(info.kv, "bf16");
  EXPECT_STREQ(info.kernels, "scalar");
  EXPECT_EQ(info.threads, 1);
  EXPECT_TRUE(info.has_tokenizer);
  EXPECT_EQ(info.vocab_size, 512);
  EXPECT_EQ(info.context_length, 512);
  EXPECT_FALSE(info.from_cache);
  pinion_model_info shorter = {};
  shorter.size = offsetof(pinion_model_info, kv);  // as in an earlier version
  expect_ok(pinion_model_describe(model.get(), &shorter));
  EXPECT_STREQ(shorter.quant, "w4a8");
  EXPECT_EQ(shorter.kv, nullptr);
  int32_t* ids = nullptr;
  size_t count = 0;
  expect_ok(pinion_model_end_ids(model.get(), &ids, &count));
  EXPECT_EQ(taken(ids, count), std::vector<int32_t>{2});
  EXPECT_EQ(pinion_api_version(), uint32_t{PINION_API_VERSION});
  EXPECT_EQ(std::string("pinion ") + pinion_version() + "\n",
            std::string(pinion_build()).substr(0, std::string(pinion_build()).find('\n') + 1));
  EXPECT_EQ(std::string(pinion_build()) + "\n", run_pinion({"--version"}).out);
}

}  // namespace
}  // namespace pinion
