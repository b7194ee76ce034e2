#include "apps/golden/golden.h"

#include <nlohmann/json.hpp>

#include "kernels/base/text.h"

namespace pinion {
namespace {

// --- Explanations of a difference

// "17 \" the\"", or "the end" after the last token.
std::string token_label(const Subject& subject, const std::vector<int32_t>& ids, size_t index) {
  if (index >= ids.size()) return "the end";
  const std::string id = std::to_string(ids[index]);
  return subject.has_tokenizer ? id + " " + brief(Json(subject.token_text(ids[index]))) : id;
}

// The first differing token. With equal ids, the last token of the first section whose partial hash differs.
size_t last_suspect(const GoldenAnswer& want, const GoldenAnswer& have) {
  const auto [w, h] = std::ranges::mismatch(want.ids, have.ids);
  const size_t token = w - want.ids.begin();
  if (want.ids != have.ids) return token;
  const size_t last = token - std::min<size_t>(token, 1);
  if (want.partial_hashes.empty()) return last;
  const auto [a, b] = std::ranges::mismatch(want.partial_hashes, have.partial_hashes);
  return std::min(last, size_t((a - want.partial_hashes.begin() + 1) * kTokensPerHash - 1));
}

// Evaluates the recorded tokens one by one, with a trace.
struct Replay {
  Session* session;
  Trace trace;
  std::vector<float> logits;

  explicit Replay(Session* replayed)
      : session(replayed), trace(replayed->model->config.layers), logits(replayed->model->config.vocab_size) {
    session->trace = &trace;
  }
  Error take(std::span<const int32_t> ids) { return evaluate(*session, ids, false, logits.data()); }
};

std::string top_five(const Subject& subject, const std::vector<float>& logits) {
  std::string text;
  for (const TokenLogprob& likely : logprobs_of(logits, 0, 5).top) {
    text += (text.empty() ? "" : ", ") + token_label(subject, {likely.id}, 0) +
            formatted(" %.9g", static_cast<double>(logits[likely.id]));
  }
  return text;
}

std::string first_difference_line(const Trace& a, const Trace& b, bool same_logits) {
  const int64_t layer = first_difference(a, b);
  return "    first difference: " +
         (layer >= 0    ? "layer " + std::to_string(layer)
          : same_logits ? "none: this build agrees with itself, the recording is from another one"
                        : "the head") +
         "\n";
}

// The log probability of the token at `index`; empty after the last token.
std::string logprob_text(const std::vector<int32_t>& ids, size_t index, const std::vector<float>& logits) {
  if (index >= ids.size() || ids[index] >= std::ssize(logits)) return "";
  return formatted(", log probability %.4f", log_softmax_of(logits)(logits[ids[index]]));
}

// The last tokens before `index`.
std::string text_before(const Subject& subject, const std::vector<int32_t>& ids, size_t index) {
  constexpr size_t kTokens = 12;
  const auto before = std::span(ids).first(index).last(std::min(index, kTokens));
  return subject.has_tokenizer ? brief(Json(subject.decode(before))) : "[" + join_ids(before) + "]";
}

// The text before the first differing token, and the two candidates. logits: of the current way; empty: unavailable.
std::string candidates_text(const Subject& subject, const GoldenAnswer& want, const GoldenAnswer& have, size_t index,
                            const std::vector<float>& logits) {
  const std::string token = "    token " + std::to_string(index);
  return "    after " + text_before(subject, want.ids, index) + "\n" + token +
         " recorded: " + token_label(subject, want.ids, index) + logprob_text(want.ids, index, logits) + "\n" + token +
         " now:      " + token_label(subject, have.ids, index) + logprob_text(have.ids, index, logits) + "\n";
}

// Adds log probabilities, and where the current way differs from the definition, which is the scalar table on one
// thread. Replays the recorded tokens up to the first differing one. `bisect`: names the layer.
Error explain_here(const Subject& subject, const Runtime& runtime, bool bisect, const GoldenPrompt& prompt,
                   const GoldenAnswer& want, const GoldenAnswer& have, std::string* out) {
  std::unique_ptr<Session> here, defined;
  if (Error e = open_session(runtime, {.context = std::ssize(prompt.ids) + std::ssize(want.ids)}, &here)) return e;
  Team alone({});
  SchedulerOptions definition = {
      .kv = runtime.kv, .context = here->sequence.cache.capacity, .pass_rows = 1, .kernels = &scalar_kernels()};
  if (Error e = open_session(*runtime.model, alone, definition, &defined)) return e;

  Replay a(here.get()), b(defined.get());
  const size_t last = std::min(last_suspect(want, have), want.ids.size());
  std::string other;  // difference between the current way and the definition
  size_t index = 0;
  for (std::span<const int32_t> next = prompt.ids;; ++index) {
    if (Error e = a.take(next)) return e;
    if (Error e = b.take(next)) return e;
    if (other.empty() && a.logits != b.logits) {
      other = "    from token " + std::to_string(index) +
              " on the logits differ from scalar on one thread, most likely tokens\n      this way: " +
              top_five(subject, a.logits) + "\n      scalar:   " + top_five(subject, b.logits) + "\n";
      if (bisect) other += first_difference_line(a.trace, b.trace, false);
    }
    if (index == last) break;
    next = std::span(want.ids).subspan(index, 1);
  }
  if (other.empty() && bisect) other = first_difference_line(a.trace, b.trace, true);
  *out = candidates_text(subject, want, have, index, a.logits) + other;
  return {};
}

Error compare(const Subject& subject, const std::string& where, const GoldenAnswer& want, const GoldenAnswer& have) {
  const auto [w, h] = std::ranges::mismatch(want.ids, have.ids);
  if (w != want.ids.end() || h != have.ids.end()) {
    const size_t index = w - want.ids.begin();
    return error("token " + std::to_string(index) + " differs", where, token_label(subject, want.ids, index),
                 token_label(subject, have.ids, index));
  }
  // Old files lack the leading space of an answer that continues its prompt.
  if (subject.has_tokenizer && have.text != want.text && have.text != " " + want.text) {
    return error("the text differs", where, want.text, have.text);
  }
  if (want.logits_hash != have.logits_hash) {
    return error("same tokens, but the bits of the logits differ", where, want.logits_hash, have.logits_hash);
  }
  if (want.partial_hashes.empty() || want.partial_hashes == have.partial_hashes) return {};
  return error("the file contradicts itself: logits_hash is right, logits_hash_by_8 is not", where);
}

// --- Ways to run

std::string way_text(const RunOptions& run) {
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += (text.empty() ? "" : ", ") + std::string(name) + " " + value;
  };
  add("kernels", run.kernels_name);
  add("threads", run.team.threads > 0 ? std::to_string(run.team.threads) : "");
  add("cores", run.cores);
  add("chunk", run.team.prefill_chunk > 0 ? std::to_string(run.team.prefill_chunk) : "");
  return text.empty() ? "as always" : text;
}

// The given options, then one change at a time. None of the changes may change a bit of the results.
Error ways_to_run(const CheckOptions& options, std::vector<RunOptions>* out) {
  out->push_back(options.run);
  if (!options.matrix) return {};
  const auto add = [&](auto change) {
    RunOptions way = options.run;
    change(way);
    out->push_back(std::move(way));
  };
  for (const Variant& variant : kernel_variants()) {
    const Kernels* kernels = nullptr;
    if (select_kernels(variant.name, &kernels)) continue;
    add([&](RunOptions& way) { way.kernels_name = variant.name, way.team.threads = 1; });
  }
  for (const int32_t threads : {1, 2, 3, 4}) add([&](RunOptions& way) { way.team.threads = threads; });
  Topology topology;
  if (Error e = read_topology(&topology)) return e;
  const auto kinds = std::ranges::max(topology.cores, {}, &Core::kind).kind;
  for (const char* cores : {"big", "little", "all"}) {
    if (kinds > 0) add([&](RunOptions& way) { way.cores = cores; });
  }
  for (const int64_t chunk : {1, 7, 64, 256}) add([&](RunOptions& way) { way.team.prefill_chunk = chunk; });
  return {};
}

Error use_way(const RunOptions& run, Runtime* runtime) {
  Plan plan;
  if (Error e = select_kernels(run.kernels_name, &runtime->kernels)) return e;
  if (Error e = make_plan(run, &plan)) return e;
  return use_plan(plan, runtime);
}

// runtime: of a model that runs here; null: at a server.
Error check_prompt(const CheckOptions& options, const Subject& subject, const Runtime* runtime, const Golden& golden,
                   const std::string& where, CheckResult* out) {
  const GoldenPrompt& prompt = golden.prompts[out->prompt];
  const GoldenAnswer& want = golden.answers[out->prompt];
  if (!subject.has_tokenizer && (prompt.text || !want.text.empty())) {
    return error("the recording has text, the folder no tokenizer", subject.name);
  }
  if (prompt.text) {
    std::vector<int32_t> ids;
    if (Error e = subject.encode(*prompt.text, true, &ids)) return e;
    if (ids != prompt.ids) return error("the prompt's token ids differ", where, join_ids(prompt.ids), join_ids(ids));
  }
  const int64_t tokens = std::ssize(prompt.ids) + std::ssize(want.ids);  // the last token is not evaluated
  if (subject.context > 0 && tokens > subject.context + 1) {
    return error("longer than the server's context", where, at_most(subject.context) + " tokens", tokens);
  }
  const double start = now_seconds();
  GoldenAnswer have;
  if (Error e = subject.answer(golden, prompt, &have)) return e;
  out->seconds = now_seconds() - start;
  out->tokens = have.ids.size();
  out->difference = compare(subject, where, want, have);
  if (want.ids == have.ids && want.logits_hash == have.logits_hash) return {};
  if (runtime) return explain_here(subject, *runtime, options.bisect, prompt, want, have, &out->explanation);
  const size_t index = std::min(last_suspect(want, have), want.ids.size());
  out->explanation = candidates_text(subject, want, have, index, {});
  return {};
}

void check_prompts(const CheckOptions& options, const Subject& subject, const std::string& way, const Runtime* runtime,
                   const Golden& golden, std::vector<CheckResult>* out) {
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    const GoldenPrompt& prompt = golden.prompts[i];
    CheckResult result = {.way = way,
                          .prompt = i,
                          .prompt_text = prompt.text ? brief(Json(*prompt.text)) : "[" + join_ids(prompt.ids) + "]",
                          .difference = {},
                          .explanation = {}};
    const std::string where = options.golden + ": prompt " + std::to_string(i);
    if (Error e = check_prompt(options, subject, runtime, golden, where, &result)) result.difference = e;
    options.shown(result);
    out->push_back(std::move(result));
  }
}

// Fails unless a server can reproduce the recording: same weights, same settings that change the results.
Error check_served(const Golden& recorded, const Golden& served, const std::string& where) {
  if (!recorded.weights.empty() && recorded.weights != served.weights) {
    return error("not the recorded weights", where, recorded.weights, served.weights);
  }
  // The hash covers all settings that change the weights, but not the KV cache.
  const OrderedJson want = run_settings_json(recorded), have = run_settings_json(served);
  for (const auto& [name, value] : want.items()) {
    if (have[name] == value || (!recorded.weights.empty() && name != "kv")) continue;
    return error("not the recorded setting", where + ": " + name, value.dump(), have[name].dump());
  }
  return {};
}

Error check_at_server(const CheckOptions& options, const Golden& golden, std::vector<CheckResult>* out) {
  Golden served;
  Subject subject;
  if (Error e = open_server(options.server, &served, &subject)) return e;
  if (Error e = check_served(golden, served, subject.name)) return e;
  check_prompts(options, subject, subject.name, nullptr, golden, out);
  return {};
}

Error check_here(const CheckOptions& options, const Golden& golden, std::vector<CheckResult>* out) {
  CheckOptions settled = options;
  settled.run.load = golden.run.load;
  settled.run.load.lora = options.run.load.lora;
  settled.run.kv = golden.run.kv;
  PackRecord record;
  if (Error e = check_model_folder(settled.run.model)) return e;
  if (Error e = read_pack_record(settled.run.model, &record)) return e;
  if (settled.run.calibrate.empty() && record.empty()) {
    settled.run.calibrate = golden.calibration.empty() ? kNoCalibration : kSelfCalibration;
  }
  settled.run.load.check_cache = true;
  std::shared_ptr<const Tokenizer> tokenizer;
  if (Error e = load_tokenizer_if_any(settled.run.model, &tokenizer)) return e;
  Runtime runtime;
  if (Error e = open_with_progress(settled.run, tokenizer.get(), &runtime)) return e;
  if (golden.calibration != runtime.model->calibration) {
    return error("not the recorded calibration", "--calibrate",
                 golden.calibration.empty() ? "none" : golden.calibration,
                 runtime.model->calibration.empty() ? "none" : runtime.model->calibration);
  }
  if (!golden.weights.empty() && !runtime.model->exchange) {
    const std::string weights = weights_hash(*runtime.model);
    if (golden.weights != weights) return error("not the recorded weights", settled.run.model, golden.weights, weights);
  }
  const Subject subject = model_subject(runtime, settled.run.model, tokenizer);
  std::vector<RunOptions> ways;
  if (Error e = ways_to_run(settled, &ways)) return e;
  for (const RunOptions& way : ways) {
    if (Error e = use_way(way, &runtime)) {
      if (&way == &ways.front()) return e;
      continue;  // not possible on this machine, such as more threads than cores
    }
    check_prompts(options, subject, way_text(way), &runtime, golden, out);
  }
  return {};
}

}  // namespace

Error check_golden(const CheckOptions& options, std::vector<CheckResult>* out) {
  Golden golden;
  if (Error e = read_golden(options.golden, &golden)) return e;
  if (golden.prompts.empty()) return error("no prompts to check", options.golden);
  return options.server.url.empty() ? check_here(options, golden, out) : check_at_server(options, golden, out);
}

Error junit_xml(const std::vector<CheckResult>& results, std::string* out) {
  OrderedJson list = OrderedJson::array();
  for (const CheckResult& result : results) {
    list.push_back({{"way", result.way},
                    {"prompt", result.prompt},
                    {"seconds", result.seconds},
                    {"failure", result.difference ? terminal_text(result.difference.message()) : ""},
                    {"explanation", terminal_text(result.explanation)}});  // XML has no control characters
  }
  return report_text({{"results", list}}, "junit", out);
}

}  // namespace pinion
