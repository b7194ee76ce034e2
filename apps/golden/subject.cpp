#include "apps/golden/subject.h"

#include "engine/session/generate.h"
#include "kernels/base/hash.h"

namespace pinion {
namespace {

// What the ids add to the prompt's text, as completions of a server have it.
std::string text_behind(const std::shared_ptr<const Tokenizer>& tokenizer, const GoldenPrompt& prompt,
                        std::span<const int32_t> ids) {
  if (!tokenizer) return {};
  StreamDecoder decoder(tokenizer, true, !has_text(*tokenizer, prompt.ids));
  std::string text;
  for (const int32_t id : ids) text += decoder.put(id);
  return text + decoder.finish();
}

Error answer_prompt(const Runtime& runtime, const Golden& golden, const GoldenPrompt& prompt,
                    const std::shared_ptr<const Tokenizer>& tokenizer, GoldenAnswer* out) {
  std::unique_ptr<Session> session;
  if (Error e = open_session(runtime, {.capacity = std::ssize(prompt.ids) + prompt.max_tokens}, &session)) return e;
  GenerateResult result;
  const GenerateOptions options = {.max_tokens = prompt.max_tokens,
                                   .sampler = golden.sampler,
                                   .ignore_eos = false,
                                   .hash_logits = true,
                                   .tokens_per_hash = kTokensPerHash};
  if (Error e = generate(*session, prompt.ids, options, [](int32_t) { return true; }, &result)) return e;
  *out = golden_answer(result, text_behind(tokenizer, prompt, result.ids));
  return {};
}

Error record_prompt(const Subject& subject, const Golden& golden, GoldenPrompt* prompt, GoldenAnswer* out) {
  if (prompt->text && !subject.has_tokenizer) return error("no tokenizer", subject.name);
  if (prompt->text) {
    if (Error e = subject.encode(*prompt->text, true, &prompt->ids)) return e;
  }
  const int64_t tokens = std::ssize(prompt->ids) + prompt->max_tokens;
  if (subject.context > 0 && tokens > subject.context) {  // it would end the text elsewhere than the model does
    return error("prompt and answer may be longer than the server's context", subject.name,
                 "at most " + std::to_string(subject.context) + " tokens", std::to_string(tokens));
  }
  return subject.answer(golden, *prompt, out);
}

}  // namespace

Subject model_subject(const Runtime& runtime, const std::string& folder, std::shared_ptr<const Tokenizer> tokenizer) {
  Subject out{.name = folder, .has_tokenizer = tokenizer != nullptr};
  out.answer = [&runtime, tokenizer](const Golden& golden, const GoldenPrompt& prompt, GoldenAnswer* answer) {
    return answer_prompt(runtime, golden, prompt, tokenizer, answer);
  };
  if (!tokenizer) return out;
  out.encode = [folder, tokenizer](const std::string& text, bool adds_special, std::vector<int32_t>* ids) {
    if (adds_special) return encode_prompt(folder, *tokenizer, text, ids);
    return encode(*tokenizer, text, {.add_special = false}, ids);
  };
  out.decode = [tokenizer](std::span<const int32_t> ids) { return decode(*tokenizer, ids); };
  out.token_text = [tokenizer](int32_t id) { return token_text(*tokenizer, id); };
  return out;
}

Error record(const Subject& subject, Golden* golden) {
  for (GoldenPrompt& prompt : golden->prompts) {
    if (Error e = record_prompt(subject, *golden, &prompt, &golden->answers.emplace_back())) return e;
  }
  return {};
}

std::string weights_hash(const Model& model) {
  if (model.exchange) return {};
  return hash_text(hash_words(kHashSeed, model.packed()));
}

}  // namespace pinion
