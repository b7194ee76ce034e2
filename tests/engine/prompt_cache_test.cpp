// Prompts on disk: a later scheduler or session continues them with the bits of a fresh run, and survives any damage.
#include "engine/session/prompt_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "engine/session/scheduler.h"
#include "engine/session/session.h"
#include "kernels/base/hash.h"
#include "tests/engine/ids.h"
#include "tests/engine/stories.h"
#include "tests/engine/texts.h"
#include "tests/temp_folder.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;
Ids ids_of(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Ids ids(count);
  for (int32_t& id : ids) id = 3 + static_cast<int32_t>(below(random, 110));
  return ids;
}

class PromptCacheTest : public testing::TestWithParam<const char*> {
 protected:
  PromptCacheTest() {
    EXPECT_FALSE(load_model(std::string(PINION_TEST_DATA "/families/") + GetParam(), {}, &model));
    model->config.max_positions = 4096;
  }

  template <class Runner>
  void attach(Runner& runner, const Sequence& sequence, int64_t limit_bytes = int64_t{1} << 30) {
    PromptCacheOptions options = {
        .folder = folder.path, .limit_bytes = limit_bytes, .on_failure = [this](const Error& e) { failure = e; }};
    const Error e = PromptCache::open(options, *model, runner.pool, sequence.state, &runner.prompt_cache);
    ASSERT_FALSE(e) << e.message();
  }

  GenerateOptions options_of(int64_t tokens) { return {.max_tokens = tokens, .sampler = {}, .ignore_eos = true}; }

  // A new process: another scheduler, whose files are complete when it ends.
  GenerateResult schedule(const Ids& prompt, int64_t limit_bytes = int64_t{1} << 30, PromptCacheCounts* counts = {}) {
    std::unique_ptr<Scheduler> scheduler;
    EXPECT_FALSE(open_scheduler(*model, team, {.sequences = 2, .pass_rows = 100}, &scheduler));
    attach(*scheduler, scheduler->free_sequences[0], limit_bytes);
    GenerateResult result;
    int64_t id = 0;
    const auto on_end = [&](const Error& e, GenerateResult r) {
      EXPECT_FALSE(e) << e.message();
      result = std::move(r);
    };
    TextRequest request = {.prompt = prompt,
                           .options = options_of(6),
                           .on_token = [](int32_t, const GenerateResult&) { return true; },
                           .on_end = on_end};
    EXPECT_FALSE(submit(*scheduler, std::move(request), &id));
    while (step(*scheduler)) {
    }
    expect_as_afresh(prompt, result);
    if (counts) *counts = scheduler->prompt_cache->counts();
    return result;
  }
  GenerateResult converse(const Ids& prompt) {
    std::unique_ptr<Session> session;
    EXPECT_FALSE(open_session(*model, team, {}, &session));
    attach(*session, session->sequence);
    GenerateResult result;
    EXPECT_FALSE(generate(*session, prompt, options_of(6), [](int32_t) { return true; }, &result));
    expect_as_afresh(prompt, result);
    return result;
  }
  void expect_as_afresh(const Ids& prompt, const GenerateResult& result) {
    std::unique_ptr<Session> session;
    ASSERT_FALSE(open_session(*model, team, {}, &session));
    GenerateResult afresh;
    ASSERT_FALSE(generate(*session, prompt, options_of(6), [](int32_t) { return true; }, &afresh));
    EXPECT_EQ(result.ids, afresh.ids);
    EXPECT_EQ(result.logits_hash, afresh.logits_hash);
  }

  std::set<fs::path> files() const {
    std::set<fs::path> all;
    for (const auto& entry : fs::recursive_directory_iterator(folder.path)) {
      if (entry.is_regular_file()) all.insert(entry.path());
    }
    return all;
  }

  TempFolder folder;
  std::unique_ptr<Model> model;
  Team team{{-1}};
  Error failure;
};

class PromptCacheDamage : public PromptCacheTest {};

TEST_P(PromptCacheTest, LaterProcessesContinue) {
  const Ids prompt = ids_of(600, 1);
  EXPECT_EQ(schedule(prompt).reused_tokens, 0);
  const GenerateResult again = schedule(prompt);
  EXPECT_GE(again.reused_tokens, 600 - kAnswerOpening);
  EXPECT_EQ(converse(prompt).reused_tokens, again.reused_tokens) << "a session reads the scheduler's files";
  const Ids next = prompt + again.ids + ids_of(20, 2);
  EXPECT_GE(converse(next).reused_tokens, 605) << "with the answer";
  EXPECT_GE(schedule(next + ids_of(5, 3)).reused_tokens, 625 - kAnswerOpening) << "a scheduler reads a session's files";
  EXPECT_EQ(schedule(ids_of(600, 4)).reused_tokens, 0);
}

TEST_P(PromptCacheTest, OtherWeightsAndCachesShareNothing) {
  const Ids prompt = ids_of(300, 1);
  schedule(prompt);
  const auto before = files();
  model->embedding.bytes -= 2;
  EXPECT_EQ(schedule(prompt).reused_tokens, 0);
  model->embedding.bytes += 2;
  EXPECT_EQ(files().size(), 2 * before.size());
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {.kv = KvType::bf16}, &session));
  attach(*session, session->sequence);
  EXPECT_EQ(session->prompt_cache->find(prompt, false), 0);
}

// Each kind of damage to each file: the text stays the same, and the next run finds whole files again.
TEST_P(PromptCacheDamage, CostsAReadOnly) {
  const Ids prompt = ids_of(600, 1);
  schedule(prompt);
  const int64_t whole = schedule(prompt).reused_tokens;
  for (const fs::path& file : files()) {
    const auto size = static_cast<int64_t>(fs::file_size(file));
    for (const int64_t at : {int64_t{17}, int64_t{40}, size - 1}) {
      SCOPED_TRACE(file.string() + " at " + std::to_string(at));
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(at);
      const int damaged = bytes.get() ^ 0x40;
      bytes.seekp(at);
      bytes.put(static_cast<char>(damaged));
      bytes.close();
      PromptCacheCounts counts;
      EXPECT_LE(schedule(prompt, int64_t{1} << 30, &counts).reused_tokens, whole);
      EXPECT_EQ(schedule(prompt).reused_tokens, whole) << "written again";
    }
    fs::resize_file(file, size / 2);
    schedule(prompt);
    std::ofstream(file).close();
    schedule(prompt);
    fs::remove(file);
    EXPECT_LE(schedule(prompt).reused_tokens, whole);
    EXPECT_EQ(schedule(prompt).reused_tokens, whole);
  }
}

TEST_P(PromptCacheTest, LimitDropsTheLeastRecentlyUsed) {
  constexpr std::chrono::milliseconds kTick{20};  // more than the resolution of the files' times
  PromptCacheCounts counts;
  schedule(ids_of(600, 1), int64_t{1} << 30, &counts);
  const int64_t limit = counts.bytes * 2;
  std::this_thread::sleep_for(kTick);
  schedule(ids_of(600, 2), limit, &counts);
  std::this_thread::sleep_for(kTick);
  EXPECT_GT(schedule(ids_of(600, 1), limit, &counts).reused_tokens, 0);
  std::this_thread::sleep_for(kTick);
  schedule(ids_of(600, 3), limit, &counts);
  EXPECT_LE(counts.bytes, limit);
  int64_t on_disk = 0;
  for (const fs::path& file : files()) on_disk += static_cast<int64_t>(fs::file_size(file));
  EXPECT_EQ(on_disk, counts.bytes);
  EXPECT_GT(schedule(ids_of(600, 1), limit).reused_tokens, 0);
  EXPECT_EQ(schedule(ids_of(600, 2), limit).reused_tokens, 0);
}

TEST_P(PromptCacheTest, FailedWritesAreReportedOnce) {
  const Ids prompt = ids_of(300, 1);
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  attach(*session, session->sequence);
  for (const auto& entry : fs::directory_iterator(folder.path)) fs::remove_all(entry.path());
  GenerateResult result;
  ASSERT_FALSE(generate(*session, prompt, options_of(6), [](int32_t) { return true; }, &result));
  session.reset();
  EXPECT_NE(failure.message().find("cannot write an evaluated prompt"), std::string::npos) << failure.message();
  expect_as_afresh(prompt, result);
  std::ofstream(folder.path / "file") << "x";
  std::unique_ptr<PromptCache> cache;
  std::unique_ptr<Session> other;
  ASSERT_FALSE(open_session(*model, team, {}, &other));
  EXPECT_TRUE(PromptCache::open({.folder = folder.path / "file"}, *model, other->pool, other->sequence.state, &cache));
}

// Another kind of machine reads and writes the same bytes.
TEST_P(PromptCacheTest, SameBytesOnEveryMachine) {
  schedule(ids_of(300, 1));
  uint64_t hash = kHashSeed;
  for (const fs::path& file : files()) {
    EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    std::string bytes(fs::file_size(file), '\0');
    std::ifstream(file, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    hash = hash_bytes(std::as_bytes(std::span(bytes)), hash);
    const std::string name = file.filename();
    hash = hash_bytes(std::as_bytes(std::span(name)), hash);
  }
  const std::map<std::string, std::string> expected = {{"qwen3", "315613f7692f5d55"},
                                                       {"qwen3_5", "61cf9cafffa1790f"},
                                                       {"lfm2", "f453dc5fc4cb5df9"},
                                                       {"llama4", "c34778eeeadeb3af"},
                                                       {"zamba2", "6022eb8f5082af5e"}};
  EXPECT_EQ(hash_text(hash), expected.at(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Recurrent, PromptCacheDamage, testing::Values("qwen3_5"));
INSTANTIATE_TEST_SUITE_P(Families, PromptCacheTest, testing::Values("qwen3", "qwen3_5", "lfm2", "llama4", "zamba2"));

}  // namespace
}  // namespace pinion
