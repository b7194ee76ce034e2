// pinion logits: evaluates a prompt and writes the logits as a NumPy file, float32 [positions, vocabulary].
#include "apps/cli/output_file.h"
#include "apps/commands.h"
#include "engine/forward/rope.h"
#include "engine/team/memory.h"

namespace pinion {
namespace {

struct LogitsOptions {
  RunOptions run;
  std::optional<std::string> prompt, prompt_ids;
  std::string out;
  bool all = false;
};

// Evaluates the prompt in one call, despite the memory: dynamic rope depends on the length of the whole prompt.
Error write_logits(Session& session, std::span<const int32_t> ids, bool all, OutputFile& file) {
  const int64_t rows = all ? std::ssize(ids) : 1;
  const int64_t vocab = session.model->config.vocab_size;
  const int64_t bytes = rows * vocab * int64_t{sizeof(float)};
  if (Error e = check_memory(bytes, free_memory(), "too little memory", "logits")) return e;
  std::vector<float> logits(rows * vocab);
  if (Error e = evaluate(session, ids, all, logits.data())) return e;
  if (Error e = write_npy_header(file, rows, vocab)) return e;
  return file.write(logits.data(), bytes);
}

int run_logits(const LogitsOptions& options) {
  if (!options.prompt && !options.prompt_ids) return fail_usage("no prompt: give --prompt-ids or --prompt");
  std::vector<int32_t> ids;
  if (Error e = parse_ids(options.prompt_ids.value_or(""), &ids)) return fail_usage("--prompt-ids: " + e.message());
  if (Error e = check_model_folder(options.run.model)) return fail(e);
  if (options.prompt) {
    std::shared_ptr<const Tokenizer> tokenizer;
    if (Error e = load_model_tokenizer(options.run.model, &tokenizer)) return fail(e);
    if (Error e = encode_prompt(options.run.model, *tokenizer, *options.prompt, &ids)) return fail(e);
  }

  if (ids.empty()) return fail(error("the prompt has no tokens", "logits"));
  Runtime runtime;
  if (Error e = open_with_progress(options.run, nullptr, &runtime)) return fail(e);
  const ModelConfig& config = runtime.model->config;
  if (Error e = check_prompt(config, ids, context_length(config))) return fail(e);
  std::unique_ptr<Session> session;
  if (Error e = open_session(runtime, {.context = std::ssize(ids)}, &session)) return fail(e);
  OutputFile file;
  if (Error e = file.open(options.out)) return fail(e);
  if (Error e = write_logits(*session, ids, options.all, file)) return fail(e);
  if (Error e = file.finish()) return fail(e);
  return kSuccess;
}

}  // namespace

Run setup_logits(Command app) {
  auto options = std::make_shared<LogitsOptions>();
  add_run_options(app, &options->run);
  Option ids = app.add_option("--prompt-ids LIST", options->prompt_ids);
  app.add_option("-p,--prompt TEXT", options->prompt).excludes(ids);
  app.add_flag("--all", options->all);
  app.add_path("--out F.npy", options->out).required();
  return {[options] { return run_logits(*options); }, {&options->run}};
}

}  // namespace pinion
