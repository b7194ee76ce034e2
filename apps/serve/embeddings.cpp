// Vectors and scores: POST /v1/embeddings (platform.openai.com/docs/api-reference/embeddings), Ollama's /api/embed and
// /api/embeddings, and /v1/rerank in the format of Jina and Cohere (jina.ai/reranker,
// docs.cohere.com/reference/rerank).
#include <nettle/base64.h>

#include "apps/cli/common.h"
#include "apps/serve/request.h"

namespace pinion {
namespace {

constexpr int64_t kMaxTexts = 2048;  // OpenAI's limit
struct VectorRequest {
  std::vector<EmbeddingTokens> texts;
  std::vector<std::vector<float>> vectors;  // in the order of the texts
  int64_t dimensions = 0;
  bool is_base64 = false;
  std::vector<std::string> ignored;  // see GenerationFields
  // For reranking.
  std::vector<std::string> documents;
  int64_t top = 0;
  bool returns_documents = false;

  int64_t tokens() const {
    return std::accumulate(texts.begin(), texts.end(), int64_t{0},
                           [](int64_t sum, const EmbeddingTokens& text) { return sum + std::ssize(text.ids); });
  }
};

// Computes the vectors of texts [first, last), which run at once. Status 0: success.
ApiError compute_part(const ServerState& server, const HttpRequest& http, size_t first, size_t last,
                      VectorRequest* out) {
  const int64_t hidden_size = server.service->model().config.hidden_size;
  std::vector<std::shared_ptr<PooledText>> pooled;
  std::vector<InferenceRequest> requests;
  for (size_t i = first; i < last; ++i) {
    const auto text = std::make_shared<PooledText>(PooledText{server.embedding->config, out->texts[i].prompt_tokens});
    pooled.push_back(text);
    InferenceRequest& request = requests.emplace_back();
    request.prompt = out->texts[i].ids;
    request.needs_all_hidden = text->needs_all_rows();
    request.on_hidden = [=](int64_t at, std::span<const float> rows) { text->add(at, rows, hidden_size); };
  }
  std::unique_ptr<RequestGroup> group;
  FailureKind kind = FailureKind::none;
  if (Error e = server.service->submit(std::move(requests), &group, &kind)) return failure_error(kind, e);
  while (!group->is_over()) {
    const std::optional<RequestEvent> event = group->next_event(http.is_client_connected);
    if (!event) return {499, "the client has disconnected"};
    if (event->failure) return failure_error(event->failure_kind, event->failure);
  }
  for (const auto& text : pooled) {
    if (Error e = text->finish(out->dimensions, &out->vectors.emplace_back())) return {500, e.message()};
  }
  return {.status = 0, .message = {}};
}

// Replies with json() of a request that `read` reads. Computes as many texts at once as run together, so that other
// requests find places in the queue.
Reply vectors_reply(const ServerState& server, const HttpRequest& http, Api api,
                    const std::function<void(JsonFields& fields, VectorRequest* out)>& read,
                    const std::function<OrderedJson(const VectorRequest& request)>& json) {
  VectorRequest request;
  OrderedJson body;
  {
    const Slot slot(*server.parse_slots);
    if (Error e = parse_body(http.body, &body)) return error_reply(api, e);
    const Json rest = request_fields(body);
    JsonFields fields{rest, "request"};
    read(fields, &request);
    if (fields.error) return error_reply(api, fields.error);
    if (!http.is_client_connected()) return error_reply(api, {499, "the client has disconnected"});
    if (Error e = check_other_fields(fields, "", &request.ignored)) return error_reply(api, e);
  }
  const size_t part = server.service->parallel(), count = request.texts.size();
  for (size_t first = 0; first < count;) {
    ApiError failure = compute_part(server, http, first, std::min(count, first + part), &request);
    if (failure.status == 0) {
      first += part;
    } else if (failure.code != kQueueFull || first == 0) {
      return error_reply(api, failure);
    } else if (!http.is_client_connected()) {
      return error_reply(api, {499, "the client has disconnected"});
    } else {  // parts of other requests came first; the texts that are done would be lost
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  Reply reply = json_reply(json(request));
  if (!request.ignored.empty()) reply.headers.emplace_back("X-Pinion-Ignored", joined(request.ignored));
  return reply;
}

std::string base64(const std::vector<float>& vector) {
  const size_t bytes = vector.size() * sizeof(float);
  std::string text(BASE64_ENCODE_RAW_LENGTH(bytes), '\0');
  base64_encode_raw(text.data(), bytes, reinterpret_cast<const uint8_t*>(vector.data()));
  return text;
}

// Refuses a text that was cut, if the request forbids that: "truncate" is false, or NONE as Cohere has it.
void check_length(const ServerState& server, JsonFields& fields, const char* name, const EmbeddingTokens& text) {
  const Json* truncate = fields.find("truncate");
  if (text.is_truncated && truncate && (*truncate == false || *truncate == "NONE")) {
    fields.fail(name, "too long", at_most(server.embedding->config.max_tokens) + " tokens");
  }
}

// The texts of a field: a string, token ids, or a list of either. Ollama takes no text for an empty list.
void read_texts(const ServerState& server, const HttpRequest& http, JsonFields& fields, Api api, const char* name,
                const std::string& prompt, VectorRequest* out) {
  const Json* input = fields.find(name);
  if (!input) return fields.fail(name, "missing field");
  const bool is_list = input->is_array() && (input->empty() || !input->front().is_number());
  const Json list = is_list ? *input : Json::array({*input});
  if (api == Api::ollama && (list.empty() || *input == "")) return;
  if (list.empty() || std::ssize(list) > kMaxTexts) {
    return fields.fail(name, "wrong number of texts", "1 to " + std::to_string(kMaxTexts), list.size());
  }
  for (const Json& text : list) {
    EmbeddingTokens& tokens = out->texts.emplace_back();
    if (text.is_array()) {
      const Json wrapped = {{name, text}};
      JsonFields ids{wrapped, fields.where, {}, {}, &fields};
      tokens.ids = read_token_ids(ids, name, kMaxVocabulary);
      if (std::ssize(tokens.ids) > server.embedding->config.max_tokens) {
        fields.fail(name, "too long", at_most(server.embedding->config.max_tokens) + " tokens");
      }
    } else if (!text.is_string()) {
      fields.fail(name, "wrong type", "a string, token ids, or a list of either", brief(text));
    } else if (Error e = encode_text(*server.embedding, prompt, text.get<std::string>(), &tokens)) {
      fields.fail(name, e.message());
    }
    check_length(server, fields, name, tokens);
    if (fields.error || !http.is_client_connected()) return;
  }
}

// The prompt that a request names: sentence-transformers' prompt_name, or Cohere's input_type.
void read_prompt(const ServerState& server, JsonFields& fields, std::string* out) {
  const EmbeddingConfig& config = server.embedding->config;
  std::string type = fields.text("input_type", "");
  if (type.starts_with("search_")) type = type.substr(7);
  const std::string name = fields.text("prompt_name", config.prompts.contains(type) ? type : "");
  if (Error e = find_prompt(config, name, out)) fields.fail("prompt_name", e.what, e.expected, e.actual);
}

// The endpoints of embeddings; the texts are in the field `input` or "input".
Reply embed(const ServerState& server, const HttpRequest& http, Api api, const char* input,
            const std::function<OrderedJson(const VectorRequest& request)>& json) {
  const auto read = [&](JsonFields& fields, VectorRequest* out) {
    std::string prompt;
    read_prompt(server, fields, &prompt);
    read_texts(server, http, fields, api, fields.has(input) ? input : "input", prompt, out);
    out->dimensions = fields.integer("dimensions", 0, 0, server.embedding->dimensions(server.service->model().config));
    const std::string format = fields.text("encoding_format", "float");
    out->is_base64 = format == "base64";
    if (!out->is_base64 && format != "float") fields.fail("encoding_format", "unknown", "float or base64", format);
  };
  if (!server.embedding->makes_vectors()) {
    const char* reason = server.embedding->config.is_score
                             ? "this model makes no embeddings: it scores pairs of texts (/v1/rerank)"
                             : "this model makes no embeddings: nothing describes its pooling; start with --pooling";
    return error_reply(api, {api == Api::ollama ? 501 : 400, reason, "model"});
  }
  return vectors_reply(server, http, api, read, json);
}

void read_rerank_request(const ServerState& server, const HttpRequest& http, JsonFields& fields, VectorRequest* out) {
  const std::string query = fields.text("query");
  std::string instruction;
  read_prompt(server, fields, &instruction);
  instruction = fields.text("instruction", fields.text("instruct", instruction));
  out->returns_documents = fields.boolean("return_documents", false);
  const std::span<const Json> list = fields.list("documents");
  if (!fields.error && (list.empty() || std::ssize(list) > kMaxTexts)) {
    fields.fail("documents", "wrong number of texts", "1 to " + std::to_string(kMaxTexts), list.size());
  }
  out->top = fields.integer("top_n", kMaxTexts, 1, kMaxTexts);
  for (const Json& item : list) {
    JsonFields document{item, "request: documents", {}, {}, &fields};
    out->documents.push_back(item.is_string() ? item.get<std::string>() : document.text("text"));
    if (fields.error || !http.is_client_connected()) return;
    if (Error e =
            encode_pair(*server.embedding, instruction, query, out->documents.back(), &out->texts.emplace_back())) {
      fields.fail("documents", e.message());
    }
    check_length(server, fields, "documents", out->texts.back());
  }
}

OrderedJson usage_json(const VectorRequest& request) {
  return {{"prompt_tokens", request.tokens()}, {"total_tokens", request.tokens()}};
}

}  // namespace

Reply embed_texts(const ServerState& server, const HttpRequest& http) {
  return embed(server, http, Api::openai, "input", [&](const VectorRequest& request) -> OrderedJson {
    OrderedJson data = OrderedJson::array();
    for (const std::vector<float>& vector : request.vectors) {
      data.push_back({{"object", "embedding"},
                      {"index", data.size()},
                      {"embedding", request.is_base64 ? OrderedJson(base64(vector)) : decimals_json(vector)}});
    }
    return {{"object", "list"}, {"data", std::move(data)}, {"model", server.model}, {"usage", usage_json(request)}};
  });
}

Reply ollama_embed(const ServerState& server, const HttpRequest& http) {
  return embed(server, http, Api::ollama, "input", [&](const VectorRequest& request) -> OrderedJson {
    OrderedJson all = OrderedJson::array();
    for (const std::vector<float>& vector : request.vectors) all.push_back(decimals_json(vector));
    return {{"model", server.model}, {"embeddings", std::move(all)}, {"prompt_eval_count", request.tokens()}};
  });
}

Reply ollama_embed_prompt(const ServerState& server, const HttpRequest& http) {
  return embed(server, http, Api::ollama, "prompt", [](const VectorRequest& request) -> OrderedJson {
    return {{"embedding", request.vectors.empty() ? OrderedJson::array() : decimals_json(request.vectors[0])}};
  });
}

Reply rerank(const ServerState& server, const HttpRequest& http) {
  const ApiError refusal = {400, "this model scores no pairs of texts", "model"};
  if (!server.embedding->config.is_score) return error_reply(Api::openai, refusal);
  const auto read = [&](JsonFields& fields, VectorRequest* out) { read_rerank_request(server, http, fields, out); };
  return vectors_reply(server, http, Api::openai, read, [&](const VectorRequest& request) -> OrderedJson {
    std::vector<std::pair<double, size_t>> order;  // minus the relevance, and the index
    for (const auto& scores : request.vectors) order.emplace_back(-server.embedding->relevance(scores), order.size());
    std::ranges::sort(order);
    OrderedJson results = OrderedJson::array();
    for (const auto& [rank, i] : order) {
      if (std::ssize(results) == request.top) break;
      results.push_back({{"index", i}, {"relevance_score", -rank}});
      if (request.returns_documents) results.back()["document"] = {{"text", request.documents[i]}};
    }
    return {
        {"object", "list"}, {"model", server.model}, {"results", std::move(results)}, {"usage", usage_json(request)}};
  });
}

}  // namespace pinion
