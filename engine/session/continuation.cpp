#include "engine/session/continuation.h"

#include <iterator>

#include "kernels/base/hash.h"

namespace pinion {
namespace {

void hash_logits(const GenerateOptions& options, std::span<const float> logits, GenerateResult& result) {
  if (!options.hash_logits) return;
  result.logits_hash = hash_floats(result.logits_hash, logits);
  if (options.tokens_per_hash > 0 && (std::ssize(result.ids) + 1) % options.tokens_per_hash == 0) {
    result.hashes.push_back(result.logits_hash);
  }
}

Error check_logit_bias(const ModelConfig& config, std::span<const LogitBias> biases) {
  int64_t last = -1;
  for (const auto& [id, bias] : biases) {
    if (Error e = check_ids(config, {&id, 1})) return error(e.message(), "logit bias");
    if (id <= last) return error("not ascending", "logit bias", "each id once, after " + std::to_string(last), id);
    if (!(bias <= std::numeric_limits<float>::max())) {
      return error("out of range", "logit bias", "finite, or minus infinity", bias);
    }
    last = id;
  }
  return {};
}

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  constexpr const char* kNames[] = {"stop", "length", "context"};
  return kNames[static_cast<size_t>(reason)];
}

Error check_ids(const ModelConfig& config, std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= config.vocab_size) {
      return error("not in the vocabulary", "token id", "0 to " + std::to_string(config.vocab_size - 1), id);
    }
  }
  return {};
}

Error check_prompt(const ModelConfig& config, std::span<const int32_t> prompt, int64_t capacity) {
  if (prompt.empty()) return error("empty", "prompt", "at least one token");
  if (std::ssize(prompt) > capacity) {
    return error("too long", "prompt", at_most(capacity) + " tokens (the context)", prompt.size());
  }
  return check_ids(config, prompt);
}

Error check_generate_options(const ModelConfig& config, const GenerateOptions& options) {
  for (const std::optional<int32_t>& top : {options.logprobs, options.prompt_logprobs}) {
    if (top && *top < 0) return error("out of range", "log probabilities", "at least 0", *top);
  }
  const SamplerOptions& sampler = options.sampler;
  for (const std::vector<int32_t>& sequence : sampler.banned) {
    if (Error e = check_ids(config, sequence)) return e;
    if (sequence.empty()) return error("empty", "banned tokens", "at least one id");
  }
  if (Error e = check_ids(config, sampler.allowed_ids)) return e;
  if (Error e = check_ids(config, options.stop_ids)) return e;
  return check_logit_bias(config, sampler.logit_bias);
}

bool lacks_prompt_logprobs(const Continuation& text) {
  return text.options.prompt_logprobs && std::ssize(text.result.prompt_logprobs) < text.sampler.prompt_tokens - 1;
}

void add_prompt_logprobs(Continuation& text, std::span<const float> logits, int64_t vocab, const Workers& workers) {
  if (!lacks_prompt_logprobs(text)) return;
  std::vector<Logprobs>& results = text.result.prompt_logprobs;
  const int64_t first = std::ssize(results), missing = text.sampler.prompt_tokens - 1 - first;
  const int64_t rows = std::min(missing, std::ssize(logits) / vocab);
  results.resize(first + rows);
  run_pieces(workers, rows, [&](int64_t row) {
    const int64_t token = first + row;
    results[token] =
        logprobs_of(logits.subspan(row * vocab, vocab), text.history[token + 1], *text.options.prompt_logprobs);
  });
}

Continuation begin_continuation(std::span<const int32_t> prompt, const GenerateOptions& options) {
  Continuation text;
  text.options = options;
  text.history.assign(prompt.begin(), prompt.end());
  text.sampler.options = options.sampler;
  text.sampler.prompt_tokens = std::ssize(prompt);
  text.result.logits_hash = kHashSeed;
  if (options.rules) text.rules = options.rules();
  return text;
}

void draw_token(Continuation& text, std::span<const float> logits, std::span<const int32_t> panel_best,
                std::span<const int32_t> eos_ids) {
  hash_logits(text.options, logits, text.result);
  TextRules* rules = text.rules.get();
  if (rules && text.result.ids.empty()) {
    text.failure = rules->begin(std::ssize(logits), eos_ids);
    text.sampler.allowed = rules->allowed;
    if (text.failure || rules->is_complete) return;
  }
  std::vector<int32_t>& forbidden = text.sampler.forbidden;
  forbidden.clear();
  if (std::ssize(text.result.ids) < text.options.min_tokens) {
    forbidden.assign(eos_ids.begin(), eos_ids.end());
    std::ranges::copy(text.options.stop_ids, std::back_inserter(forbidden));
  }
  const int32_t id = sample(text.sampler, logits, panel_best, text.history);
  const std::vector<float>& adjusted = text.sampler.adjusted;
  const bool is_excluded = !adjusted.empty() && adjusted[id] == -std::numeric_limits<float>::infinity();
  if (is_excluded) text.failure = error("no allowed token is left", rules ? "grammar" : kAllowedTokens);
  if (text.failure) return;
  text.drawn = {.id = id, .logprobs = {}};
  if (text.options.logprobs) text.drawn->logprobs = logprobs_of(logits, id, *text.options.logprobs);
}

int64_t candidates_needed(const Continuation& text) {
  const GenerateOptions& options = text.options;
  const bool has_min = std::ssize(text.result.ids) < options.min_tokens;
  // The first draw begins the rules, whose mask is unknown before it.
  const bool has_mask = text.rules && (text.result.ids.empty() || !text.rules->allowed.empty());
  const bool reads_all = options.logprobs || options.hash_logits || has_mask || has_min || lacks_prompt_logprobs(text);
  return reads_all ? 0 : candidates_needed(options.sampler);
}

bool append_drawn(Continuation& text, std::span<const int32_t> eos_ids, int64_t capacity, const OnToken& on_token) {
  GenerateResult& result = text.result;
  const auto end = [&](FinishReason reason) {
    result.finish_reason = reason;
    return false;
  };
  TextRules* rules = text.rules.get();
  std::optional<DrawnToken> drawn = std::exchange(text.drawn, {});
  if (!drawn) return end(FinishReason::stop);
  const bool ignores_eos = text.options.ignore_eos && (!rules || rules->allowed.empty());
  const bool is_stop = std::ranges::find(text.options.stop_ids, drawn->id) != text.options.stop_ids.end();
  if (is_stop || (!ignores_eos && std::ranges::binary_search(eos_ids, drawn->id))) {
    result.end_logprobs = std::move(drawn->logprobs);
    return end(FinishReason::stop);
  }
  result.ids.push_back(drawn->id);
  if (drawn->logprobs) result.logprobs.push_back(*std::move(drawn->logprobs));
  text.history.push_back(drawn->id);
  if (!on_token(drawn->id)) return end(FinishReason::stop);
  if (rules) {
    text.failure = rules->add(drawn->id);
    text.sampler.allowed = rules->allowed;
    if (text.failure || rules->is_complete) return end(FinishReason::stop);
  }
  if (std::ssize(result.ids) == text.options.max_tokens) return end(FinishReason::length);
  if (std::ssize(text.history) > capacity) return end(FinishReason::context);
  return true;
}

}  // namespace pinion
