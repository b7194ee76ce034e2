#include "engine/session/generate.h"

#include <algorithm>
#include <chrono>

#include "kernels/hash.h"

namespace pinion {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// How much of the prompt the cache already holds. At least the last token is evaluated again: its logits are wanted.
int64_t common_prefix(std::span<const int32_t> cached, std::span<const int32_t> prompt) {
  const auto [a, b] = std::ranges::mismatch(cached, prompt.first(prompt.size() - 1));
  return a - cached.begin();
}

// A chat template may write the last answer otherwise in the next turn: without its thoughts, and without the "<think>"
// that ended the last prompt. So the last few tokens of a prompt may change.
constexpr int64_t kAnswerOpening = 16;

// Evaluates the prompt up to `place`, where that is not behind.
Error evaluate_up_to(Session& session, std::span<const int32_t> prompt, int64_t place, float* logits) {
  const int64_t held = std::ssize(session.sequence.ids);
  if (place <= held) return {};
  return evaluate(session, prompt.subspan(static_cast<size_t>(held), static_cast<size_t>(place - held)), false, logits);
}

// Evaluates the rest of the prompt, whose first `shared` tokens the session held before. A recurrent state cannot go
// back, so up to two snapshots of it are kept on the way:
//   - at `shared`, if that is far ahead: here this prompt parts from the last one, and the next may part here, too (a
//     new chat after the same system message, say);
//   - shortly before the prompt's end, where the next turn goes on if the template rewrites the answer.
Error evaluate_prompt(Session& session, std::span<const int32_t> prompt, int64_t shared, float* logits) {
  const bool can_split = !frequencies_follow_length(session.model->config);
  if (can_split && can_keep(session.sequence.snapshots, session.sequence.state)) {
    if (shared > std::ssize(session.sequence.ids) + kAnswerOpening) {
      if (Error e = evaluate_up_to(session, prompt, shared, nullptr)) return e;
      keep_snapshot(session);
    }
    if (Error e = evaluate_up_to(session, prompt, std::ssize(prompt) - kAnswerOpening, nullptr)) return e;
  }
  keep_snapshot(session);
  return evaluate_up_to(session, prompt, std::ssize(prompt), logits);
}

// The same from the beginning, with the log probability of each token after those before it.
Error evaluate_with_logprobs(Session& session, std::span<const int32_t> prompt, int32_t top, GenerateResult& result,
                             std::span<float> logits) {
  const auto sink = [&](int64_t first, std::span<const float> rows) {
    for (; !rows.empty(); rows = rows.subspan(logits.size())) {
      const std::span<const float> row = rows.first(logits.size());
      if (++first < std::ssize(prompt)) {
        result.prompt_logprobs.push_back(logprobs_of(row, prompt[static_cast<size_t>(first)], top));
      } else {
        std::ranges::copy(row, logits.begin());
      }
    }
  };
  return evaluate(session, prompt, sink);
}

// Evaluates what the session does not hold of the prompt yet.
Error prefill(Session& session, std::span<const int32_t> prompt, const GenerateOptions& options, GenerateResult& result,
              std::span<float> logits) {
  const int64_t shared = options.logprobs ? 0 : common_prefix(session.sequence.ids, prompt);
  result.reused_tokens = rewind(session.sequence, shared);
  result.prefilled_tokens = std::ssize(prompt) - result.reused_tokens;
  const auto start = Clock::now();
  if (options.logprobs) {
    if (Error e = evaluate_with_logprobs(session, prompt, *options.logprobs, result, logits)) return e;
  } else if (Error e = evaluate_prompt(session, prompt, shared, logits.data())) {
    return e;
  }
  result.prefill_seconds = seconds_since(start);
  return {};
}

void hash_logits(const GenerateOptions& options, std::span<const float> logits, GenerateResult& result) {
  if (!options.hash_logits) return;
  result.logits_hash = hash_floats(result.logits_hash, logits);
  if (options.tokens_per_hash > 0 && (std::ssize(result.ids) + 1) % options.tokens_per_hash == 0) {
    result.hashes.push_back(result.logits_hash);
  }
}

// Draws a token and evaluates it, until something ends the text. `logits` are those after the prompt.
Error decode(Session& session, std::span<const int32_t> prompt, const GenerateOptions& options,
             const std::function<bool(int32_t)>& on_token, GenerateResult& result, std::span<float> logits) {
  const std::vector<int32_t>& eos_ids = session.model->eos_ids;
  const auto end = [&](FinishReason reason) {
    result.finish_reason = reason;
    return Error{};
  };
  std::vector<int32_t> history(prompt.begin(), prompt.end());
  Sampler sampler;
  sampler.options = options.sampler;
  sampler.prompt_tokens = std::ssize(prompt);
  if (options.max_tokens <= 0) return end(FinishReason::length);
  while (true) {
    hash_logits(options, logits, result);
    const int32_t id = sample(sampler, logits, panel_best(session, session.last_logit_row), history);
    if (!options.ignore_eos && std::ranges::binary_search(eos_ids, id)) return end(FinishReason::stop);
    result.ids.push_back(id);
    if (options.logprobs) result.logprobs.push_back(logprobs_of(logits, id, *options.logprobs));
    history.push_back(id);
    if (!on_token(id)) return end(FinishReason::stop);
    if (std::ssize(result.ids) == options.max_tokens) return end(FinishReason::length);
    if (std::ssize(session.sequence.ids) == session.sequence.cache.capacity) return end(FinishReason::context);
    if (Error e = evaluate(session, {&id, 1}, false, logits.data())) {
      // One token is one pass, which is not interrupted; a longrope model may evaluate the whole text again.
      return session.interrupted && *session.interrupted ? end(FinishReason::stop) : e;
    }
    ++result.decode_passes;
  }
}

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::context:
      break;
  }
  return "context";
}

Error generate(Session& session, std::span<const int32_t> prompt, const GenerateOptions& options,
               const std::function<bool(int32_t)>& on_token, GenerateResult* out) {
  if (prompt.empty()) return error("empty", "prompt", "at least one token");
  if (std::ssize(prompt) > session.sequence.cache.capacity) {
    return error("too long", "prompt",
                 "at most " + std::to_string(session.sequence.cache.capacity) + " tokens (the context)",
                 std::to_string(prompt.size()));
  }
  GenerateResult result;
  result.logits_hash = kHashSeed;
  std::vector<float> logits(static_cast<size_t>(session.model->config.vocab_size));
  if (Error e = prefill(session, prompt, options, result, logits)) return e;

  const int64_t regions = session.team->regions();
  const int64_t barriers = session.team->barriers();
  const auto decode_start = Clock::now();
  if (Error e = decode(session, prompt, options, on_token, result, logits)) return e;
  result.decode_seconds = seconds_since(decode_start);
  result.regions = session.team->regions() - regions;
  result.barriers = session.team->barriers() - barriers;
  *out = std::move(result);
  return {};
}

}  // namespace pinion
