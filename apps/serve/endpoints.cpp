// The small endpoints: what is served, how it does, tokens and back.
#include "apps/serve/api.h"
#include "loader/config/model_config.h"

namespace pinion {

namespace {

OrderedJson model_json(const Serving& serving) {
  return {{"id", serving.model},
          {"object", "model"},
          {"created", serving.created},
          {"owned_by", "pinion"},
          {"max_model_len", serving.service->context()}};
}

}  // namespace

// What decides the bits of answers. `pinion golden --url` asks for it.
Reply show_fingerprint(const Serving& serving, const HttpRequest&) {
  OrderedJson json = OrderedJson::parse(serving.golden_head);
  json["system_fingerprint"] = serving.fingerprint;
  json["max_model_len"] = serving.service->context();
  return json_reply(json);
}

Reply list_models(const Serving& serving, const HttpRequest&) {
  return json_reply({{"object", "list"}, {"data", OrderedJson::array({model_json(serving)})}});
}

Reply show_model(const Serving& serving, const HttpRequest& http) {
  if (http.name == serving.model) return json_reply(model_json(serving));
  return error_reply(Shape::openai, {404, "no such model here, only " + serving.model, "model", "model_not_found"});
}

Reply show_health(const Serving&, const HttpRequest&) { return json_reply({{"status", "ok"}}); }

Reply show_metrics(const Serving& serving, const HttpRequest&) {
  return {.type = "text/plain; version=0.0.4", .body = prometheus_text(serving.service->metrics())};
}

// {"content": TEXT, "add_special": false} as llama.cpp's server has it; "prompt" as vLLM's.
Reply tokenize_text(const Serving& serving, const HttpRequest& http) {
  const Reading reading(*serving.readers);
  Json json;
  if (Error e = parse_body(http.body, &json)) return error_reply(Shape::openai, field_error(e));
  JsonFields fields{json, "request"};
  const std::string text = fields.has("prompt") ? fields.text("prompt") : fields.text("content");
  const bool adds_special = fields.boolean("add_special_tokens", fields.boolean("add_special", false));
  if (fields.error) return error_reply(Shape::openai, field_error(fields.error));
  std::vector<int32_t> ids;
  if (Error e = encode_field(serving, fields.has("prompt") ? "prompt" : "content", text, adds_special, &ids)) {
    return error_reply(Shape::openai, field_error(e));
  }
  return json_reply({{"tokens", ids}, {"count", ids.size()}, {"max_model_len", serving.service->context()}});
}

Reply detokenize_ids(const Serving& serving, const HttpRequest& http) {
  const Reading reading(*serving.readers);
  Json json;
  if (Error e = parse_body(http.body, &json)) return error_reply(Shape::openai, field_error(e));
  JsonFields fields{json, "request"};
  if (!fields.has("tokens")) fields.fail("tokens", "missing field");
  std::vector<int32_t> ids;
  for (const int64_t id : fields.integers("tokens", 0, kMaxVocabulary)) ids.push_back(static_cast<int32_t>(id));
  if (fields.error) return error_reply(Shape::openai, field_error(fields.error));
  const std::string text = decode(*serving.tokenizer, ids, false);
  return json_reply({{"content", text}, {"prompt", text}});
}

}  // namespace pinion
