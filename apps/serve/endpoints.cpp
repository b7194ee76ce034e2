// The endpoints that run no inference: page, models, metrics, tokenizer.
#include <cinttypes>

#include "apps/cli/common.h"
#include "apps/serve/conversation.h"
#include "kernels/base/text.h"

namespace pinion {
namespace {

std::string metric_head(const char* name, const char* type, const char* help) {
  return formatted("# HELP pinion_%s %s\n# TYPE pinion_%s %s\n", name, help, name, type);
}

void add_histogram(const char* name, const char* help, const Histogram& values, std::string* out) {
  *out += metric_head(name, "histogram", help);
  int64_t below = 0;
  for (size_t i = 0; i < values.counts.size(); ++i) {
    below += values.counts[i];
    *out += formatted("pinion_%s_bucket{le=\"%.9g\"} %" PRId64 "\n", name, Histogram::kBounds_s[i], below);
  }
  *out += formatted("pinion_%s_bucket{le=\"+Inf\"} %" PRId64 "\npinion_%s_sum %.9g\npinion_%s_count %" PRId64 "\n",
                    name, values.count, name, values.sum_s, name, values.count);
}

// Prometheus' text format (prometheus.io/docs/instrumenting/exposition_formats).
std::string prometheus_text(const ServiceMetrics& m) {
  std::string out;
  const auto add = [&](const char* name, const char* type, const char* help, auto value) {
    out += metric_head(name, type, help) + formatted("pinion_%s %.9g\n", name, static_cast<double>(value));
  };
  const auto counter = [&](const char* name, const char* help, auto value) { add(name, "counter", help, value); };
  const auto gauge = [&](const char* name, const char* help, auto value) { add(name, "gauge", help, value); };
  gauge("texts_running", "Texts that are decoded or whose prompts are read.", m.running);
  gauge("texts_waiting", "Texts that wait for a place.", m.waiting);
  counter("texts_total", "Texts that have ended.", m.finished);
  counter("texts_cancelled_total", "Texts whose client has gone.", m.cancelled);
  counter("requests_refused_total", "Requests refused since too many texts waited.", m.refused);
  counter("prompt_tokens_total", "Tokens of prompts.", m.prompt_tokens);
  counter("cached_tokens_total", "Tokens of prompts that were in the cache.", m.cached_tokens);
  counter("tokens_total", "Tokens generated.", m.tokens);
  counter("passes_total", "Passes through the model.", m.passes);
  counter("preemptions_total", "Texts whose memory others needed.", m.preempted);
  gauge("snapshot_bytes", "Memory of saved recurrent states, from which texts with a common prefix continue.",
        m.snapshot_bytes);
  counter("snapshots_taken_total", "Recurrent states saved.", m.snapshots_taken);
  counter("snapshots_evicted_total", "Recurrent states dropped for newer ones.", m.snapshots_evicted);
  gauge("prompt_cache_bytes", "Size of the prompt cache's files of this model.", m.prompt_cache.bytes);
  counter("prompt_cache_tokens_total", "Tokens of prompts that came from these files.", m.prompt_cache.loaded_tokens);
  counter("prompt_cache_stored_files_total", "Files written.", m.prompt_cache.stored_files);
  counter("prompt_cache_damaged_files_total", "Files that were damaged or missing.", m.prompt_cache.damaged_files);
  counter("busy_seconds_total", "Time in passes.", m.busy_seconds);
  counter("weight_bytes_total", "Bytes of weights that passes read.", m.weight_bytes);
  if (m.roof_bytes_per_second > 0) {
    gauge("roof_bytes_per_second", "The memory's read bandwidth, measured once it was asked for.",
          m.roof_bytes_per_second);
    gauge("roof_share", "Speed at which weights were read, over the roof.",
          m.busy_seconds > 0 ? m.weight_bytes / m.busy_seconds / m.roof_bytes_per_second : 0);
  }
  add_histogram("first_token_seconds", "From the request to the first token.", m.first_token_s, &out);
  add_histogram("token_seconds", "From one token of a text to the next.", m.token_s, &out);
  return out;
}

OrderedJson model_json(const ServerState& server) {
  return {{"id", server.model},
          {"object", "model"},
          {"created", server.created},
          {"owned_by", "pinion"},
          {"max_model_len", server.service->context()}};
}

// Even if a bug turned model output into markup, it could load nothing, run nothing and send nothing away.
constexpr const char* kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

const char* media_type(std::string_view path) {
  if (path == "/") return "text/html; charset=utf-8";
  return path.ends_with(".css") ? "text/css; charset=utf-8" : "text/javascript; charset=utf-8";
}

}  // namespace

Reply show_page(const ServerState&, const HttpRequest& http) {
  const auto file = std::ranges::find(page_files(), http.path, &PageFile::path);
  return {.type = media_type(http.path),
          .body = std::string(file->text),
          .headers = {{"Content-Security-Policy", kContentSecurityPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}}};
}

// Build, weights and settings: two servers with equal fingerprints give the same bits. `pinion golden --url` reads it.
Reply show_fingerprint(const ServerState& server, const HttpRequest&) {
  OrderedJson json = OrderedJson::parse(server.golden_head);
  json["system_fingerprint"] = server.fingerprint;
  json["max_model_len"] = server.service->context();
  return json_reply(json);
}

Reply list_models(const ServerState& server, const HttpRequest&) {
  return json_reply({{"object", "list"}, {"data", OrderedJson::array({model_json(server)})}});
}

Reply show_model(const ServerState& server, const HttpRequest& http) {
  if (http.name == server.model) return json_reply(model_json(server));
  return error_reply(Api::openai,
                     {404, "model not found; this server has only " + server.model, "model", "model_not_found"});
}

Reply show_health(const ServerState&, const HttpRequest&) { return json_reply({{"status", "ok"}}); }

Reply show_metrics(const ServerState& server, const HttpRequest&) {
  return {.type = "text/plain; version=0.0.4", .body = prometheus_text(server.service->metrics())};
}

// {"content": TEXT, "add_special": false} as in llama.cpp's server, or {"prompt": TEXT} as in vLLM.
Reply tokenize_text(const ServerState& server, const HttpRequest& http) {
  const Slot slot(*server.parse_slots);
  Json json;
  if (Error e = parse_body(http.body, &json)) return error_reply(Api::openai, e);
  JsonFields fields{json, "request"};
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
  Json json;
  if (Error e = parse_body(http.body, &json)) return error_reply(Api::openai, e);
  JsonFields fields{json, "request"};
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
