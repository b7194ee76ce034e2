// libpinion in a process: wrong calls, callbacks, threads, and that it leaves no traces and prints nothing.
#include <sched.h>

#include <atomic>
#include <thread>

#include "tests/apps/library.h"

namespace pinion {
namespace {

// Expects the code, and a message of one line that contains `cause`.
void expect_error(pinion_status status, pinion_status want, const std::string& cause) {
  EXPECT_EQ(status, want) << pinion_error_text();
  EXPECT_NE(std::string(pinion_error_text()).find(cause), std::string::npos) << pinion_error_text();
}

TEST(LibraryMistakes, FoldersAreRefusedWithReason) {
  pinion_model* model = nullptr;
  const Folder folder;
  expect_error(pinion_model_open((folder / "none").c_str(), nullptr, &model), PINION_ERROR_MODEL, folder / "none");
  EXPECT_EQ(model, nullptr);
  copy_stories(folder);
  write_file(folder / "config.json", "{\"architectures\": [\"NoSuchModel\"]}");
  expect_error(pinion_model_open(folder.path.c_str(), nullptr, &model), PINION_ERROR_MODEL, "NoSuchModel");
  expect_error(pinion_model_open(nullptr, nullptr, &model), PINION_ERROR_ARGUMENT, "folder");
  expect_error(pinion_model_open("x", nullptr, nullptr), PINION_ERROR_ARGUMENT, "out");
  // A name longer than the maximum length of a message.
  const std::string long_name(5000, 'x');
  expect_error(pinion_model_open(long_name.c_str(), nullptr, &model), PINION_ERROR_MODEL, "xxx");
  EXPECT_LT(std::string(pinion_error_text()).size(), 3000u);
}

TEST(LibraryMistakes, BadOptionsAreNamed) {
  struct Case {
    pinion_model_options options;
    const char* cause;
  };
  const char* const empty[] = {""};
  constexpr size_t kSize = sizeof(pinion_model_options);
  const Case cases[] = {
      {{.size = 0}, "size is not set"},
      {{.size = ~size_t{0}}, "size is not set"},
      {{.size = kSize, .quant = "w2a2"}, "quant: no such name: want none, w8a8, w4a8, w4a8+, have \"w2a2\""},
      {{.size = kSize, .head = "q4"}, "head: no such name"},
      {{.size = kSize, .kv = "q4"}, "kv: no such name"},
      {{.size = kSize, .keep = empty, .keep_count = 1}, "keep"},
      {{.size = kSize, .keep = nullptr, .keep_count = 1}, "keep: NULL"},
      {{.size = kSize, .lora = nullptr, .lora_count = 1}, "lora: NULL"},
      {{.size = kSize, .threads = -1}, "threads: out of range"},
      {{.size = kSize, .threads = 1000}, "threads: out of range"},
      {{.size = kSize, .prefill_chunk = 1 << 20}, "prefill_chunk: out of range"},
  };
  for (const Case& one : cases) {
    pinion_model* model = nullptr;
    expect_error(pinion_model_open(kStories.c_str(), &one.options, &model), PINION_ERROR_ARGUMENT, one.cause);
    EXPECT_EQ(model, nullptr);
  }
  pinion_model_options options = {.size = kSize, .kernels = "abacus"};
  pinion_model* model = nullptr;
  expect_error(pinion_model_open(kStories.c_str(), &options, &model), PINION_ERROR_MODEL, "abacus");
}

// A program built with a later header may pass larger structs if the additional fields are 0.
TEST(LibraryMistakes, UnknownFieldsMustBeZero) {
  struct Later {
    pinion_model_options known;
    uint64_t unknown;
  };
  Later later = {.known = {.size = sizeof(Later), .no_cache = 1}, .unknown = 0};
  pinion_model* model = nullptr;
  expect_ok(pinion_model_open(kStories.c_str(), &later.known, &model));
  pinion_model_close(model);
  later.unknown = 1;
  expect_error(pinion_model_open(kStories.c_str(), &later.known, &model), PINION_ERROR_ARGUMENT, "does not know");
}

TEST(LibraryMistakes, SessionsRefuseTooManyTokens) {
  const OwnModel model = open_model_for_test(kStories);
  const OwnSession session = open_session_for_test(model, 8);
  const auto evaluate = [&](std::vector<int32_t> ids, std::vector<float>* logits) {
    return pinion_session_evaluate(session.get(), ids.data(), ids.size(), 0, logits->data(), logits->size());
  };
  std::vector<float> logits(512), few(511);
  expect_error(evaluate({1, 600}, &logits), PINION_ERROR_ARGUMENT, "600");
  expect_error(evaluate({1, -1}, &logits), PINION_ERROR_ARGUMENT, "-1");
  expect_error(evaluate({1, 2, 3, 4, 5, 6, 7, 8, 9}, &logits), PINION_ERROR_CONTEXT, "at most 8, have 9");
  expect_error(evaluate({1, 2}, &few), PINION_ERROR_ARGUMENT, "512 numbers, have 511");
  expect_ok(evaluate({1, 2}, &logits));
  int32_t* ids = nullptr;
  size_t count = 0;
  expect_ok(pinion_session_ids(session.get(), &ids, &count));
  EXPECT_EQ(taken(ids, count), (std::vector<int32_t>{1, 2})) << "what was refused is not held";
  expect_error(pinion_session_evaluate(session.get(), nullptr, 1, 0, nullptr, 0), PINION_ERROR_ARGUMENT, "ids");
  pinion_session* other = nullptr;
  expect_error(pinion_session_open(model.get(), -1, &other), PINION_ERROR_ARGUMENT, "-1");
  expect_error(pinion_session_open(nullptr, 0, &other), PINION_ERROR_ARGUMENT, "model");
  void* state = nullptr;
  size_t bytes = 0;
  const OwnSession empty = open_session_for_test(model, 8);
  expect_error(pinion_session_save(empty.get(), &state, &bytes), PINION_ERROR_ARGUMENT, "no token");
}

TEST(LibraryMistakes, GenerationRefusesBadArguments) {
  const OwnModel model = open_model_for_test(kStories);
  const OwnSession session = open_session_for_test(model, 8);
  const auto run = [&](std::vector<int32_t> prompt, const pinion_generate_options& options) {
    pinion_result* result = nullptr;
    const pinion_status status = pinion_generate(session.get(), prompt.data(), prompt.size(), &options, &result);
    EXPECT_EQ(result, nullptr);
    pinion_result_free(result);
    return status;
  };
  const pinion_generate_options plain = generate_options(4);
  expect_error(run({}, plain), PINION_ERROR_ARGUMENT, "prompt");
  expect_error(run({600}, plain), PINION_ERROR_ARGUMENT, "600");
  expect_error(run({1, 2, 3, 4, 5, 6, 7, 8, 9}, plain), PINION_ERROR_CONTEXT, "9");
  const auto setting = [&](const char* name, double value) {
    const pinion_setting one = {name, value};
    pinion_generate_options options = generate_options(4);
    options.settings = &one;
    return run({1}, options);
  };
  expect_error(setting("temprature", 1), PINION_ERROR_ARGUMENT, "\"temprature\"");
  expect_error(setting(nullptr, 1), PINION_ERROR_ARGUMENT, "settings");
  expect_error(setting("temperature", -1), PINION_ERROR_ARGUMENT, "temperature: out of range");
  expect_error(setting("temperature", __builtin_nan("")), PINION_ERROR_ARGUMENT, "temperature");
  expect_error(setting("top_k", 1.5), PINION_ERROR_ARGUMENT, "top_k");
  pinion_generate_options options = plain;
  options.max_tokens = -2;
  expect_error(run({1}, options), PINION_ERROR_ARGUMENT, "max_tokens");
  const char* stops[] = {""};
  options = plain;
  options.stops = stops;
  options.stop_count = 1;
  expect_error(run({1}, options), PINION_ERROR_ARGUMENT, "stops");

  const std::vector<int32_t> good = {1}, bad = {600};
  const pinion_request requests[] = {{good.data(), 1, &plain}, {bad.data(), 1, &plain}};
  pinion_result* results[2];
  expect_error(pinion_generate_batch(model.get(), requests, 2, 0, results), PINION_ERROR_ARGUMENT, "requests[1]");
  EXPECT_EQ(results[0], nullptr);
  expect_error(pinion_generate_batch(model.get(), requests, 2, -1, results), PINION_ERROR_ARGUMENT, "parallel");
}

TEST(LibraryMistakes, EmbedArgumentsAreChecked) {
  const OwnModel model = open_model_for_test(PINION_TEST_DATA "/embeddings/qwen3_last");
  const char* texts[] = {"a", nullptr};
  float* out = nullptr;
  size_t width = 0;
  const auto embed = [&](size_t count, pinion_embed_options options) {
    options.size = sizeof options;
    return pinion_embed(model.get(), texts, count, &options, &out, &width);
  };
  expect_error(pinion_embed(model.get(), nullptr, 1, nullptr, &out, &width), PINION_ERROR_ARGUMENT, "texts");
  expect_error(embed(0, {}), PINION_ERROR_ARGUMENT, "count");
  expect_error(embed(2, {}), PINION_ERROR_ARGUMENT, "texts");
  pinion_embed_options options = {};
  options.pooling = "sum";
  expect_error(embed(1, options), PINION_ERROR_MODEL, "weightedmean");
  options = {};
  options.query = "a";
  expect_error(embed(1, options), PINION_ERROR_ARGUMENT, "makes vectors");
  options = {};
  options.prompt_name = "none";
  expect_error(embed(1, options), PINION_ERROR_ARGUMENT, "document, query");
  options = {};
  options.dimensions = -1;
  expect_error(embed(1, options), PINION_ERROR_ARGUMENT, "dimensions");
  const OwnModel chat = open_model_for_test(kStories);
  expect_error(pinion_embed(chat.get(), texts, 1, nullptr, &out, &width), PINION_ERROR_ARGUMENT, "modules.json");
  EXPECT_EQ(out, nullptr);
}

TEST(LibraryMistakes, MissingTokenizerOrTemplateIsAnError) {
  const OwnModel without = open_model_for_test(PINION_TEST_DATA "/families/llama");
  int32_t* ids = nullptr;
  size_t count = 0;
  expect_error(pinion_tokenize(without.get(), "a", 1, 1, &ids, &count), PINION_ERROR_MODEL, "no tokenizer");
  const OwnModel stories = open_model_for_test(kStories);
  pinion_chat chat = {};
  chat.size = sizeof chat;
  char* text = nullptr;
  expect_error(pinion_chat_render(stories.get(), &chat, &text, nullptr, nullptr), PINION_ERROR_ARGUMENT, "messages");
  chat.messages = "[{\"role\": \"user\"";
  expect_error(pinion_chat_render(stories.get(), &chat, &text, nullptr, nullptr), PINION_ERROR_ARGUMENT, "messages");
  chat.messages = "[]";
  expect_error(pinion_chat_render(stories.get(), &chat, &text, nullptr, nullptr), PINION_ERROR_TEMPLATE,
               "no chat template");
  const OwnModel demo = open_model_for_test(kDemo);
  chat.messages = R"([{"role": "user", "content": "a\u0000b"}])";
  expect_error(pinion_chat_render(demo.get(), &chat, &text, nullptr, nullptr), PINION_ERROR_ARGUMENT, "u0000");
  EXPECT_EQ(pinion_chat_render(demo.get(), &chat, nullptr, &ids, &count), PINION_OK) << pinion_error_text();
  EXPECT_GT(count, 0u);
  pinion_free(ids);
  const int32_t far = 512;
  expect_error(pinion_detokenize(stories.get(), &far, 1, 0, &text, nullptr), PINION_ERROR_ARGUMENT, "512");
}

struct Caller {
  pinion_model* model;
  pinion_session* session;
  pinion_status evaluated, opened, rewound, tokenized;

  static int put(void* user, int32_t, const char*, size_t) {
    auto* self = static_cast<Caller*>(user);
    const int32_t id = 1;
    self->evaluated = pinion_session_evaluate(self->session, &id, 1, 0, nullptr, 0);
    pinion_session* other = nullptr;
    self->opened = pinion_session_open(self->model, 8, &other);
    self->rewound = pinion_session_rewind(self->session, 0, nullptr);
    int32_t* ids = nullptr;
    size_t count = 0;
    self->tokenized = pinion_tokenize(self->model, "a", 1, 0, &ids, &count);
    pinion_free(ids);
    return 0;
  }
};

TEST(LibraryMistakes, CallbacksMayDescribeButNotRun) {
  const OwnModel model = open_model_for_test(kStories);
  const OwnSession session = open_session_for_test(model);
  Caller caller = {model.get(), session.get(), {}, {}, {}, {}};
  pinion_generate_options options = generate_options(2);
  options.user = &caller;
  options.on_token = Caller::put;
  ASSERT_TRUE(generate_in(session.get(), {{1}}, options));
  EXPECT_EQ(caller.evaluated, PINION_ERROR_BUSY);
  EXPECT_EQ(caller.opened, PINION_ERROR_BUSY);
  EXPECT_EQ(caller.rewound, PINION_ERROR_BUSY);
  EXPECT_EQ(caller.tokenized, PINION_OK);
}

TEST(LibraryMistakes, InterruptionEndsText) {
  const OwnModel model = open_model_for_test(kStories);
  const OwnSession session = open_session_for_test(model);
  struct Interrupter {
    pinion_session* session;
    int64_t tokens = 0;
  } interrupter = {session.get()};
  pinion_generate_options options = generate_options(100);
  options.user = &interrupter;
  options.on_token = [](void* user, int32_t, const char*, size_t) {
    auto* self = static_cast<Interrupter*>(user);
    if (++self->tokens == 3) pinion_session_interrupt(self->session);
    return 0;
  };
  const OwnResult cut = generate_in(session.get(), {{1}}, options);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->id_count, 3u);
  EXPECT_EQ(cut->finish, PINION_FINISH_STOP);
  EXPECT_EQ(generate_in(session.get(), {{1}}, generate_options(5))->id_count, 5u) << "the next text is not interrupted";
}

// Threads with a session each share a model, and tokenise at the same time.
TEST(LibraryMistakes, ConcurrentSessionsGetSameBits) {
  const OwnModel model = open_model_for_test(kStories, {.threads = 2});
  const std::vector<int32_t> prompt = tokens_of(model, "The cat");
  const OwnSession first = open_session_for_test(model);
  const std::vector<int32_t> want = ids_of(generate_in(first.get(), prompt, generate_options(20)));
  std::atomic<int> right = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const OwnSession session = open_session_for_test(model);
      for (int round = 0; round < 3; ++round) {
        const OwnResult result = generate_in(session.get(), tokens_of(model, "The cat"), generate_options(20));
        right += result && ids_of(result) == want;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(right, 9);
}

TEST(LibraryMistakes, AffinityIsRestoredNothingIsPrinted) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    const OwnModel model = open_model_for_test(PINION_TEST_DATA "/families/phi3_awq");  // causes a note
    const OwnSession session = open_session_for_test(model);
    generate_in(session.get(), {{4, 5}}, generate_options(4));
  }
  const std::string out = testing::internal::GetCapturedStdout(), err = testing::internal::GetCapturedStderr();
  EXPECT_EQ(out + err, "");
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(LibraryMistakes, MessagesReachCallback) {
  struct Listener {
    std::vector<std::string> notes;
    int64_t done = 0, total = 0;
  } listener;
  const OwnModel model = open_model_for_test(PINION_TEST_DATA "/families/phi3_awq",
                                             {.user = &listener,
                                              .on_progress =
                                                  [](void* user, int64_t done, int64_t total) {
                                                    auto* self = static_cast<Listener*>(user);
                                                    self->done = done, self->total = total;
                                                  },
                                              .on_message =
                                                  [](void* user, pinion_message kind, const char* text) {
                                                    if (kind == PINION_NOTE)
                                                      static_cast<Listener*>(user)->notes.emplace_back(text);
                                                  }});
  ASSERT_TRUE(model);
  ASSERT_EQ(listener.notes.size(), 1u);
  EXPECT_NE(listener.notes[0].find("AWQ"), std::string::npos);
  EXPECT_GT(listener.total, 0);
  EXPECT_EQ(listener.done, listener.total);
}

// Garbage collectors free handles in any order.
TEST(LibraryMistakes, SessionsOutliveTheirModel) {
  OwnModel model = open_model_for_test(kStories);
  const OwnSession session = open_session_for_test(model);
  const std::vector<float> want = logits_after(model, session.get(), {{1, 5}});
  expect_ok(pinion_session_rewind(session.get(), 0, nullptr));
  model.reset();
  std::vector<float> have(want.size());
  const int32_t ids[] = {1, 5};
  expect_ok(pinion_session_evaluate(session.get(), ids, 2, 0, have.data(), have.size()));
  EXPECT_EQ(have, want);
  pinion_model_close(nullptr);
  pinion_session_close(nullptr);
  pinion_result_free(nullptr);
  pinion_free(nullptr);
}

}  // namespace
}  // namespace pinion
