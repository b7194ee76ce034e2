// pinion bench --prompt-cache DIR: the time to the first token of a text that is read for the first time, of one that
// shares all but its end with it, and of the same text after a restart.
#include <filesystem>
#include <utility>

#include "apps/bench/bench.h"
#include "kernels/base/clock.h"

namespace pinion {
namespace {

constexpr int64_t kQuestionTokens = 20;

struct FirstToken {
  const char* name;
  int64_t read_tokens = 0;  // evaluated
  int64_t disk_tokens = 0;
  double seconds = 0;
};

std::vector<int32_t> ids_with_seed(int64_t count, int64_t vocab, int64_t seed) {
  std::vector<int32_t> ids(count);
  for (int64_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>((i * 7919 + seed * 104'729 + i * i % 97) % vocab);
  return ids;
}

// A system message of `shared` tokens and a question.
std::vector<int32_t> prompt_of(const Model& model, int64_t shared, int64_t question) {
  const int64_t vocab = model.config.vocab_size;
  std::vector<int32_t> prompt = ids_with_seed(shared, vocab, 1);
  const std::vector<int32_t> rest = ids_with_seed(kQuestionTokens, vocab, 1 + question);
  prompt.insert(prompt.end(), rest.begin(), rest.end());
  return prompt;
}

Error time_first_token(Scheduler& scheduler, std::vector<int32_t> prompt, FirstToken* out) {
  Error failure;
  const int64_t shared = std::ssize(prompt) - kQuestionTokens;
  TextRequest request = {.prompt = std::move(prompt),
                         .options = {.max_tokens = 1, .sampler = {}, .ignore_eos = true, .hash_logits = false},
                         .first_message_tokens = shared,
                         .on_token = [](int32_t, const GenerateResult&) { return true; },
                         .on_end =
                             [&](const Error& e, const GenerateResult& result) {
                               failure = e;
                               out->read_tokens = result.prefilled_tokens;
                               out->disk_tokens = result.loaded_tokens;
                             }};
  int64_t id = 0;
  const double start = now_seconds();
  if (Error e = submit(scheduler, std::move(request), &id)) return e;
  while (step(scheduler)) {
  }
  out->seconds = now_seconds() - start;
  return failure;
}

Error open_with_cache(const Runtime& runtime, const std::string& flag, int64_t positions,
                      std::unique_ptr<Scheduler>* out) {
  SchedulerOptions options = scheduler_options(runtime);
  options.sequences = 2;
  options.context = positions;
  if (Error e = open_scheduler(*runtime.model, *runtime.team, options, out)) return e;
  return open_prompt_cache(flag, **out, (*out)->free_sequences.front().state);
}

}  // namespace

Error measure_prompt_cache(const BenchOptions& options, const Runtime& runtime) {
  for (const int64_t shared : options.prompt_tokens) {
    const int64_t positions = shared + kQuestionTokens + 2;
    FirstToken rows[] = {{"first time"}, {"another question"}, {"first time, after a restart"}};
    // A folder of its own: an earlier run left the same texts.
    const std::string folder = options.prompt_cache + "/bench-" + std::to_string(now_ns());
    for (size_t i = 0; i < std::size(rows); i += 2) {
      std::unique_ptr<Scheduler> scheduler;
      if (Error e = open_with_cache(runtime, folder, positions, &scheduler)) return e;
      if (Error e = time_first_token(*scheduler, prompt_of(*runtime.model, shared, 1), &rows[i])) return e;
      if (i > 0) continue;
      if (Error e = time_first_token(*scheduler, prompt_of(*runtime.model, shared, 2), &rows[1])) return e;
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    print("\n| " + std::to_string(shared) + " common tokens, then " + std::to_string(kQuestionTokens) +
          " | tokens read | from disk | first token (s) | of the first time |\n|---|---:|---:|---:|---:|\n");
    for (const FirstToken& row : rows) {
      print("| " + std::string(row.name) + " | " + std::to_string(row.read_tokens) + " | " +
            std::to_string(row.disk_tokens) +
            formatted(" | %.3f | %.4f |\n", row.seconds, row.seconds / rows[0].seconds));
    }
  }
  return {};
}

}  // namespace pinion
