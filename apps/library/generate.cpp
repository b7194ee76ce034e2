// Generation for C: one request in a session, or many at once through the scheduler.
#include <cmath>
#include <utility>

#include "apps/library/interface.h"
#include "engine/session/scheduler.h"
#include "loader/files/json.h"
#include "tokenizer/answers/answer_text.h"

namespace pinion {
namespace {

// One request and its text so far. Must not move once it has started: the callbacks point to it.
struct Generation {
  GenerateOptions how;
  std::vector<std::string> stops;
  std::unique_ptr<AnswerText> answer;  // null: no tokenizer
  std::string text;
  void* user = nullptr;
  pinion_on_token on_token = nullptr;
  bool is_stopped = false;  // by the callback

  // Returns false if the generation ends.
  bool put(int32_t id) {
    const std::string added = answer ? answer->put(id) : std::string();
    text += added;
    if (on_token && on_token(user, id, added.c_str(), added.size()) != 0) is_stopped = true;
    return !is_stopped && !(answer && answer->is_stopped());
  }
  // Emits the text that was held back.
  void finish() {
    if (!answer) return;
    const std::string rest = answer->finish();
    text += rest;
    if (on_token && !is_stopped && !rest.empty()) on_token(user, -1, rest.c_str(), rest.size());
  }
};

Error read_setting(const pinion_setting& given, SamplingFlags* flags) {
  const auto* row = std::ranges::find(kSamplerSettings, text_or_empty(given.name), &SamplerSetting::name);
  if (row == std::end(kSamplerSettings)) {
    std::vector<std::string> known;
    for (const SamplerSetting& setting : kSamplerSettings) known.emplace_back(setting.name);
    return error("no such name", "settings", joined(known), "\"" + std::string(text_or_empty(given.name)) + "\"");
  }
  const bool is_whole = !row->count || given.value == std::floor(given.value);
  if (!(given.value >= row->min && given.value <= row->max) || !is_whole) {
    return error("out of range", std::string(row->name),
                 std::string(row->count ? "a whole number from " : "") + std::to_string(row->min) + " to " +
                     std::to_string(row->max),
                 given.value);
  }
  flags->settings[row - std::begin(kSamplerSettings)] = given.value;
  return {};
}

Error read_sampling(const OpenModel& model, const pinion_generate_options& given, SamplerOptions* out) {
  SamplingFlags flags;
  if (given.setting_count > 0 && !given.settings) return error("NULL", "settings");
  for (const pinion_setting& setting : std::span(given.settings, given.setting_count)) {
    if (Error e = read_setting(setting, &flags)) return e;
  }
  if (given.seed) flags.seed = *given.seed;
  if (Error e = read_texts(given.dry_breakers, given.dry_breaker_count, "dry_breakers", &flags.dry_breakers)) return e;
  if (Error e = sampler_options(model.run.model, flags, out)) return e;
  return find_dry_breakers(flags, model.tokenizer.get(), out);
}

// By FinishReason.
constexpr pinion_finish kFinishes[] = {PINION_FINISH_STOP, PINION_FINISH_LENGTH, PINION_FINISH_CONTEXT};

// A result with the memory that its fields point to.
struct OwnedResult : pinion_result {
  std::string owned_error;
  std::vector<int32_t> owned_ids;
  std::string owned_text;
};

Error begin_generation(const OpenModel& model, std::span<const int32_t> prompt, const pinion_generate_options* options,
                       Generation* out) {
  pinion_generate_options given;
  if (Error e = read_options(options, "options", &given)) return e;
  constexpr int64_t kDefaultTokens = 256, kMaxTokens = 1 << 30;
  if (Error e = check_range("max_tokens", given.max_tokens, -1, kMaxTokens)) return e;
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

pinion_result* make_result(const Generation& generation, const GenerateResult& result) {
  auto owned = std::make_unique<OwnedResult>();
  owned->owned_ids = result.ids;
  owned->owned_text = generation.text;
  static_cast<pinion_result&>(*owned) = {
      .status = PINION_OK,
      .error = owned->owned_error.c_str(),
      .finish = kFinishes[static_cast<size_t>(result.finish_reason)],
      .id_count = owned->owned_ids.size(),
      .ids = owned->owned_ids.data(),
      .text_bytes = owned->owned_text.size(),
      .text = generation.answer ? owned->owned_text.c_str() : nullptr,
      .reused_tokens = result.reused_tokens,
      .prefilled_tokens = result.prefilled_tokens,
      .prefill_seconds = result.prefill_seconds,
      .decode_seconds = result.decode_seconds,
      .seed = generation.how.sampler.seed,
      .logits_hash = result.logits_hash,
  };
  return owned.release();
}

pinion_result* make_failed_result(const Error& e) {
  auto owned = std::make_unique<OwnedResult>();
  owned->owned_error = e.message();
  static_cast<pinion_result&>(*owned) = {};
  owned->status = PINION_ERROR_RUN;
  owned->error = owned->owned_error.c_str();
  return owned.release();
}

pinion_status generate_text(pinion_session& handle, std::span<const int32_t> prompt,
                            const pinion_generate_options* options, pinion_result** out) {
  Generation generation;
  if (Error e = begin_generation(*handle.model, prompt, options, &generation)) return invalid(e);
  const PassLock lock(handle.model->passes);
  if (!lock.is_held()) return busy();
  Session& session = *handle.session;
  handle.interrupted = false;
  const int64_t capacity = session.sequence.cache.capacity;
  if (Error e = check_prompt(session.model->config, prompt, capacity)) {
    return failed(std::ssize(prompt) > capacity ? PINION_ERROR_CONTEXT : PINION_ERROR_ARGUMENT, e);
  }
  const auto put = [&](int32_t id) { return generation.put(id) && !handle.interrupted; };
  GenerateResult result;
  if (Error e = generate(session, prompt, generation.how, put, &result)) return failed(PINION_ERROR_RUN, e);
  generation.finish();
  *out = make_result(generation, result);
  return PINION_OK;
}

// --- Batches

struct Batch {
  std::vector<Generation> generations;
  std::vector<pinion_result*> results;  // null: not finished

  ~Batch() {
    for (pinion_result* result : results) pinion_result_free(result);
  }
};

Error begin_all(const OpenModel& model, std::span<const pinion_request> requests, Batch* batch) {
  batch->generations.resize(requests.size());
  batch->results.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::string where = "requests[" + std::to_string(i) + "]";
    if (!requests[i].prompt && requests[i].count > 0) return error("NULL", where + ".prompt");
    const std::span prompt(requests[i].prompt, requests[i].count);
    if (Error e = begin_generation(model, prompt, requests[i].options, &batch->generations[i]))
      return error(e.message(), where);
  }
  return {};
}

void end_text(Batch& batch, size_t index, const Error& e, const GenerateResult& result) {
  Generation& generation = batch.generations[index];
  if (!e) generation.finish();
  batch.results[index] = e ? make_failed_result(e) : make_result(generation, result);
}

Error submit_all(std::span<const pinion_request> requests, Scheduler& scheduler, Batch& batch) {
  for (size_t i = 0; i < requests.size(); ++i) {
    Generation& generation = batch.generations[i];
    TextRequest request = {
        .prompt = {requests[i].prompt, requests[i].prompt + requests[i].count},
        .options = generation.how,
        .on_token = [&generation](int32_t id, const GenerateResult&) { return generation.put(id); },
        .on_end = [&batch, i](const Error& e, const GenerateResult& result) { end_text(batch, i, e, result); }};
    int64_t id = 0;
    if (Error e = submit(scheduler, std::move(request), &id)) {
      return error(e.message(), "requests[" + std::to_string(i) + "]");
    }
  }
  return {};
}

pinion_status generate_batch(OpenModel& model, std::span<const pinion_request> requests, int64_t parallel,
                             pinion_result** results) {
  Batch batch;
  if (Error e = begin_all(model, requests, &batch)) return invalid(e);
  const PassLock lock(model.passes);
  if (!lock.is_held()) return busy();
  std::vector<int64_t> needs;
  for (size_t i = 0; i < requests.size(); ++i) {
    needs.push_back(static_cast<int64_t>(requests[i].count) + batch.generations[i].how.max_tokens);
  }
  std::unique_ptr<Scheduler> scheduler;
  const SchedulerOptions options = batch_options(model.runtime, std::move(needs), parallel);
  if (Error e = open_scheduler(*model.runtime.model, *model.runtime.team, options, &scheduler)) return status_of(e);
  if (Error e = submit_all(requests, *scheduler, batch)) return invalid(e);
  while (step(*scheduler)) continue;
  for (size_t i = 0; i < requests.size(); ++i) results[i] = std::exchange(batch.results[i], nullptr);
  return PINION_OK;
}

}  // namespace
}  // namespace pinion

using namespace pinion;

pinion_status pinion_generate(pinion_session* session, const int32_t* prompt, size_t count,
                              const pinion_generate_options* options, pinion_result** out) {
  if (out) *out = nullptr;
  return guarded({{"out", out}, {"session", session}, {"prompt", prompt || count == 0}},
                 [&] { return generate_text(*session, {prompt, count}, options, out); });
}

void pinion_result_free(pinion_result* result) { delete static_cast<OwnedResult*>(result); }

pinion_status pinion_generate_batch(pinion_model* model, const pinion_request* requests, size_t count, int64_t parallel,
                                    pinion_result** results) {
  if (results) std::fill_n(results, count, nullptr);
  return guarded({{"requests or results", count == 0 || (requests && results)}, {"model", model}}, [&] {
    constexpr int64_t kMaxParallel = 1024;
    if (Error e = check_range("parallel", parallel, 0, kMaxParallel)) return invalid(e);
    if (count == 0) return PINION_OK;
    return generate_batch(*model->shared, {requests, count}, parallel, results);
  });
}
