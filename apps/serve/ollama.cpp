// /api/version, tags, show, chat and generate: Ollama's shape (github.com/ollama/ollama/blob/main/docs/api.md).
#include <array>
#include <chrono>
#include <ctime>

#include "apps/serve/answer.h"
#include "apps/serve/answer_form.h"
#include "apps/serve/conversation.h"
#include "kernels/base/clock.h"
#include "tokenizer/templates/fill_in.h"

namespace pinion {
namespace {

std::string now_text(int64_t seconds, int64_t nanoseconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc = {};
  gmtime_r(&time, &utc);
  std::array<char, 64> text;
  const size_t bytes = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text.data() + bytes, text.size() - bytes, ".%09lldZ", static_cast<long long>(nanoseconds));
  return text.data();
}

std::string now_text() {
  const int64_t ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return now_text(ns / 1'000'000'000, ns % 1'000'000'000);
}

OrderedJson details_of(const Serving& serving) {
  return {{"format", "safetensors"},
          {"family", serving.family},
          {"parameter_size", serving.parameters},
          {"quantization_level", serving.quant}};
}

OrderedJson model_json(const Serving& serving) {
  return {{"name", serving.model},        {"model", serving.model},    {"modified_at", now_text(serving.created, 0)},
          {"size", serving.weight_bytes}, {"digest", serving.weights}, {"details", details_of(serving)}};
}

// Both chat and generate, of which one has messages and a "message", the other a prompt and a "response".
struct OllamaRequest {
  TextFields fields;
  bool is_chat = true;
  bool only_loads = false;  // nothing is asked
  ChatPrompt prompt;
};

// "options", with Ollama's names where they are not ours.
void read_options(const Serving& serving, JsonFields& request, TextFields* out) {
  JsonFields options = request.fields("options");
  read_text_fields(options, serving, out);
  SamplerOptions& sampler = out->options.sampler;
  sampler.repetition_penalty =
      static_cast<float>(options.number("repeat_penalty", sampler.repetition_penalty, 0.01, 100));
  const int64_t most = options.integer("num_predict", -1, -2, 1 << 30);
  out->options.max_tokens = most < 0 ? serving.service->context() : most;
  out->choices = 1;
  request.error = options.error;
  out->streams = request.boolean("stream", true);
}

// true or false for the templates that know it, or how much.
void read_think(JsonFields& fields, Conversation* out) {
  const Json* think = fields.find("think");
  if (!think) return;
  const bool is_level = *think == "low" || *think == "medium" || *think == "high";
  if (!is_level && !think->is_boolean()) {
    fields.fail("think", "not known", R"(true, false, "low", "medium" or "high")", brief(*think));
    return;
  }
  out->variables["enable_thinking"] = is_level || *think == true;
  if (is_level) out->variables["reasoning_effort"] = *think;
}

// Clients send these to have the model loaded before they need it.
bool is_preload(const OrderedJson& body, bool is_chat) {
  const auto asked = body.find(is_chat ? "messages" : "prompt");
  return asked == body.end() || asked->is_null() || *asked == (is_chat ? OrderedJson::array() : OrderedJson(""));
}

// A prompt as it is, or as the only question of a conversation.
Error read_generate(const Serving& serving, JsonFields& fields, ChatOrder order, OllamaRequest* out) {
  const std::string prompt = fields.text("prompt"), system = fields.text("system", "");
  const std::string suffix = fields.text("suffix", "");
  if (const Json* images = fields.find("images"); images && !images->empty()) fields.fail("images", kNoPictures);
  const bool is_raw = fields.boolean("raw", false) || !serving.chat_template;
  if (fields.error) return fields.error;
  out->fields.goes_on = is_raw || !suffix.empty();
  if (!suffix.empty()) return fill_in(serving, prompt, suffix, &out->fields, &out->prompt.ids);
  if (is_raw) return encode_field(serving, "prompt", prompt, true, &out->prompt.ids);
  OrderedJson& messages = order.conversation.messages;
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return make_chat_prompt(serving, std::move(order), &out->prompt);
}

Error read_request(const Serving& serving, const std::string& body, OllamaRequest* out) {
  Reading reading(*serving.readers);
  OrderedJson json;
  ChatOrder order;
  AnswerForm form;
  if (Error e = parse_body(body, &json)) return e;
  if (Error e = take_answer_form(json, Shape::ollama, &form)) return e;
  out->only_loads = is_preload(json, out->is_chat);
  if (out->is_chat && !out->only_loads) {
    if (!serving.chat_template) return error("the model has no chat template; /api/generate continues plain text", "");
    if (Error e = take_chat_order(json, &order)) return e;
  }
  const Json rest = json;
  JsonFields fields{rest, "request"};
  read_options(serving, fields, &out->fields);
  read_think(fields, &order.conversation);
  if (fields.error || out->only_loads) return fields.error;
  if (Error e = out->is_chat ? make_chat_prompt(serving, std::move(order), &out->prompt)
                             : read_generate(serving, fields, std::move(order), out)) {
    return e;
  }
  return keep_to_form(serving, form, &out->prompt, reading, &out->fields);
}

// What every line begins with.
OrderedJson line_json(const Serving& serving, bool is_chat, const std::string& content) {
  OrderedJson json = {{"model", serving.model}, {"created_at", now_text()}};
  if (is_chat) json["message"] = {{"role", "assistant"}, {"content", content}};
  if (!is_chat) json["response"] = content;
  return json;
}

class OllamaAnswer : public Answer {
 public:
  OllamaAnswer(const Serving& serving, const OllamaRequest& request)
      : serving_(serving), streams_(request.fields.streams), is_chat_(request.is_chat), parser_(request.prompt.reply) {}

  std::string put(const TextEvent& event) override {
    for (const ToolEvent& part : parts_of(parser_, event)) put(part);
    std::string text = streams_ && has_news_ ? line() : "";
    if (event.is_end) end_ = event;
    return text;
  }
  std::string finish() override { return line(); }

 private:
  void put(const ToolEvent& part) {
    has_news_ |= part.kind != ToolEvent::Kind::kCallBegun && part.kind != ToolEvent::Kind::kArguments;
    switch (part.kind) {
      case ToolEvent::Kind::kContent:
        content_ += part.text;
        break;
      case ToolEvent::Kind::kThought:
        thoughts_ += part.text;
        break;
      case ToolEvent::Kind::kCallBegun:
        name_ = part.text;
        arguments_.clear();
        break;
      case ToolEvent::Kind::kArguments:
        arguments_ += part.text;
        break;
      case ToolEvent::Kind::kCallEnded: {  // a call comes as a whole
        OrderedJson parsed;
        if (parse_ordered_json(arguments_, "arguments", &parsed)) parsed = OrderedJson::object();
        calls_.push_back({{"function", {{"name", name_}, {"arguments", std::move(parsed)}}}});
        break;
      }
    }
  }

  // What came since the last line; once the text has ended, its figures.
  std::string line() {
    has_news_ = false;
    OrderedJson json = line_json(serving_, is_chat_, std::exchange(content_, ""));
    OrderedJson& message = is_chat_ ? json["message"] : json;
    if (!thoughts_.empty()) message["thinking"] = std::exchange(thoughts_, "");
    if (!calls_.empty()) message["tool_calls"] = std::exchange(calls_, OrderedJson::array());
    json["done"] = end_.is_end;
    if (end_.is_end) add_figures(end_, now_seconds() - start_seconds_, json);
    return json_text(json) + "\n";
  }

  static void add_figures(const TextEvent& end, double seconds, OrderedJson& json) {
    const GenerateResult& result = end.result;
    const auto ns = [](double s) { return static_cast<int64_t>(s * 1e9); };
    json["done_reason"] = finish_word(end);
    json["total_duration"] = ns(seconds);
    json["load_duration"] = 0;
    json["prompt_eval_count"] = result.reused_tokens + result.prefilled_tokens;
    json["prompt_eval_duration"] = ns(result.prefill_seconds);
    json["eval_count"] = result.ids.size();
    json["eval_duration"] = ns(result.decode_seconds);
  }

  const Serving& serving_;
  bool streams_, is_chat_;
  ToolCallParser parser_;
  double start_seconds_ = now_seconds();
  TextEvent end_;
  std::string content_, thoughts_, name_, arguments_;
  OrderedJson calls_ = OrderedJson::array();
  bool has_news_ = false;
};

Reply answer(const Serving& serving, const HttpRequest& http, bool is_chat) {
  OllamaRequest request;
  request.is_chat = is_chat;
  if (Error e = read_request(serving, http.body, &request)) return error_reply(Shape::ollama, field_error(e));
  if (request.only_loads) {
    OrderedJson json = line_json(serving, is_chat, "");
    json.update({{"done", true}, {"done_reason", "load"}});
    return json_reply(json);
  }
  Prompted prompted = order_replies(serving, request.fields, request.prompt, false);
  if (prompted.refused.status != 0) return error_reply(Shape::ollama, prompted.refused);
  return answer_reply(serving, Shape::ollama, request.fields, http, std::move(prompted.texts),
                      std::make_unique<OllamaAnswer>(serving, request));
}

}  // namespace

Reply ollama_version(const Serving&, const HttpRequest&) { return json_reply({{"version", PINION_VERSION}}); }

Reply ollama_tags(const Serving& serving, const HttpRequest&) {
  return json_reply({{"models", OrderedJson::array({model_json(serving)})}});
}

// It stays loaded.
Reply ollama_ps(const Serving& serving, const HttpRequest&) {
  OrderedJson json = model_json(serving);
  json.update(
      {{"expires_at", "9999-12-31T23:59:59Z"}, {"size_vram", 0}, {"context_length", serving.service->context()}});
  return json_reply({{"models", OrderedJson::array({json})}});
}

Reply ollama_embed(const Serving&, const HttpRequest&) {
  return error_reply(Shape::ollama, {501, "this server makes texts, no embeddings"});
}

Reply ollama_show(const Serving& serving, const HttpRequest&) {
  OrderedJson capabilities = {"completion"};
  if (find_fill_in(*serving.tokenizer)) capabilities.push_back("insert");
  if (serving.chat_template) {
    Conversation with_tools;
    with_tools.tools = OrderedJson::array();
    const auto source = template_source(*serving.chat_template, with_tools);
    if (detect_tool_format(source) != ToolFormat::kNone) capabilities.push_back("tools");
    if (source.find("enable_thinking") != std::string_view::npos) capabilities.push_back("thinking");
  }
  return json_reply(
      {{"details", details_of(serving)},
       {"model_info",
        {{"general.architecture", serving.family}, {serving.family + ".context_length", serving.service->context()}}},
       {"capabilities", capabilities},
       {"modified_at", now_text(serving.created, 0)}});
}

Reply ollama_chat(const Serving& serving, const HttpRequest& http) { return answer(serving, http, true); }

Reply ollama_generate(const Serving& serving, const HttpRequest& http) { return answer(serving, http, false); }

}  // namespace pinion
