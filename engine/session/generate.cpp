#include "engine/session/generate.h"

#include <algorithm>
#include <chrono>

#include "engine/forward/hash.h"

namespace pinion {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// How much of the prompt the cache already holds. At least the last token is evaluated again: its logits are wanted.
int64_t common_prefix(std::span<const int32_t> cached, std::span<const int32_t> prompt) {
  const auto [a, b] = std::ranges::mismatch(cached, prompt.first(prompt.size() - 1));
  return a - cached.begin();
}

// A chat renders the whole conversation for each turn, and a template may write the last answer otherwise than it came:
// without its thoughts, and without the "<think>" that opened it at the very end of the last prompt. What stays of a
// prompt is all but these last few tokens.
constexpr int64_t kAnswerOpening = 16;

// Evaluates the prompt up to `place`, where that is not behind.
Error evaluate_up_to(Session& session, std::span<const int32_t> prompt, int64_t place, float* logits) {
  const int64_t held = std::ssize(session.ids);
  if (place <= held) return {};
  return evaluate(session, prompt.subspan(static_cast<size_t>(held), static_cast<size_t>(place - held)), false, logits);
}

// The rest of the prompt, of which the first `shared` tokens are those of the sequence before. Where the model has a
// recurrent state, snapshots where later prompts may part from this one: where the next turn can begin from whatever
// becomes of the answer (one that stays as it came needs none, the session is at its end), and, where that is far from
// it, where this one parted from the last: after the system message, when a chat begins anew.
Error evaluate_prompt(Session& session, std::span<const int32_t> prompt, int64_t shared, float* logits) {
  const bool can_split = !follow_the_sequence(session.model->config);
  if (can_split && can_keep(session.snapshots, session.state)) {
    if (shared > std::ssize(session.ids) + kAnswerOpening) {
      if (Error e = evaluate_up_to(session, prompt, shared, nullptr)) return e;
      keep_snapshot(session);
    }
    if (Error e = evaluate_up_to(session, prompt, std::ssize(prompt) - kAnswerOpening, nullptr)) return e;
  }
  keep_snapshot(session);
  return evaluate_up_to(session, prompt, std::ssize(prompt), logits);
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
  const Model& model = *session.model;
  if (prompt.empty()) return error("empty", "prompt", "at least one token");
  if (std::ssize(prompt) > session.cache.capacity) {
    return error("too long", "prompt", "at most " + std::to_string(session.cache.capacity) + " tokens (the context)",
                 std::to_string(prompt.size()));
  }
  GenerateResult result;
  result.logits_hash = kHashSeed;
  const int64_t shared = common_prefix(session.ids, prompt);
  result.reused_tokens = rewind(session, shared);
  result.prefilled_tokens = std::ssize(prompt) - result.reused_tokens;

  std::vector<float> logits(static_cast<size_t>(model.config.vocab_size));
  const auto prefill_start = Clock::now();
  if (Error e = evaluate_prompt(session, prompt, shared, logits.data())) return e;
  result.prefill_seconds = seconds_since(prefill_start);

  const int64_t regions = session.team->regions();
  const int64_t barriers = session.team->barriers();
  const auto decode_start = Clock::now();
  std::vector<int32_t> history(prompt.begin(), prompt.end());
  Sampler sampler;
  sampler.options = options.sampler;
  while (std::ssize(result.ids) < options.max_tokens) {
    if (options.hash_logits) {
      result.logits_hash = hash_floats(result.logits_hash, logits);
      if (options.tokens_per_hash > 0 && (std::ssize(result.ids) + 1) % options.tokens_per_hash == 0) {
        result.hashes.push_back(result.logits_hash);
      }
    }
    const int32_t id = sample(sampler, logits, session.scratch.activations.panel_best, history);
    if (!options.ignore_eos && std::ranges::find(model.eos_ids, id) != model.eos_ids.end()) {
      result.finish_reason = FinishReason::stop;
      break;
    }
    result.ids.push_back(id);
    history.push_back(id);
    if (!on_token(id)) {
      result.finish_reason = FinishReason::stop;
      break;
    }
    if (std::ssize(result.ids) == options.max_tokens) break;
    if (std::ssize(session.ids) == session.cache.capacity) {
      result.finish_reason = FinishReason::context;
      break;
    }
    if (Error e = evaluate(session, {&id, 1}, false, logits.data())) {
      if (!session.interrupted || !*session.interrupted) return e;
      result.finish_reason = FinishReason::stop;
      break;
    }
    ++result.decode_passes;
  }
  result.decode_seconds = seconds_since(decode_start);
  result.regions = session.team->regions() - regions;
  result.barriers = session.team->barriers() - barriers;
  *out = std::move(result);
  return {};
}

}  // namespace pinion
