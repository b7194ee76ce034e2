#include "apps/model/embedding.h"

#include <algorithm>
#include <cmath>

#include "apps/model/open.h"
#include "loader/files/json.h"

namespace pinion {
namespace {

// Truncates to a length; true if ids go. The last `ending` ids, which end every text, stay.
bool truncate(int64_t ending, int64_t max_tokens, std::vector<int32_t>* ids) {
  const int64_t excess = std::ssize(*ids) - max_tokens, end = std::ssize(*ids) - ending;
  if (excess > 0) ids->erase(ids->begin() + std::max<int64_t>(0, end - excess), ids->begin() + end);
  return excess > 0;
}

// Truncates a pair, the longer text first, as transformers' tokenizers do ("longest_first"); true if ids go.
bool truncate_longest(int64_t ending, int64_t max_tokens, std::vector<int32_t>* first, std::vector<int32_t>* second) {
  const bool is_first_longer = first->size() > second->size();
  int64_t shorter = std::ssize(is_first_longer ? *second : *first);
  int64_t longer = std::max(shorter, max_tokens - shorter);
  if (shorter + longer > max_tokens) {
    shorter = max_tokens / 2;
    longer = max_tokens - shorter;
  }
  const bool cuts_first = truncate(ending, is_first_longer ? longer : shorter, first);
  return truncate(ending, is_first_longer ? shorter : longer, second) || cuts_first;
}

Error count_ending(const Tokenizer& tokenizer, int64_t* out) {
  std::vector<int32_t> empty, letter;
  if (Error e = encode(tokenizer, "", {}, &empty)) return e;
  if (Error e = encode(tokenizer, "a", {}, &letter)) return e;
  *out = empty.end() - std::ranges::mismatch(empty, letter).in1;
  return {};
}

Error encode_by_template(const EmbeddingModel& model, const std::string& instruction, const std::string& query,
                         const std::string& document, std::vector<int32_t>* out) {
  Conversation conversation;
  conversation.add_generation_prompt = false;
  conversation.template_name = model.template_name;
  conversation.is_strict = true;
  if (!instruction.empty()) conversation.messages.push_back({{"role", "system"}, {"content", instruction}});
  conversation.messages.push_back({{"role", "query"}, {"content", query}});
  conversation.messages.push_back({{"role", "document"}, {"content", document}});
  Prompt prompt;
  if (Error e = make_prompt(*model.chat_template, *model.tokenizer, conversation, &prompt)) return e;
  *out = std::move(prompt.ids);
  return {};
}

}  // namespace

double EmbeddingModel::relevance(const std::vector<float>& scores) const {
  return scores.size() == 1 && config.applies_sigmoid ? 1.0 / (1.0 + std::exp(-double{scores[0]})) : scores.back();
}

Error open_embedding_model(const std::string& folder, const Model& model, const std::string& pooling,
                           std::shared_ptr<const Tokenizer> tokenizer, EmbeddingModel* out) {
  Pooling chosen = Pooling::none;
  if (Error e = pooling.empty() ? Error{} : parse_pooling(pooling, &chosen)) return e;
  out->tokenizer = std::move(tokenizer);
  if (Error e = read_embedding_config(folder, model, chosen, &out->config)) return e;
  if (out->config.pooling == Pooling::none) return {};
  if (Error e = count_ending(*out->tokenizer, &out->ending_tokens)) return e;
  if (!out->config.is_score) return {};
  if (Error e = load_chat_template(folder, &out->chat_template)) return e;
  if (!out->chat_template) return {};
  if (!template_source(*out->chat_template, {.template_name = "rerank"}).empty()) out->template_name = "rerank";
  const std::string_view source = template_source(*out->chat_template, {.template_name = out->template_name});
  const auto has_role = [&](const std::string& role) {
    return source.find("'" + role + "'") != source.npos || source.find('"' + role + '"') != source.npos;
  };
  if (!has_role("query") || !has_role("document")) out->chat_template.reset();
  return {};
}

Error find_prompt(const EmbeddingConfig& config, const std::string& name, std::string* out) {
  const std::string& chosen = name.empty() ? config.default_prompt : name;
  const auto found = config.prompts.find(chosen);
  *out = found == config.prompts.end() ? "" : found->second;
  if (chosen.empty() || found != config.prompts.end()) return {};
  std::vector<std::string> names;
  for (const auto& [known, text] : config.prompts) names.push_back(known);
  return error("the model has no such prompt", "prompt", joined(names), name);
}

Error encode_text(const EmbeddingModel& model, const std::string& prompt, const std::string& text,
                  EmbeddingTokens* out) {
  if (Error e = encode(*model.tokenizer, prompt + text, {}, &out->ids)) return e;
  out->is_truncated = truncate(model.ending_tokens, model.config.max_tokens, &out->ids);
  if (out->ids.empty()) return error("no tokens", "text");
  if (model.config.pools_prompt || prompt.empty()) return {};
  std::vector<int32_t> before;
  if (Error e = encode(*model.tokenizer, prompt, {}, &before)) return e;
  out->prompt_tokens = std::ssize(before) - model.ending_tokens;
  if (out->prompt_tokens < std::ssize(out->ids)) return {};
  return error("too long", "prompt", "less than " + std::to_string(out->ids.size()) + " tokens");
}

Error encode_pair(const EmbeddingModel& model, const std::string& instruction, const std::string& query,
                  const std::string& document, EmbeddingTokens* out) {
  const int64_t most = model.config.max_tokens;
  std::vector<int32_t> without, second;  // `without` the document
  if (!model.chat_template) {
    if (Error e = encode(*model.tokenizer, instruction + query, {}, &out->ids)) return e;
    if (Error e = encode(*model.tokenizer, document, {}, &second)) return e;
    out->is_truncated = truncate_longest(model.ending_tokens, most, &out->ids, &second);
    out->ids.insert(out->ids.end(), second.begin(), second.end());
  } else if (Error e = encode_by_template(model, instruction, query, document, &out->ids)) {
    return e;
  }
  if (model.chat_template && std::ssize(out->ids) > most) {
    if (Error e = encode_by_template(model, instruction, query, "", &without)) return e;
    const std::string count = std::to_string(without.size());
    if (std::ssize(without) >= most)
      return error("too long", "query", "less than " + std::to_string(most) + " tokens", count);
    out->is_truncated = truncate(without.end() - std::ranges::mismatch(without, out->ids).in1, most, &out->ids);
  }
  while (out->ids.size() > 1 && out->ids.back() == model.config.skipped_end) out->ids.pop_back();
  return out->ids.empty() ? error("no tokens", "pair") : Error{};
}

Error encode_texts(const EmbeddingModel& model, const std::string& prompt, const std::string* query,
                   std::span<const std::string> texts, std::vector<EmbeddingTokens>* out) {
  for (const std::string& text : texts) {
    EmbeddingTokens* tokens = &out->emplace_back();
    Error e = query ? encode_pair(model, prompt, *query, text, tokens) : encode_text(model, prompt, text, tokens);
    if (e) return error(e.message(), "text " + std::to_string(out->size()));
  }
  return {};
}

Error pool_texts(const EmbeddingModel& model, const Runtime& runtime, std::span<const EmbeddingTokens> texts,
                 int64_t parallel, const std::function<Error(int64_t index, const PooledText& text)>& on_text) {
  constexpr int64_t kParallel = 32;
  std::vector<int64_t> needs;
  for (const EmbeddingTokens& text : texts) needs.push_back(std::ssize(text.ids));
  SchedulerOptions options =
      batch_options(runtime, std::move(needs), std::min(parallel > 0 ? parallel : kParallel, std::ssize(texts)));
  options.keeps_hidden = true;
  std::unique_ptr<Scheduler> scheduler;
  if (Error e = open_scheduler(*runtime.model, *runtime.team, options, &scheduler)) return e;
  const int64_t hidden_size = runtime.model->config.hidden_size;
  Error failure;
  for (int64_t i = 0; i < std::ssize(texts); ++i) {
    const auto where = [i](const Error& e) { return error(e.message(), "text " + std::to_string(i + 1)); };
    const auto text = std::make_shared<PooledText>(PooledText{model.config, texts[i].prompt_tokens});
    TextRequest request;
    request.prompt = texts[i].ids;
    request.needs_all_hidden = text->needs_all_rows();
    request.on_hidden = [=](int64_t first, std::span<const float> rows) { text->add(first, rows, hidden_size); };
    request.on_end = [&, text, i, where](const Error& e, const GenerateResult&) {
      if (failure) return;
      if (Error of_text = e ? e : on_text(i, *text)) failure = where(of_text);
    };
    int64_t id = 0;
    if (Error e = submit(*scheduler, std::move(request), &id)) return where(e);
  }
  while (!failure && step(*scheduler)) continue;
  return failure;
}

}  // namespace pinion
