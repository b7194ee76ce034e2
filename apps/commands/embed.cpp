// pinion embed: vectors of texts, or scores of documents for a query, one line each.
#include <nlohmann/json.hpp>

#include "apps/cli/output_file.h"
#include "apps/commands.h"
#include "apps/model/embedding.h"
#include "kernels/base/text.h"

namespace pinion {
namespace {

struct EmbedOptions {
  RunOptions run;
  std::vector<std::string> texts;
  std::string file = "-", query, prompt_name, pooling, out;
  std::optional<std::string> prompt;
  int64_t dimensions = 0;
};

Error read_texts(const EmbedOptions& options, std::vector<std::string>* out) {
  *out = options.texts;
  std::string text;
  if (out->empty()) {
    if (Error e = read_input(options.file, kMaxTextBytes, &text)) return e;
    for (const std::string_view line : split(text, '\n')) {
      if (!trimmed(line).empty()) out->emplace_back(trimmed(line, "\r"));
    }
  }
  return out->empty() ? error("no texts", input_name(options.file), "one a line") : Error{};
}

// Prints vectors in the order of the texts, or writes them to the file at the end.
struct Vectors {
  const EmbedOptions& options;
  const EmbeddingConfig& config;
  int64_t texts;
  std::map<int64_t, std::vector<float>> done = {};  // those that wait for an earlier text's
  std::vector<float> all = {};                      // [texts][dimensions], for the file
  int64_t printed = 0;
  ProgressBar progress{"texts"};

  Error add(int64_t index, const PooledText& text) {
    if (Error e = text.finish(options.dimensions, &done[index])) return e;
    for (auto at = done.find(printed); at != done.end(); at = done.find(++printed)) {
      if (!options.out.empty()) {
        all.insert(all.end(), at->second.begin(), at->second.end());
      } else {
        print_json({{"index", printed}, {config.is_score ? "scores" : "embedding", decimals_json(at->second)}});
      }
      done.erase(at);
    }
    progress.show(printed, texts);
    return {};
  }
};

int run_embed(const EmbedOptions& options) {
  const std::string& folder = options.run.model;
  std::shared_ptr<const Tokenizer> tokenizer;
  if (Error e = check_model_folder(folder)) return fail(e);
  if (Error e = load_model_tokenizer(folder, &tokenizer)) return fail(e);
  std::vector<std::string> texts;
  if (Error e = read_texts(options, &texts)) return fail(e);
  Runtime runtime;
  EmbeddingModel model;
  if (Error e = open_with_progress(options.run, tokenizer.get(), &runtime)) return fail(e);
  if (Error e = open_embedding_model(folder, *runtime.model, options.pooling, tokenizer, &model)) return fail(e);
  const bool is_known = model.config.pooling != Pooling::none;
  if (!is_known) return fail(error("no modules.json describes the pooling: give --pooling last or mean", folder));
  if (options.dimensions > model.dimensions(runtime.model->config)) return fail_usage("--dimensions: too many");
  if (model.config.is_score == options.query.empty()) {
    return fail_usage(options.query.empty() ? "this model scores pairs of texts: give --query"
                                            : "this model makes vectors: --query needs one that scores pairs");
  }
  std::string prompt;
  std::vector<EmbeddingTokens> tokens;
  if (Error e = find_prompt(model.config, options.prompt_name, &prompt)) return fail(e);
  if (options.prompt) prompt = *options.prompt;
  const std::string* query = model.config.is_score ? &options.query : nullptr;
  if (Error e = encode_texts(model, prompt, query, texts, &tokens)) return fail(e);
  Vectors vectors{options, model.config, std::ssize(texts)};
  OutputFile file;
  if (Error e = options.out.empty() ? Error{} : file.open(options.out)) return fail(e);
  const auto add = [&](int64_t index, const PooledText& text) { return vectors.add(index, text); };
  if (Error e = pool_texts(model, runtime, tokens, 0, add)) return fail(e);
  if (options.out.empty()) return kSuccess;
  const int64_t rows = std::ssize(texts);
  if (Error e = write_npy_header(file, rows, std::ssize(vectors.all) / rows)) return fail(e);
  if (Error e = file.write(vectors.all.data(), vectors.all.size() * sizeof(float))) return fail(e);
  Error e = file.finish();
  return e ? fail(e) : kSuccess;
}

}  // namespace

Run setup_embed(Command app) {
  auto options = std::make_shared<EmbedOptions>();
  add_run_options(app, &options->run);
  app.add_option("--text TEXT", options->texts);
  app.add_path("--file F", options->file);
  app.add_option("--query TEXT", options->query);
  Option name = app.add_option("--prompt-name NAME", options->prompt_name);
  app.add_option("--prompt TEXT", options->prompt).excludes(name);
  app.add_number("--dimensions N", options->dimensions, 1, 1 << 16);
  app.add_option("--pooling MODE", options->pooling);
  app.add_path("--out F.npy", options->out);
  return {[options] { return run_embed(*options); }};
}

}  // namespace pinion
