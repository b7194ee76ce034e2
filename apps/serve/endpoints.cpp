// The endpoints that run no inference: page, models, metrics, tokenizer.

#include "apps/cli/common.h"
#include "apps/serve/conversation.h"
#include "apps/serve/models.h"
#include "kernels/base/text.h"

namespace pinion {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PromptCacheCounts, bytes, loaded_tokens, stored_files, damaged_files)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ServiceMetrics, running, waiting, finished, cancelled, refused, prompt_tokens,
                                   cached_tokens, tokens, passes, preempted, snapshot_bytes, snapshots_taken,
                                   snapshots_evicted, busy_seconds, weight_bytes, roof_bytes_per_second, prompt_cache)

namespace {

// Prometheus' text format (prometheus.io/docs/instrumenting/exposition_formats): the head of each metric, and the
// samples of all models. A server of several models labels them: model="NAME".
using MetricText = std::vector<std::pair<std::string, std::string>>;

std::string& samples_of(const std::string& name, MetricText* text) {
  const OrderedJson& row = server_table("metrics")[name];
  const std::string type = row["type"], help = row["help"], full = "pinion_" + name;
  const std::string head = "# HELP " + full + " " + help + "\n# TYPE " + full + " " + type + "\n";
  const auto known = std::ranges::find(*text, head, &MetricText::value_type::first);
  return known != text->end() ? known->second : text->emplace_back(head, "").second;
}

std::string sample(const std::string& name, const std::string& label, double value) {
  return "pinion_" + name + (label.empty() ? "" : "{" + label + "}") + formatted(" %.15g\n", value);
}

void add_histogram(const char* name, const Histogram& values, const std::string& label, MetricText* out) {
  std::string& text = samples_of(name, out);
  const std::string bucket = std::string(name) + "_bucket", before = label.empty() ? "" : label + ",";
  int64_t below = 0;
  for (size_t i = 0; i < values.counts.size(); ++i) {
    below += values.counts[i];
    text += sample(bucket, before + formatted("le=\"%.9g\"", Histogram::kBounds_s[i]), static_cast<double>(below));
  }
  const auto count = static_cast<double>(values.count);
  text += sample(bucket, before + "le=\"+Inf\"", count) + sample(std::string(name) + "_sum", label, values.sum_s) +
          sample(std::string(name) + "_count", label, count);
}

// Metrics with a "value" in the table are members of ServiceMetrics.
void add_metrics(const ServiceMetrics& m, const std::string& label, MetricText* out) {
  Json values = m;
  if (m.roof_bytes_per_second > 0) {
    values["roof_share"] = m.busy_seconds > 0 ? m.weight_bytes / m.busy_seconds / m.roof_bytes_per_second : 0;
  } else {
    values.erase("roof_bytes_per_second");
  }
  for (const auto& [name, row] : server_table("metrics").items()) {
    const Json::json_pointer value(row.value("value", "/none"));
    if (values.contains(value)) samples_of(name, out) += sample(name, label, values[value]);
  }
  add_histogram("first_token_seconds", m.first_token_s, label, out);
  add_histogram("token_seconds", m.token_s, label, out);
}

OrderedJson model_json(const ServerState& server, const ListedModel& model) {
  OrderedJson json = {{"id", model.name}, {"object", "model"}, {"created", server.created}, {"owned_by", "pinion"}};
  if (model.loaded) json["max_model_len"] = model.loaded->service->context();
  if (!server.models->has_several()) return json;
  json["aliases"] = model.aliases;
  json["status"] = {{"value", model.status}};
  if (model.status == "loading") json["status"]["progress"] = model.progress;
  if (!model.failure.empty()) json["status"]["reason"] = model.failure;
  return json;
}

const char* media_type(std::string_view path) {
  if (path == "/") return "text/html; charset=utf-8";
  return path.ends_with(".css") ? "text/css; charset=utf-8" : "text/javascript; charset=utf-8";
}

}  // namespace

// The headers: even if a bug turned model output into markup, it could load nothing, run nothing and send nothing away.
Reply show_page(const ServerState&, const HttpRequest& http) {
  const auto file = std::ranges::find(page_files(), http.path, &PageFile::path);
  Reply reply = {.type = media_type(http.path), .body = std::string(file->text)};
  for (const auto& [name, value] : server_table("page_headers").items()) reply.headers.emplace_back(name, value);
  return reply;
}

// Build, weights and settings: two servers with equal fingerprints give the same bits. `pinion golden --url` reads it.
Reply show_fingerprint(const ServerState& server, const HttpRequest&) {
  OrderedJson json = OrderedJson::parse(server.golden_head);
  json["system_fingerprint"] = server.fingerprint;
  json["max_model_len"] = server.service->context();
  return json_reply(json);
}

Reply list_models(const ServerState& server, const HttpRequest&) {
  OrderedJson list = OrderedJson::array();
  for (const ListedModel& model : server.models->list()) list.push_back(model_json(server, model));
  OrderedJson json = {{"object", "list"}, {"data", std::move(list)}};
  if (server.models->has_several()) json["free_memory_bytes"] = server.models->free_bytes();
  return json_reply(json);
}

Reply show_model(const ServerState& server, const HttpRequest& http) {
  const std::vector<ListedModel> named = server.models->list(http.name);
  return named.empty() ? error_reply(Api::openai, server.models->unknown()) : json_reply(model_json(server, named[0]));
}

// POST /models/load and /models/unload, which end once the model is loaded or dropped.
Reply move_model(const ServerState& server, const HttpRequest& http) {
  BodyFields body(http.body);
  const std::string name = body.fields.text("model");
  if (body.fields.error) return error_reply(Api::openai, body.fields.error);
  std::shared_ptr<const ServerState> loaded;
  const ApiError failure = http.path.ends_with("/unload")
                               ? server.models->unload(name, http.is_client_connected)
                               : server.models->load(name, http.is_client_connected, true, &loaded);
  return failure.status != 0 ? error_reply(Api::openai, failure) : json_reply({{"success", true}});
}

// Needs no key, so several models are counted, not named.
Reply show_health(const ServerState& server, const HttpRequest&) {
  OrderedJson json = {{"status", "ok"}}, counts = OrderedJson::object();
  for (const ListedModel& model : server.models->list()) counts[model.status] = counts.value(model.status, 0) + 1;
  if (server.models->has_several())
    json.update({{"models", counts}, {"free_memory_bytes", server.models->free_bytes()}});
  return json_reply(json);
}

Reply show_metrics(const ServerState& server, const HttpRequest&) {
  MetricText metrics;
  for (const ListedModel& model : server.models->list()) {
    const std::string label = server.models->has_several() ? "model=" + json_text(model.name) : "";
    add_metrics(model.loaded ? model.loaded->service->metrics() : model.counted, label, &metrics);
    samples_of("model_loaded", &metrics) += sample("model_loaded", label, model.loaded ? 1 : 0);
  }
  samples_of("free_memory_bytes", &metrics) =
      sample("free_memory_bytes", "", static_cast<double>(server.models->free_bytes()));
  std::string text;
  for (const auto& [head, samples] : metrics) text += head + samples;
  return {.type = "text/plain; version=0.0.4", .body = std::move(text)};
}

// {"content": TEXT, "add_special": false} as in llama.cpp's server, or {"prompt": TEXT} as in vLLM.
Reply tokenize_text(const ServerState& server, const HttpRequest& http) {
  const Slot slot(*server.parse_slots);
  BodyFields body(http.body);
  JsonFields& fields = body.fields;
  const std::string text = fields.has("prompt") ? fields.text("prompt") : fields.text("content");
  const bool add_special = fields.boolean("add_special_tokens", fields.boolean("add_special", false));
  if (fields.error) return error_reply(Api::openai, fields.error);
  std::vector<int32_t> ids;
  if (Error e = encode_field(server, fields.has("prompt") ? "prompt" : "content", text, add_special, &ids)) {
    return error_reply(Api::openai, e);
  }
  return json_reply({{"tokens", ids}, {"count", ids.size()}, {"max_model_len", server.service->context()}});
}

Reply detokenize_ids(const ServerState& server, const HttpRequest& http) {
  const Slot slot(*server.parse_slots);
  BodyFields body(http.body);
  JsonFields& fields = body.fields;
  if (!fields.has("tokens")) fields.fail("tokens", "missing field");
  const std::vector<int32_t> ids = read_token_ids(fields, "tokens", kMaxVocabulary);
  if (fields.error) return error_reply(Api::openai, fields.error);
  const std::string text = decode(*server.tokenizer, ids, false);
  return json_reply({{"content", text}, {"prompt", text}});
}

// Front ends of llama.cpp read these two.
Reply show_props(const ServerState& server, const HttpRequest&) {
  const auto text_of_id = [&](std::optional<int32_t> id) { return id ? token_text(*server.tokenizer, *id) : ""; };
  const std::string source(server.chat_template ? template_source(*server.chat_template, {}) : "");
  return json_reply({{"default_generation_settings",
                      {{"n_ctx", server.service->context()}, {"params", settings_json({.sampler = server.sampler})}}},
                     {"total_slots", server.service->parallel()},
                     {"model_alias", server.model},
                     {"model_path", server.model},  // the server's folders stay private
                     {"modalities", {{"vision", false}, {"audio", false}}},
                     {"chat_template", source},
                     {"bos_token", text_of_id(bos_id(*server.tokenizer))},
                     {"eos_token", text_of_id(eos_id(*server.tokenizer))},
                     {"build_info", "pinion-" PINION_VERSION}});
}

// The scheduler has no fixed slots: as many are busy as texts run.
Reply show_slots(const ServerState& server, const HttpRequest&) {
  OrderedJson slots = OrderedJson::array();
  const int64_t running = server.service->metrics().running;
  for (int64_t i = 0; i < server.service->parallel(); ++i) {
    slots.push_back({{"id", i}, {"n_ctx", server.service->context()}, {"is_processing", i < running}});
  }
  return json_reply(slots);
}

// The prompt of /v1/chat/completions for the same messages and tools.
Reply apply_template(const ServerState& server, const HttpRequest& http) {
  if (!server.chat_template) return error_reply(Api::openai, {.message = "the model has no chat template"});
  const Slot slot(*server.parse_slots);
  OrderedJson json;
  ChatInput input;
  ChatPrompt prompt;
  GenerationFields fields;
  fields.is_strict = http.is_strict;
  Error e = parse_body(http.body, &json);
  if (!e) e = take_chat_input(json, &input);
  if (!e) e = make_chat_prompt(server, std::move(input), &fields, &prompt);
  return e ? error_reply(Api::openai, e) : json_reply({{"prompt", prompt.text}});
}

}  // namespace pinion
