// pinion golden: records a model's answers to prompts with a hash over the bits of all logits, and checks that they are
// the same later, on other machines, with other kernels or threads, or at a server.

#include "apps/golden/golden.h"
#include "apps/cli/output_file.h"
#include "apps/commands.h"

namespace pinion {
namespace {

constexpr const char* kEitherOr = "want either --model DIR or --url URL";

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
  if (Error e = load_tokenizer_if_any(options.run.model, &tokenizer)) return e;
  if (Error e = open_with_progress(golden->run, tokenizer.get(), runtime)) return e;
  golden->weights = weights_hash(*runtime->model);
  golden->calibration = runtime->model->calibration;
  *out = model_subject(*runtime, options.run.model, std::move(tokenizer));
  return {};
}

// Fills in the prompt's ids, and the answer.
Error record_prompt(const Subject& subject, const Golden& golden, GoldenPrompt* prompt, GoldenAnswer* out) {
  if (prompt->text && !subject.has_tokenizer) return error("no tokenizer", subject.name);
  if (Error e = prompt->text ? subject.encode(*prompt->text, true, &prompt->ids) : Error{}) return e;
  const int64_t tokens = std::ssize(prompt->ids) + prompt->max_tokens;
  if (subject.context > 0 && tokens > subject.context) {  // the server could end the answer earlier than the model
    return error("prompt and answer may be longer than the server's context", subject.name,
                 at_most(subject.context) + " tokens", tokens);
  }
  return subject.answer(golden, *prompt, out);
}

int run_record(const RecordOptions& options) {
  if (options.run.model.empty() == options.server.url.empty()) return fail_usage(kEitherOr);
  Golden golden;
  Runtime runtime;
  Subject subject;
  if (Error e = read_prompts(options.prompts, options.max_tokens, &golden.prompts)) return fail(e);
  if (golden.prompts.empty()) return fail(error("no prompts to record", options.prompts));
  if (Error e = options.server.url.empty() ? open_model(options, &runtime, &golden, &subject)
                                           : open_server(options.server, &golden, &subject)) {
    return fail(e);
  }
  golden.sampler = {};  // independent of the folder's generation_config.json
  apply_sampling_flags(options.sampling, &golden.sampler);
  EncodeText plain;
  if (subject.has_tokenizer)
    plain = [&](const std::string& text, auto* ids) { return subject.encode(text, false, ids); };
  if (Error e = find_dry_breakers(options.sampling, plain, &golden.sampler)) return fail(e);
  for (GoldenPrompt& prompt : golden.prompts) {
    if (Error e = record_prompt(subject, golden, &prompt, &golden.answers.emplace_back())) return fail(e);
  }
  if (Error e = write_golden(golden, options.out)) return fail(e);
  print("recorded " + std::to_string(golden.prompts.size()) + " prompts in " + options.out + "\n");
  return kSuccess;
}

// Prints one line per prompt, or one row of the matrix.
void show_result(const CheckOptions& options, const CheckResult& result) {
  const std::string prompt = std::to_string(result.prompt), tokens = std::to_string(result.tokens);
  if (options.matrix) {
    print("| " + result.way + " | " + prompt + " | " + tokens + " | " +
          (result.difference ? result.difference.what : "same") + " |\n");
  } else if (!result.difference) {
    print("OK prompt " + prompt + ": " + tokens + " tokens\n");
  }
}

// Prints each difference once, with all ways of the matrix that have it.
void show_differences(const CheckOptions& options, const std::vector<CheckResult>& results) {
  std::vector<std::pair<const CheckResult*, std::string>> shown;  // with the names of the ways
  for (const CheckResult& result : results) {
    if (!result.difference) continue;
    const auto same = std::ranges::find_if(shown, [&](const auto& other) {
      return result.prompt == other.first->prompt && result.explanation == other.first->explanation &&
             result.difference.message() == other.first->difference.message();
    });
    if (same == shown.end()) {
      shown.emplace_back(&result, result.way);
    } else {
      same->second += "; " + result.way;
    }
  }
  for (const auto& [result, ways] : shown) {
    print("\nprompt " + std::to_string(result->prompt) + ", " + result->prompt_text + ": " +
          (result->explanation.empty() ? result->difference.message() : result->difference.what) + "\n" +
          result->explanation);
    if (options.matrix) print("    ways: " + ways + "\n");
  }
}

int run_check(CheckOptions& options) {
  if (options.run.model.empty() == options.server.url.empty()) return fail_usage(kEitherOr);
  OutputFile junit;
  std::error_code ignored;
  if (std::filesystem::equivalent(options.golden, options.junit, ignored)) {
    return fail_usage("--junit would replace the golden file");
  }
  if (Error e = options.junit.empty() ? Error{} : junit.open(options.junit)) return fail(e);
  if (options.matrix) print("| way | prompt | tokens | result |\n|:--|--:|--:|:--|\n");
  std::vector<CheckResult> results;
  options.shown = [&](const CheckResult& result) { show_result(options, result); };
  if (Error e = check_golden(options, &results)) return fail(e);
  std::string xml;
  if (Error e = options.junit.empty() ? Error{} : junit_xml(results, &xml)) return fail(e);
  if (Error e = options.junit.empty() ? Error{} : junit.finish(xml)) return fail(e);
  const auto differ = std::ranges::count_if(results, [](const CheckResult& result) { return bool(result.difference); });
  if (differ == 0) return kSuccess;
  show_differences(options, results);
  return fail(error(std::to_string(differ) + " of " + std::to_string(results.size()) +
                        (options.matrix ? " runs differ from the recording" : " prompts differ from the recording"),
                    options.golden));
}

void add_server_options(Command app, ServerOptions* options) {
  app.add_option("--url URL", options->url).check([](const std::string& url) {
    const bool is_valid = url.starts_with("http://") || url.starts_with("https://");
    return is_valid ? "" : "want an address like http://127.0.0.1:8080, have " + url;
  });
  app.add_path("--api-key-file F", options->key_file);
}

// These options do not apply to a server, which is running already.
void exclude_url(Command app, const std::vector<std::string>& options) {
  for (const std::string& name : options) {
    if (name != "--help") app.find("--url").excludes(app.find(name));
  }
}

}  // namespace

Run setup_golden(Command app) {
  auto options = std::make_shared<RecordOptions>();
  auto checked = std::make_shared<CheckOptions>();
  app.require_command();
  const Command record = app.add_command("record");
  add_run_options(record, &options->run);
  record.find("--model").required(false);
  const std::vector<std::string> run_options = record.option_names();
  add_server_options(record, &options->server);
  exclude_url(record, run_options);
  record.add_path("--prompts F.json", options->prompts).required();
  record.add_path("--out G.json", options->out).required();
  record.add_number("--max-tokens N", options->max_tokens, 0, kMaxGoldenTokens);
  add_sampling_options(record, &options->sampling);

  const Command check = app.add_command("check");
  add_model_option(check, &checked->run);
  add_threads_option(check, &checked->run);
  add_speed_options(check, &checked->run);
  check.add_flag("--no-cache", checked->run.no_cache);
  add_calibrate_option(check, &checked->run);
  add_lora_option(check, &checked->run);
  check.add_flag("--matrix", checked->matrix);
  check.add_flag("--bisect", checked->bisect);
  const std::vector<std::string> model_options = check.option_names();
  add_server_options(check, &checked->server);
  exclude_url(check, model_options);
  check.add_path("--golden G.json", checked->golden).required();
  check.add_path("--junit F.xml", checked->junit);
  return {[options, checked, record] { return record.is_given() ? run_record(*options) : run_check(*checked); },
          {&options->run, &checked->run}};
}

}  // namespace pinion
