// Vectors of texts and scores of documents.
#include "apps/library/interface.h"
#include "apps/model/embedding.h"

namespace pinion {
namespace {

Error check_kind(const EmbeddingConfig& config, bool has_query) {
  if (config.pooling == Pooling::none)
    return error("no modules.json describes the pooling", "options.pooling", "a mode");
  if (config.is_score == has_query) return {};
  return error(has_query ? "the model makes vectors, not scores" : "the model scores texts for a query",
               "options.query");
}

pinion_status embed(OpenModel& model, std::span<const std::string> texts, const pinion_embed_options& options,
                    float** out, size_t* width) {
  EmbeddingModel embedding;
  std::vector<EmbeddingTokens> tokens;
  if (!model.tokenizer) return invalid(error("the folder has no tokenizer", model.run.model));
  if (Error e = open_embedding_model(model.run.model, *model.runtime.model, std::string(text_or_empty(options.pooling)),
                                     model.tokenizer, &embedding)) {
    return failed(PINION_ERROR_MODEL, e);
  }
  if (Error e = check_kind(embedding.config, options.query != nullptr)) return invalid(e);
  const std::string name(text_or_empty(options.prompt_name)), query(text_or_empty(options.query));
  std::string prompt;
  if (Error e = find_prompt(embedding.config, name, &prompt)) return invalid(e);
  if (Error e = encode_texts(embedding, prompt, options.query ? &query : nullptr, texts, &tokens)) return invalid(e);
  const PassLock lock(model.passes);
  if (!lock.is_held()) return busy();
  std::vector<std::vector<float>> vectors(texts.size());
  const auto add = [&](int64_t i, const PooledText& text) { return text.finish(options.dimensions, &vectors[i]); };
  if (Error e = pool_texts(embedding, model.runtime, tokens, options.parallel, add)) return status_of(e);
  *width = vectors[0].size();
  float* at = *out = allocate<float>(vectors.size() * *width);
  for (const std::vector<float>& vector : vectors) at = std::ranges::copy(vector, at).out;
  return PINION_OK;
}

}  // namespace
}  // namespace pinion

using namespace pinion;

pinion_status pinion_embed(pinion_model* model, const char* const* texts, size_t count,
                           const pinion_embed_options* options, float** out, size_t* width) {
  return guarded({{"model", model}, {"texts", texts}, {"out", out}, {"width", width}}, [&] {
    *out = nullptr, *width = 0;
    pinion_embed_options how;
    std::vector<std::string> list;
    if (Error e = read_options(options, "pinion_embed_options", &how)) return invalid(e);
    if (Error e = read_texts(texts, count, "texts", &list)) return invalid(e);
    if (list.empty()) return invalid(error("no texts", "count", "at least 1", "0"));
    if (Error e = check_range("dimensions", how.dimensions, 0, 1 << 30)) return invalid(e);
    if (Error e = check_range("parallel", how.parallel, 0, 1024)) return invalid(e);
    return embed(*model->shared, list, how, out, width);
  });
}
