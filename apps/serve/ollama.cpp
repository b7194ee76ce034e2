// /api/version, tags, show, pull, chat and generate: Ollama's API (github.com/ollama/ollama/blob/main/docs/api.md).

#include "apps/serve/conversation.h"
#include "apps/serve/models.h"
#include "kernels/base/text.h"
#include "tokenizer/templates/fill_in.h"

namespace pinion {
namespace {

constexpr const char* kSpokenVersion = "0.12.11";  // of Ollama's API; clients refuse old ones

std::string iso_time(std::timespec time) {
  std::tm utc = {};
  gmtime_r(&time.tv_sec, &utc);
  std::array<char, 32> seconds;
  std::strftime(seconds.data(), seconds.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  return formatted("%s.%09ldZ", seconds.data(), time.tv_nsec);
}

OrderedJson ollama_details(const ServerState& server) {
  const ModelConfig& config = server.service->model().config;
  return {{"format", server.service->model().checkpoint.is_gguf_file ? "gguf" : "safetensors"},
          {"family", config.family},
          {"parameter_size", std::to_string(count_parameters(config).all / 1'000'000) + "M"},
          {"quantization_level", server.quant}};
}

OrderedJson ollama_capabilities(const ServerState& server) {
  OrderedJson list = OrderedJson::array();
  if (server.embedding->makes_vectors()) list.push_back("embedding");
  if (check_writes_texts(server.service->model().config)) return list;
  list.push_back("completion");
  if (find_fill_in(*server.tokenizer)) list.push_back("insert");
  if (!server.chat_template) return list;
  Conversation with_tools;
  with_tools.tools = OrderedJson::array();
  const std::string_view source = template_source(*server.chat_template, with_tools);
  const auto reads = [&](std::string_view variable) { return source.find(variable) != source.npos; };
  if (reads("tools") && !detect_tool_format(source).empty()) list.push_back("tools");
  if (reads("enable_thinking")) list.push_back("thinking");
  return list;
}

// A model that is not loaded has neither size nor details.
OrderedJson ollama_model(const ServerState& server, const ListedModel& model) {
  OrderedJson json = {
      {"name", model.name}, {"model", model.name}, {"modified_at", iso_time({server.created, 0})}, {"size", 0}};
  if (!model.loaded) return json;
  json.update({{"size", model.loaded->service->model().weight_bytes},
               {"digest", model.loaded->weights},
               {"details", ollama_details(*model.loaded)},
               {"capabilities", ollama_capabilities(*model.loaded)}});
  return json;
}

// /api/chat has "messages" and replies with "message"; /api/generate has "prompt" and replies with "response".
struct OllamaRequest : ChatRequest {
  bool is_chat = true;
  bool is_preload = false;  // loads the model, generates nothing
};

// "options": generation_config.json's names, and Ollama's own.
void read_ollama_options(const ServerState& server, JsonFields& request, GenerationFields* out) {
  JsonFields options = request.fields("options");
  read_generation_fields(options, server, out);
  out->options.max_tokens = read_max_tokens(options, server, {"num_predict"}, server.service->context(), 0);
  out->choices = 1;
  request.error = check_other_fields(options, "options.", &out->ignored);
  out->streams = request.boolean("stream", true);
  const bool has_logprobs = request.boolean("logprobs", false);
  const int64_t top = request.integer("top_logprobs", 0, 0, kMaxTopLogprobs);
  if (has_logprobs) out->options.logprobs = static_cast<int32_t>(top);
}

// Sets template variables. `think` is a boolean or a level.
void read_think(JsonFields& fields, Conversation* out) {
  const Json* think = fields.find("think");
  if (!think) return;
  const bool is_level = *think == "low" || *think == "medium" || *think == "high";
  if (!is_level && !think->is_boolean()) {
    fields.fail("think", "unknown value", R"(true, false, "low", "medium" or "high")", brief(*think));
    return;
  }
  out->variables["enable_thinking"] = is_level || *think == true;
  if (is_level) out->variables["reasoning_effort"] = *think;
}

// A raw prompt, or the only user message of a conversation.
Error read_generate_prompt(const ServerState& server, JsonFields& fields, ChatInput input, OllamaRequest* out) {
  const std::string prompt = fields.text("prompt"), system = fields.text("system", "");
  const std::string suffix = fields.text("suffix", "");
  if (const Json* images = fields.find("images"); images && !images->empty()) fields.fail("images", kTextOnly);
  const bool is_raw = fields.boolean("raw", false) || !server.chat_template;
  if (Error e = check_other_fields(fields, "", &out->fields.ignored)) return e;
  out->fields.continues_prompt = is_raw || !suffix.empty();
  if (!suffix.empty()) return fill_in(server, prompt, suffix, &out->fields, &out->prompt.ids);
  if (is_raw) return encode_field(server, "prompt", prompt, true, &out->prompt.ids);
  OrderedJson& messages = input.conversation.messages;
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return make_chat_prompt(server, std::move(input), &out->fields, &out->prompt);
}

Error read_ollama_request(const ServerState& server, const std::string& body, OllamaRequest* out) {
  Slot slot(*server.parse_slots);
  OrderedJson json;
  ChatInput input;
  OutputConstraint constraint;
  if (Error e = parse_body(body, &json)) return e;
  if (Error e = take_output_constraint(json, Api::ollama, &constraint)) return e;
  // Clients load a model ahead of use by a request without messages or prompt.
  const OrderedJson& prompt = field_of(json, out->is_chat ? "messages" : "prompt");
  out->is_preload = prompt.is_null() || prompt == (out->is_chat ? OrderedJson::array() : OrderedJson(""));
  if (out->is_chat && !out->is_preload) {
    if (!server.chat_template) return error("the model has no chat template; /api/generate continues plain text", "");
    if (Error e = take_chat_input(json, &input)) return e;
    input.conversation.continue_final_message = ends_with_role(input.conversation.messages, "assistant");
  }
  const Json rest = request_fields(json);
  JsonFields fields{rest, "request"};
  read_ollama_options(server, fields, &out->fields);
  read_think(fields, &input.conversation);
  input.drops_turns = fields.boolean("truncate", true);
  if (out->is_chat) fields.error = check_other_fields(fields, "", &out->fields.ignored);
  if (fields.error || out->is_preload) return fields.error;
  if (Error e = out->is_chat ? make_chat_prompt(server, std::move(input), &out->fields, &out->prompt)
                             : read_generate_prompt(server, fields, std::move(input), out)) {
    return e;
  }
  return constrain_output(server, constraint, &out->prompt, slot, &out->fields);
}

// Fields that every line of a reply has.
OrderedJson line_json(const ServerState& server, bool is_chat, const std::string& content) {
  std::timespec now = {};
  std::timespec_get(&now, TIME_UTC);
  OrderedJson json = {{"model", server.model}, {"created_at", iso_time(now)}};
  if (is_chat) json["message"] = {{"role", "assistant"}, {"content", content}};
  if (!is_chat) json["response"] = content;
  return json;
}

class OllamaFormatter : public ResponseFormatter {
 public:
  OllamaFormatter(const ServerState& server, const OllamaRequest& request)
      : server_(server), streams_(request.fields.streams), is_chat_(request.is_chat), parser_(request.prompt.reply) {}

  std::string put(const RequestEvent& event) override {
    for (const ToolEvent& part : parse_event(parser_, event)) put(part);
    if (event.logprobs) logprobs_.push_back(logprobs_json(*server_.tokenizer, last_id_, *event.logprobs));
    if (event.id) last_id_ = event.id;
    std::string text = streams_ && has_news_ ? line() : "";
    if (event.is_end) end_ = event;
    return text;
  }
  std::string finish() override { return line(); }

 private:
  void put(const ToolEvent& part) {
    using Kind = ToolEvent::Kind;
    has_news_ |= part.kind != Kind::kCallBegun && part.kind != Kind::kArguments;
    if (part.kind == Kind::kContent) content_ += part.text;
    if (part.kind == Kind::kThought) thoughts_ += part.text;
    if (part.kind == Kind::kCallBegun) name_ = part.text, arguments_.clear();
    if (part.kind == Kind::kArguments) arguments_ += part.text;
    if (part.kind != Kind::kCallEnded || !part.is_complete) return;  // calls are sent complete
    OrderedJson parsed;
    if (parse_ordered_json(arguments_, "arguments", &parsed)) parsed = OrderedJson::object();
    calls_.push_back({{"function", {{"name", name_}, {"arguments", std::move(parsed)}}}});
  }

  // Everything not sent yet; the last line also has the token counts and durations.
  std::string line() {
    has_news_ = false;
    OrderedJson json = line_json(server_, is_chat_, std::exchange(content_, ""));
    OrderedJson& message = is_chat_ ? json["message"] : json;
    if (!thoughts_.empty()) message["thinking"] = std::exchange(thoughts_, "");
    if (!calls_.empty()) message["tool_calls"] = std::exchange(calls_, OrderedJson::array());
    if (!logprobs_.empty()) json["logprobs"] = std::exchange(logprobs_, OrderedJson::array());
    json["done"] = end_.is_end;
    if (end_.is_end) add_statistics(end_, now_seconds() - start_seconds_, json);
    return json_text(json) + "\n";
  }

  static void add_statistics(const RequestEvent& end, double seconds, OrderedJson& json) {
    const GenerateResult& result = end.result;
    const auto ns = [](double s) { return static_cast<int64_t>(s * 1e9); };
    json["done_reason"] = finish_reason_name(end);
    json["total_duration"] = ns(seconds);
    json["load_duration"] = 0;
    json["prompt_eval_count"] = result.reused_tokens + result.prefilled_tokens;
    json["prompt_eval_duration"] = ns(result.prefill_seconds);
    json["eval_count"] = result.ids.size();
    json["eval_duration"] = ns(result.decode_seconds);
  }

  const ServerState& server_;
  bool streams_, is_chat_;
  ToolCallParser parser_;
  double start_seconds_ = now_seconds();
  RequestEvent end_;
  std::string content_, thoughts_, name_, arguments_;
  OrderedJson calls_ = OrderedJson::array(), logprobs_ = OrderedJson::array();
  std::optional<int32_t> last_id_;
  bool has_news_ = false;
};

}  // namespace

// /api/chat and /api/generate.
Reply ollama_generate(const ServerState& server, const HttpRequest& http) {
  OllamaRequest request;
  request.is_chat = http.path == "/api/chat";
  request.fields.is_strict = http.is_strict;
  if (Error e = read_ollama_request(server, http.body, &request)) return error_reply(Api::ollama, e);
  if (request.is_preload) {
    OrderedJson json = line_json(server, request.is_chat, "");
    json.update({{"done", true}, {"done_reason", "load"}});
    return json_reply(json);
  }
  return chat_reply(server, Api::ollama, request, http, std::make_unique<OllamaFormatter>(server, request));
}

Reply ollama_version(const ServerState&, const HttpRequest&) {
  return json_reply({{"version", kSpokenVersion}, {"pinion", PINION_VERSION}});
}

Reply ollama_tags(const ServerState& server, const HttpRequest&) {
  OrderedJson list = OrderedJson::array();
  for (const ListedModel& model : server.models->list()) list.push_back(ollama_model(server, model));
  return json_reply({{"models", std::move(list)}});
}

// Without --idle, models stay loaded for as long as there is memory, so the expiry date is the latest one.
Reply ollama_ps(const ServerState& server, const HttpRequest&) {
  OrderedJson list = OrderedJson::array();
  const double idle_seconds = server.models->idle_seconds();
  for (const ListedModel& model : server.models->list()) {
    if (!model.loaded) continue;
    const auto left = static_cast<int64_t>(idle_seconds - (now_seconds() - model.used_seconds));
    OrderedJson& json = list.emplace_back(ollama_model(server, model));
    json["expires_at"] = idle_seconds > 0 ? iso_time({std::time(nullptr) + left, 0}) : "9999-12-31T23:59:59Z";
    json.update({{"size_vram", 0}, {"context_length", model.loaded->service->context()}});
  }
  return json_reply({{"models", std::move(list)}});
}

Reply ollama_show(const ServerState& server, const HttpRequest&) {
  const std::string& family = server.service->model().config.family;
  return json_reply(
      {{"details", ollama_details(server)},
       {"model_info", {{"general.architecture", family}, {family + ".context_length", server.service->context()}}},
       {"capabilities", ollama_capabilities(server)},
       {"modified_at", iso_time({server.created, 0})}});
}

// Nothing is downloaded: the model is there, or it is another one.
Reply ollama_pull(const ServerState& server, const HttpRequest& http) {
  BodyFields body(http.body);
  JsonFields& fields = body.fields;
  const std::string name = fields.has("model") ? fields.text("model") : fields.text("name");
  const bool streams = fields.boolean("stream", true);
  if (fields.error) return error_reply(Api::ollama, fields.error);
  if (server.models->list(name).empty()) return error_reply(Api::ollama, server.models->unknown());
  if (!streams) return json_reply({{"status", "success"}});
  return {.type = "application/x-ndjson", .body = "{\"status\":\"pulling manifest\"}\n{\"status\":\"success\"}\n"};
}

}  // namespace pinion
