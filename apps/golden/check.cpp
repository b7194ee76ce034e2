#include "apps/golden/check.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/golden/explain.h"
#include "kernels/base/clock.h"
#include "kernels/cpu.h"
#include "loader/files/json.h"

namespace pinion {
namespace {

// The first files had no blank where a text goes on with its prompt's.
bool is_text(const std::string& want, const std::string& have) { return have == want || have == " " + want; }

Error compare(const Subject& subject, const std::string& where, const GoldenAnswer& want, const GoldenAnswer& have) {
  const auto [w, h] = std::ranges::mismatch(want.ids, have.ids);
  if (w != want.ids.end() || h != have.ids.end()) {
    const size_t index = static_cast<size_t>(w - want.ids.begin());
    return error("token " + std::to_string(index) + " differs", where, token_label(subject, want.ids, index),
                 token_label(subject, have.ids, index));
  }
  if (subject.has_tokenizer && !is_text(want.text, have.text)) {
    return error("the text differs", where, want.text, have.text);
  }
  if (want.logits_hash != have.logits_hash) {
    return error("same tokens, but the bits of the logits differ", where, want.logits_hash, have.logits_hash);
  }
  if (want.hashes_on_way.empty() || want.hashes_on_way == have.hashes_on_way) return {};
  return error("the file contradicts itself: logits_hash is right, logits_hash_by_8 is not", where);
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

// One way to run: what to do before its prompts, and what to say of one whose answer is another.
struct Way {
  std::string name;
  std::function<Error(const GoldenPrompt& prompt, const GoldenAnswer& want, const GoldenAnswer& have, std::string* out)>
      explain;
};

Error check_prompt(const Subject& subject, const Way& way, const Golden& golden, const std::string& where,
                   CheckResult* out) {
  const GoldenPrompt& prompt = golden.prompts[out->prompt];
  const GoldenAnswer& want = golden.answers[out->prompt];
  if (!subject.has_tokenizer && (prompt.text || !want.text.empty())) {
    return error("the recording has text, the folder no tokenizer", subject.name);
  }
  if (prompt.text) {
    std::vector<int32_t> ids;
    if (Error e = subject.encode(*prompt.text, true, &ids)) return e;
    if (ids != prompt.ids) {
      return error("the prompt's token ids differ", where, join_ids(prompt.ids), join_ids(ids));
    }
  }
  const int64_t tokens = std::ssize(prompt.ids) + std::ssize(want.ids);  // the last one is not evaluated
  if (subject.context > 0 && tokens > subject.context + 1) {
    return error("longer than the server's context", where, "at most " + std::to_string(subject.context) + " tokens",
                 std::to_string(tokens));
  }
  const double start = now_seconds();
  GoldenAnswer have;
  if (Error e = subject.answer(golden, prompt, &have)) return e;
  out->seconds = now_seconds() - start;
  out->tokens = have.ids.size();
  out->difference = compare(subject, where, want, have);
  if (want.ids == have.ids && want.logits_hash == have.logits_hash) return {};
  return way.explain(prompt, want, have, &out->explanation);
}

void check_prompts(const CheckOptions& options, const Subject& subject, const Way& way, const Golden& golden,
                   const std::function<void(const CheckResult&)>& shown, std::vector<CheckResult>* out) {
  for (size_t i = 0; i < golden.prompts.size(); ++i) {
    const GoldenPrompt& prompt = golden.prompts[i];
    CheckResult result = {.way = way.name,
                          .prompt = i,
                          .prompt_text = prompt.text ? brief(Json(*prompt.text)) : "[" + join_ids(prompt.ids) + "]",
                          .difference = {},
                          .explanation = {}};
    const std::string where = options.golden + ": prompt " + std::to_string(i);
    if (Error e = check_prompt(subject, way, golden, where, &result)) result.difference = e;
    shown(result);
    out->push_back(std::move(result));
  }
}

Error check_at_server(const CheckOptions& options, const Golden& golden,
                      const std::function<void(const CheckResult&)>& shown, std::vector<CheckResult>* out) {
  Golden served;
  Subject subject;
  if (Error e = open_server(options.server, &served, &subject)) return e;
  if (Error e = check_served(golden, served, subject.name)) return e;
  const auto say = [&](const GoldenPrompt&, const GoldenAnswer& want, const GoldenAnswer& have, std::string* text) {
    *text = explain(subject, want, have);
    return Error();
  };
  check_prompts(options, subject, {subject.name, say}, golden, shown, out);
  return {};
}

Error check_here(const CheckOptions& options, const Golden& golden,
                 const std::function<void(const CheckResult&)>& shown, std::vector<CheckResult>* out) {
  CheckOptions settled = options;
  settled.run.load = golden.run.load;
  settled.run.kv = golden.run.kv;
  settled.run.load.check_cache = true;
  std::shared_ptr<const Tokenizer> tokenizer;
  if (Error e = check_model_folder(settled.run.model)) return e;
  if (has_tokenizer(settled.run.model)) {
    if (Error e = load_own_tokenizer(settled.run.model, &tokenizer)) return e;
  }
  Runtime runtime;
  if (Error e = open_with_progress(settled.run, &runtime)) return e;
  if (golden.calibration != runtime.model->calibration) {
    return error("not the recorded calibration", "--calibrate",
                 golden.calibration.empty() ? "none" : "a text of " + golden.calibration,
                 runtime.model->calibration.empty() ? "none" : runtime.model->calibration);
  }
  if (!golden.weights.empty() && !runtime.model->exchange) {
    const std::string weights = weights_hash(*runtime.model);
    if (golden.weights != weights) return error("not the recorded weights", settled.run.model, golden.weights, weights);
  }
  const Subject subject = model_subject(runtime, settled.run.model, tokenizer);
  const auto say = [&](const GoldenPrompt& prompt, const GoldenAnswer& want, const GoldenAnswer& have,
                       std::string* text) {
    return explain_here(subject, runtime, options.bisect, prompt, want, have, text);
  };
  std::vector<RunOptions> ways;
  if (Error e = ways_to_run(settled, &ways)) return e;
  for (const RunOptions& way : ways) {
    if (Error e = use_way(way, &runtime)) {
      if (&way == &ways.front()) return e;
      continue;  // more threads than cores were asked for, or the like: not a way to run here
    }
    check_prompts(options, subject, {way_text(way), say}, golden, shown, out);
  }
  return {};
}

}  // namespace

Error check_golden(const CheckOptions& options, const std::function<void(const CheckResult&)>& shown,
                   std::vector<CheckResult>* out) {
  Golden golden;
  if (Error e = read_golden(options.golden, &golden)) return e;
  if (golden.prompts.empty()) return error("no prompts to check", options.golden);
  const auto check = options.server.url.empty() ? check_here : check_at_server;
  return check(options, golden, shown, out);
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
