#include "apps/golden/check.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/forward/trace.h"
#include "engine/session/generate.h"
#include "kernels/cpu.h"
#include "kernels/hash.h"
#include "loader/config/json.h"

namespace pinion {
namespace {

// "17 \" the\"", or what stands in its place after the last token.
std::string token_label(const std::vector<int32_t>& ids, size_t index, const Tokenizer* tokenizer) {
  if (index >= ids.size()) return "the end";
  const std::string id = std::to_string(ids[index]);
  return tokenizer ? id + " " + OrderedJson(token_text(*tokenizer, ids[index])).dump() : id;
}

// Where the ids part; where they do not, the last token that can be the first with other logits: the end of the first
// stretch whose hash differs.
size_t last_suspect(const GoldenAnswer& want, const GoldenAnswer& have) {
  const auto [w, h] = std::ranges::mismatch(want.ids, have.ids);
  const auto token = static_cast<size_t>(w - want.ids.begin());
  if (want.ids != have.ids) return token;
  const size_t last = token - std::min<size_t>(token, 1);
  if (want.hashes_on_way.empty()) return last;
  const auto [a, b] = std::ranges::mismatch(want.hashes_on_way, have.hashes_on_way);
  return std::min(last, static_cast<size_t>((a - want.hashes_on_way.begin() + 1) * kTokensPerHash - 1));
}

Error compare(const std::string& where, const GoldenAnswer& want, const GoldenAnswer& have,
              const Tokenizer* tokenizer) {
  const auto [w, h] = std::ranges::mismatch(want.ids, have.ids);
  if (w != want.ids.end() || h != have.ids.end()) {
    const size_t index = static_cast<size_t>(w - want.ids.begin());
    return error("token " + std::to_string(index) + " differs", where, token_label(want.ids, index, tokenizer),
                 token_label(have.ids, index, tokenizer));
  }
  if (tokenizer && want.text != have.text) return error("the text differs", where, want.text, have.text);
  if (want.logits_hash == have.logits_hash) return {};
  return error("same tokens, but the bits of the logits differ", where, want.logits_hash, have.logits_hash);
}

// --- ways to run

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

// As asked for, then with one thing changed at a time: everything that must not change a bit.
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
  for (const int32_t threads : {1, 2, 3, 4}) {
    add([&](RunOptions& way) { way.team.threads = threads; });
  }
  Topology topology;
  if (Error e = read_topology(&topology)) return e;
  const auto kinds = std::ranges::max(topology.cores, {}, &Core::kind).kind;
  for (const char* cores : {"big", "little", "all"}) {
    if (kinds > 0) add([&](RunOptions& way) { way.cores = cores; });
  }
  for (const int64_t chunk : {1, 7, 64, 256}) {
    add([&](RunOptions& way) { way.team.prefill_chunk = chunk; });
  }
  return {};
}

Error use_way(const RunOptions& run, Runtime* runtime) {
  Plan plan;
  if (Error e = select_kernels(run.kernels_name, &runtime->kernels)) return e;
  if (Error e = make_plan(run, &plan)) return e;
  return use_plan(plan, runtime);
}

// --- where two runs part

// A run that goes through the recorded tokens one by one.
struct Follower {
  Session* session;
  Trace trace;
  std::vector<float> logits;

  explicit Follower(Session* followed)
      : session(followed),
        trace(followed->model->config.layers),
        logits(static_cast<size_t>(followed->model->config.vocab_size)) {
    session->trace = &trace;
  }
  Error take(std::span<const int32_t> ids) { return evaluate(*session, ids, false, logits.data()); }
};

std::string top_five(const std::vector<float>& logits, const Tokenizer* tokenizer) {
  std::string text;
  for (const TokenLogprob& one : logprobs_of(logits, 0, 5).top) {
    std::array<char, 32> value;
    std::snprintf(value.data(), value.size(), " %.9g", static_cast<double>(logits[static_cast<size_t>(one.id)]));
    text += (text.empty() ? "" : ", ") + token_label({one.id}, 0, tokenizer) + value.data();
  }
  return text;
}

std::string first_difference_line(const Trace& a, const Trace& b, bool same_logits) {
  const int64_t layer = first_difference(a, b);
  return "    first difference: " +
         (layer >= 0    ? "layer " + std::to_string(layer)
          : same_logits ? "none: both are this build's arithmetic, the recording is of another"
                        : "the head") +
         "\n";
}

// One of two candidates for a place, with what this way makes of it.
std::string candidate_text(const std::vector<int32_t>& ids, size_t index, const std::vector<float>& logits,
                           const Tokenizer* tokenizer) {
  std::string text = token_label(ids, index, tokenizer);
  if (index >= ids.size() || ids[index] >= std::ssize(logits)) return text;
  std::array<char, 48> value;
  std::snprintf(value.data(), value.size(), ", log probability %.4f",
                log_softmax_of(logits)(logits[static_cast<size_t>(ids[index])]));
  return text + value.data();
}

// The last of what was generated before a place.
std::string text_before(const std::vector<int32_t>& ids, size_t index, const Tokenizer* tokenizer) {
  constexpr size_t kTokens = 12;
  const auto before = std::span(ids).first(index).last(std::min(index, kTokens));
  return tokenizer ? brief(Json(decode(*tokenizer, before))) : "[" + join_ids(before) + "]";
}

// This way and the definition, the scalar table on one thread, through the recorded tokens up to the first that
// differs, or where none does to where other bits can have begun.
Error explain(const CheckOptions& options, const Runtime& runtime, const GoldenPrompt& prompt, const GoldenAnswer& want,
              const GoldenAnswer& have, const Tokenizer* tokenizer, std::string* out) {
  std::unique_ptr<Session> here, defined;
  if (Error e = open_session(runtime, {.capacity = std::ssize(prompt.ids) + std::ssize(want.ids)}, &here)) return e;
  Team alone({});
  SessionOptions definition = {
      .kv = runtime.kv, .capacity = here->sequence.cache.capacity, .prefill_chunk = 1, .kernels = &scalar_kernels()};
  if (Error e = open_session(*runtime.model, alone, definition, &defined)) return e;

  Follower a(here.get()), b(defined.get());
  const size_t last = std::min(last_suspect(want, have), want.ids.size());
  std::string other;  // how the definition parts from this way
  size_t index = 0;
  for (std::span<const int32_t> next = prompt.ids;; ++index) {
    if (Error e = a.take(next)) return e;
    if (Error e = b.take(next)) return e;
    if (other.empty() && a.logits != b.logits) {
      other =
          "    from token " + std::to_string(index) +
          " on other logits than scalar on one thread, likeliest\n      this way: " + top_five(a.logits, tokenizer) +
          "\n      scalar:   " + top_five(b.logits, tokenizer) + "\n";
      if (options.bisect) other += first_difference_line(a.trace, b.trace, false);
    }
    if (index == last) break;
    next = std::span(want.ids).subspan(index, 1);
  }
  if (other.empty() && options.bisect) other = first_difference_line(a.trace, b.trace, true);
  *out = "    after " + text_before(want.ids, index, tokenizer) + "\n    token " + std::to_string(index) +
         " recorded: " + candidate_text(want.ids, index, a.logits, tokenizer) + "\n    token " + std::to_string(index) +
         " now:      " + candidate_text(have.ids, index, a.logits, tokenizer) + "\n" + other;
  return {};
}

Error check_prompt(const CheckOptions& options, const Runtime& runtime, const Golden& golden, size_t index,
                   const Tokenizer* tokenizer, CheckResult* out) {
  const std::string where = options.golden + ": prompt " + std::to_string(index);
  const GoldenPrompt& prompt = golden.prompts[index];
  const GoldenAnswer& want = golden.answers[index];
  if (!tokenizer && (prompt.text || !want.text.empty())) {
    return error("the recording has text, the folder no tokenizer", options.run.model);
  }
  if (prompt.text) {
    std::vector<int32_t> ids;
    if (Error e = encode(*tokenizer, *prompt.text, {}, &ids)) return e;
    if (ids != prompt.ids) {
      out->difference = error("the prompt's token ids differ", where, join_ids(prompt.ids), join_ids(ids));
      return {};
    }
  }
  const double start = now_seconds();
  GoldenAnswer have;
  if (Error e = answer_prompt(runtime, golden, prompt, tokenizer, &have)) return e;
  out->seconds = now_seconds() - start;
  out->tokens = have.ids.size();
  out->difference = compare(where, want, have, tokenizer);
  if (want.ids == have.ids && want.logits_hash == have.logits_hash) return {};
  return explain(options, runtime, prompt, want, have, tokenizer, &out->explanation);
}

}  // namespace

Error answer_prompt(const Runtime& runtime, const Golden& golden, const GoldenPrompt& prompt,
                    const Tokenizer* tokenizer, GoldenAnswer* out) {
  std::unique_ptr<Session> session;
  if (Error e = open_session(runtime, {.capacity = std::ssize(prompt.ids) + prompt.max_tokens}, &session)) return e;
  GenerateResult result;
  const GenerateOptions options = {.max_tokens = prompt.max_tokens,
                                   .sampler = golden.sampler,
                                   .ignore_eos = false,
                                   .hash_logits = true,
                                   .tokens_per_hash = kTokensPerHash};
  if (Error e = generate(*session, prompt.ids, options, [](int32_t) { return true; }, &result)) return e;
  *out = {result.ids, tokenizer ? decode(*tokenizer, result.ids) : "", hash_text(result.logits_hash), {}};
  for (const uint64_t hash : result.hashes) out->hashes_on_way.push_back(hash_text(hash));
  return {};
}

std::string weights_hash(const Model& model) { return hash_text(hash_words(kHashSeed, model.packed())); }

Error check_golden(const CheckOptions& options, const std::function<void(const CheckResult&)>& shown,
                   std::vector<CheckResult>* out) {
  Golden golden;
  if (Error e = read_golden(options.golden, &golden)) return e;
  if (golden.prompts.empty()) return error("no prompts to check", options.golden);
  CheckOptions settled = options;
  settled.run.load = golden.run.load;
  settled.run.kv = golden.run.kv;
  settled.run.load.check_cache = true;
  std::shared_ptr<const Tokenizer> tokenizer;
  if (Error e = check_model_folder(settled.run.model)) return e;
  if (has_tokenizer(settled.run.model)) {
    if (Error e = load_tokenizer(settled.run.model, &tokenizer)) return e;
  }
  Runtime runtime;
  if (Error e = open_with_progress(settled.run, &runtime)) return e;
  if (golden.calibration != runtime.model->calibration) {
    return error("not the recorded calibration", "--calibrate",
                 golden.calibration.empty() ? "none" : "a text of " + golden.calibration,
                 runtime.model->calibration.empty() ? "none" : runtime.model->calibration);
  }
  if (!golden.weights.empty() && golden.weights != weights_hash(*runtime.model)) {
    return error("not the recorded weights", settled.run.model, golden.weights, weights_hash(*runtime.model));
  }
  std::vector<RunOptions> ways;
  if (Error e = ways_to_run(settled, &ways)) return e;
  for (const RunOptions& way : ways) {
    if (Error e = use_way(way, &runtime)) {
      if (&way == &ways.front()) return e;
      continue;  // more threads than cores were asked for, or the like: not a way to run here
    }
    for (size_t i = 0; i < golden.prompts.size(); ++i) {
      const GoldenPrompt& prompt = golden.prompts[i];
      CheckResult result = {.way = way_text(way),
                            .prompt = i,
                            .prompt_text = prompt.text ? brief(Json(*prompt.text)) : "[" + join_ids(prompt.ids) + "]",
                            .difference = {},
                            .explanation = {}};
      if (Error e = check_prompt(settled, runtime, golden, i, tokenizer.get(), &result)) result.difference = e;
      shown(result);
      out->push_back(std::move(result));
    }
  }
  return {};
}

std::string junit_xml(const std::vector<CheckResult>& results) {
  const auto failures = std::ranges::count_if(results, [](const CheckResult& one) { return bool(one.difference); });
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"pinion golden\" tests=\"" +
                    std::to_string(results.size()) + "\" failures=\"" + std::to_string(failures) + "\">\n";
  for (const CheckResult& one : results) {
    std::array<char, 32> seconds;
    std::snprintf(seconds.data(), seconds.size(), "%.3f", one.seconds);
    xml += "  <testcase classname=\"" + xml_text(one.way) + "\" name=\"prompt " + std::to_string(one.prompt) +
           "\" time=\"" + seconds.data() + "\"";
    if (!one.difference) {
      xml += "/>\n";
      continue;
    }
    xml += ">\n    <failure message=\"" + xml_text(one.difference.message()) + "\">" + xml_text(one.explanation) +
           "</failure>\n  </testcase>\n";
  }
  return xml + "</testsuite>\n";
}

}  // namespace pinion
