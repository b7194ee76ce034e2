// pinion golden: records what a model answers to some prompts, with a hash over the bits of every logits vector, and
// checks later, elsewhere, with other kernels or threads, or at a server, that the same comes out.
#include <algorithm>
#include <filesystem>

#include "apps/cli/output_file.h"
#include "apps/commands.h"
#include "apps/golden/check.h"

namespace pinion {
namespace {

constexpr const char* kOneOfTwo = "want either --model DIR or --url URL";

struct RecordOptions {
  RunOptions run;
  ServerOptions server;
  SamplingFlags sampling;
  std::string prompts, out;
  int64_t max_tokens = 64;
};

Error open_model(const RecordOptions& options, Runtime* runtime, Golden* golden, Subject* out) {
  golden->recorder = this_program();
  golden->run = options.run;
  golden->run.load.check_cache = true;
  if (Error e = check_model_folder(options.run.model)) return e;
  std::shared_ptr<const Tokenizer> tokenizer;
  if (has_tokenizer(options.run.model)) {
    if (Error e = load_own_tokenizer(options.run.model, &tokenizer)) return e;
  }
  if (Error e = open_with_progress(golden->run, runtime)) return e;
  golden->weights = weights_hash(*runtime->model);
  golden->calibration = runtime->model->calibration;
  *out = model_subject(*runtime, options.run.model, std::move(tokenizer));
  return {};
}

int run_record(const RecordOptions& options) {
  if (options.run.model.empty() == options.server.url.empty()) return fail_usage(kOneOfTwo);
  Golden golden;
  Runtime runtime;
  Subject subject;
  if (Error e = read_prompts(options.prompts, options.max_tokens, &golden.prompts)) return fail(e);
  if (golden.prompts.empty()) return fail(error("no prompts to record", options.prompts));
  if (Error e = options.server.url.empty() ? open_model(options, &runtime, &golden, &subject)
                                           : open_server(options.server, &golden, &subject)) {
    return fail(e);
  }
  golden.sampler = {};  // nothing of the folder's counts
  apply_flags(options.sampling, &golden.sampler);
  EncodeText plain;
  if (subject.has_tokenizer) {
    plain = [&](const std::string& text, std::vector<int32_t>* ids) { return subject.encode(text, false, ids); };
  }
  if (Error e = find_dry_breakers(options.sampling, plain, &golden.sampler)) return fail(e);
  if (Error e = record(subject, &golden)) return fail(e);
  if (Error e = write_golden(golden, options.out)) return fail(e);
  print("recorded " + std::to_string(golden.prompts.size()) + " prompts in " + options.out + "\n");
  return kSuccess;
}

// One line a prompt, or in a matrix one row of a table.
void show(const CheckOptions& options, const CheckResult& one) {
  const std::string prompt = std::to_string(one.prompt), tokens = std::to_string(one.tokens);
  if (options.matrix) {
    print("| " + one.way + " | " + prompt + " | " + tokens + " | " + (one.difference ? one.difference.what : "same") +
          " |\n");
  } else if (!one.difference) {
    print("OK prompt " + prompt + ": " + tokens + " tokens\n");
  }
}

// Each difference once, with the ways of a matrix that have it.
void show_differences(const CheckOptions& options, const std::vector<CheckResult>& results) {
  std::vector<std::pair<const CheckResult*, std::string>> shown;  // and its ways
  for (const CheckResult& one : results) {
    if (!one.difference) continue;
    const auto same = std::ranges::find_if(shown, [&](const auto& other) {
      return one.prompt == other.first->prompt && one.explanation == other.first->explanation &&
             one.difference.message() == other.first->difference.message();
    });
    if (same == shown.end()) {
      shown.emplace_back(&one, one.way);
    } else {
      same->second += "; " + one.way;
    }
  }
  for (const auto& [one, ways] : shown) {
    print("\nprompt " + std::to_string(one->prompt) + ", " + one->prompt_text + ": " +
          (one->explanation.empty() ? one->difference.message() : one->difference.what) + "\n" + one->explanation);
    if (options.matrix) print("    ways: " + ways + "\n");
  }
}

int run_check(const CheckOptions& options) {
  if (options.run.model.empty() == options.server.url.empty()) return fail_usage(kOneOfTwo);
  OutputFile junit;
  std::error_code ignored;
  if (std::filesystem::equivalent(options.golden, options.junit, ignored)) {
    return fail_usage("--junit would replace the golden file");
  }
  if (!options.junit.empty()) {
    if (Error e = junit.open(options.junit)) return fail(e);
  }
  if (options.matrix) print("| way | prompt | tokens | result |\n|:--|--:|--:|:--|\n");
  std::vector<CheckResult> results;
  if (Error e = check_golden(options, [&](const CheckResult& one) { show(options, one); }, &results)) return fail(e);
  if (!options.junit.empty()) {
    const std::string xml = junit_xml(results);
    if (Error e = junit.write(xml.data(), xml.size())) return fail(e);
    if (Error e = junit.finish()) return fail(e);
  }
  const auto differ = std::ranges::count_if(results, [](const CheckResult& one) { return bool(one.difference); });
  if (differ == 0) return kSuccess;
  show_differences(options, results);
  return fail(error(std::to_string(differ) + " of " + std::to_string(results.size()) +
                        (options.matrix ? " runs differ from the recording" : " prompts differ from the recording"),
                    options.golden));
}

// Of these options none has a meaning for a server, which runs as it was started.
void exclude_url(Command app, const std::vector<OptionText>& options) {
  for (const OptionText& option : options) {
    if (option.names.back() != "--help") app.find("--url").excludes(app.find(option.names.back()));
  }
}

}  // namespace

Run setup_golden(Command app) {
  auto options = std::make_shared<RecordOptions>();
  auto checked = std::make_shared<CheckOptions>();
  app.require_command();
  const Command record = app.add_command("record", "Run prompts and record what comes out",
                                         "pinion golden record --model DIR --prompts F.json --out G.json --quant w8a8");
  add_run_options(record, &options->run);
  record.find("--model").required(false);
  const std::vector<OptionText> of_the_run = record.describe().options;
  add_server_options(record, &options->server);
  exclude_url(record, of_the_run);
  record.add_option("--prompts", options->prompts, "A JSON list of texts or {prompt | prompt_ids, max_tokens}")
      .required()
      .path("F.json");
  record.add_option("--out", options->out, "The golden file to write").required().path("G.json");
  record.add_option("--max-tokens", options->max_tokens, "Tokens for a prompt that does not say")
      .range(0, kMaxGoldenTokens)
      .type_name("N")
      .show_default();
  add_sampling_options(record, &options->sampling);

  const Command check = app.add_command("check", "Run them again with the recorded settings; any difference fails",
                                        "pinion golden check --model DIR --golden G.json --threads 3 --kernels scalar");
  add_model_option(check, &checked->run);
  add_threads_option(check, &checked->run);
  add_speed_options(check, &checked->run);
  add_cache_option(check, &checked->run);
  add_calibrate_option(check, &checked->run);
  check.add_flag("--matrix", checked->matrix,
                 "Also with every kernel table, 1 to 4 threads, each kind of cores, chunks of 1 to 256");
  check.add_flag("--bisect", checked->bisect, "After a difference, name the layer where it begins");
  const std::vector<OptionText> of_a_model = check.describe().options;
  add_server_options(check, &checked->server);
  exclude_url(check, of_a_model);
  check.add_option("--golden", checked->golden, "The golden file").required().path("G.json");
  check.add_option("--junit", checked->junit, "Also write the results as JUnit XML").path("F.xml");
  return {[options, checked, record] { return record.is_given() ? run_record(*options) : run_check(*checked); },
          {&options->run, &checked->run}};
}

}  // namespace pinion
