#include "apps/library/generate.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "apps/library/arguments.h"
#include "apps/model/sampling.h"
#include "engine/session/generate.h"

namespace pinion {

bool TextRun::put(int32_t id) {
  const std::string piece = answer ? answer->put(id) : std::string();
  text += piece;
  if (on_token && on_token(user, id, piece.c_str(), piece.size()) != 0) is_stopped = true;
  return !is_stopped && !(answer && answer->is_stopped());
}

void TextRun::finish() {
  if (!answer) return;
  const std::string rest = answer->finish();
  text += rest;
  if (on_token && !is_stopped && !rest.empty()) on_token(user, -1, rest.c_str(), rest.size());
}

namespace {

Error read_setting(const pinion_setting& given, SamplingFlags* flags) {
  const auto* row = std::ranges::find(kSamplerSettings, text_or_empty(given.name), &SamplerSetting::name);
  if (row == std::end(kSamplerSettings)) {
    std::string known;
    for (const SamplerSetting& one : kSamplerSettings) known += (known.empty() ? "" : ", ") + std::string(one.name);
    return error("no such name", "settings", known, "\"" + std::string(text_or_empty(given.name)) + "\"");
  }
  const bool is_whole = !row->count || given.value == std::floor(given.value);
  if (!(given.value >= row->least && given.value <= row->most) || !is_whole) {
    return error("out of range", std::string(row->name),
                 std::string(row->count ? "a whole number from " : "") + std::to_string(row->least) + " to " +
                     std::to_string(row->most),
                 std::to_string(given.value));
  }
  flags->settings[static_cast<size_t>(row - std::begin(kSamplerSettings))] = given.value;
  return {};
}

Error read_sampling(const OpenModel& model, const pinion_generate_options& options, SamplerOptions* out) {
  SamplingFlags flags;
  if (options.setting_count > 0 && !options.settings) return error("NULL", "settings");
  for (const pinion_setting& one : std::span(options.settings, options.setting_count)) {
    if (Error e = read_setting(one, &flags)) return e;
  }
  if (options.seed) flags.seed = *options.seed;
  if (Error e = read_texts(options.dry_breakers, options.dry_breaker_count, "dry_breakers", &flags.dry_breakers)) {
    return e;
  }
  if (Error e = sampler_options(model.run.model, flags, out)) return e;
  return find_dry_breakers(flags, model.tokenizer.get(), out);
}

pinion_finish finish_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return PINION_FINISH_STOP;
    case FinishReason::length:
      return PINION_FINISH_LENGTH;
    case FinishReason::context:
      break;
  }
  return PINION_FINISH_CONTEXT;
}

// A result with what it points to.
struct OwnedResult : pinion_result {
  std::string owned_error;
  std::vector<int32_t> owned_ids;
  std::string owned_text;
};

}  // namespace

Error begin_text(const OpenModel& model, std::span<const int32_t> prompt, const pinion_generate_options* options,
                 TextRun* out) {
  pinion_generate_options given;
  if (Error e = read_options(options, "options", &given)) return e;
  constexpr int64_t kDefaultTokens = 256, kMostTokens = 1 << 30;
  if (given.max_tokens < -1 || given.max_tokens > kMostTokens) {
    return error("out of range", "max_tokens", "-1 to " + std::to_string(kMostTokens),
                 std::to_string(given.max_tokens));
  }
  out->how.max_tokens = given.max_tokens == 0 ? kDefaultTokens : std::max<int64_t>(0, given.max_tokens);
  out->how.ignore_eos = given.ignore_end != 0;
  if (Error e = read_texts(given.stops, given.stop_count, "stops", &out->stops)) return e;
  if (std::ranges::count(out->stops, "") > 0) return error("an empty text", "stops");
  if (!model.tokenizer && !out->stops.empty()) return error("needs a tokenizer", "stops");
  if (Error e = read_sampling(model, given, &out->how.sampler)) return e;
  if (model.tokenizer) {
    const bool at_start = !has_text(*model.tokenizer, prompt);
    out->answer = std::make_unique<AnswerText>(model.tokenizer, out->stops, nullptr, at_start);
  }
  out->user = given.user;
  out->on_token = given.on_token;
  return {};
}

pinion_result* make_result(const TextRun& run, const GenerateResult& result) {
  auto owned = std::make_unique<OwnedResult>();
  owned->owned_ids = result.ids;
  owned->owned_text = run.text;
  static_cast<pinion_result&>(*owned) = {
      .status = PINION_OK,
      .error = owned->owned_error.c_str(),
      .finish = finish_of(result.finish_reason),
      .id_count = owned->owned_ids.size(),
      .ids = owned->owned_ids.data(),
      .text_bytes = owned->owned_text.size(),
      .text = run.answer ? owned->owned_text.c_str() : nullptr,
      .reused_tokens = result.reused_tokens,
      .prefilled_tokens = result.prefilled_tokens,
      .prefill_seconds = result.prefill_seconds,
      .decode_seconds = result.decode_seconds,
      .seed = run.how.sampler.seed,
      .logits_hash = result.logits_hash,
  };
  return owned.release();
}

pinion_result* make_failed_result(pinion_status status, const Error& e) {
  auto owned = std::make_unique<OwnedResult>();
  owned->owned_error = e.message();
  static_cast<pinion_result&>(*owned) = {};
  owned->status = status;
  owned->error = owned->owned_error.c_str();
  return owned.release();
}

namespace {

pinion_status generate_text(pinion_session& handle, std::span<const int32_t> prompt,
                            const pinion_generate_options* options, pinion_result** out) {
  TextRun run;
  if (Error e = begin_text(*handle.model, prompt, options, &run)) return failed(PINION_ERROR_ARGUMENT, e);
  const Turn turn(handle.model->turns);
  if (!turn.is_taken()) return busy();
  Session& session = *handle.session;
  handle.interrupted = false;
  const int64_t capacity = session.sequence.cache.capacity;
  if (Error e = check_prompt(session.model->config, prompt, capacity)) {
    return failed(std::ssize(prompt) > capacity ? PINION_ERROR_CONTEXT : PINION_ERROR_ARGUMENT, e);
  }
  const auto put = [&](int32_t id) { return run.put(id) && !handle.interrupted; };
  GenerateResult result;
  if (Error e = generate(session, prompt, run.how, put, &result)) return failed(PINION_ERROR_RUN, e);
  run.finish();
  *out = make_result(run, result);
  return PINION_OK;
}

}  // namespace
}  // namespace pinion

using namespace pinion;

pinion_status pinion_generate(pinion_session* session, const int32_t* prompt, size_t count,
                              const pinion_generate_options* options, pinion_result** out) {
  return guarded([&] {
    if (!out) return missing("out");
    *out = nullptr;
    if (!session) return missing("session");
    if (!prompt && count > 0) return missing("prompt");
    return generate_text(*session, {prompt, count}, options, out);
  });
}

void pinion_result_free(pinion_result* result) { delete static_cast<OwnedResult*>(result); }
