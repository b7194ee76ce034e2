// /api/version, tags, show, chat and generate: Ollama's shape (github.com/ollama/ollama/blob/main/docs/api.md).
#include <array>
#include <chrono>
#include <ctime>

#include "apps/serve/answer.h"
#include "apps/serve/conversation.h"

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
  std::vector<int32_t> ids;
  ToolCallOptions reply;
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
  const Json* format = request.find("format");
  if (format && *format != "") request.fail("format", "not known");
}

// {"think": false} for the templates that know it.
void read_think(JsonFields& fields, Conversation* out) {
  if (fields.has("think")) out->variables["enable_thinking"] = fields.boolean("think", true);
}

Error read_generate(const Serving& serving, JsonFields& fields, OllamaRequest* out) {
  const std::string prompt = fields.text("prompt", ""), system = fields.text("system", "");
  if (!fields.text("suffix", "").empty()) fields.fail("suffix", "not for this model");
  const bool is_raw = fields.boolean("raw", false) || !serving.chat_template;
  ChatOrder order;
  read_think(fields, &order.conversation);
  if (fields.error) return fields.error;
  if (is_raw) {
    return encode_field(serving, "prompt", prompt, true, &out->ids);
  }
  if (!system.empty()) order.conversation.messages.push_back({{"role", "system"}, {"content", system}});
  order.conversation.messages.push_back({{"role", "user"}, {"content", prompt}});
  ChatPrompt made;
  if (Error e = make_chat_prompt(serving, std::move(order), &made)) return e;
  out->ids = std::move(made.ids);
  out->reply = std::move(made.reply);
  return {};
}

Error read_chat(const Serving& serving, JsonFields& fields, const std::string& body, OllamaRequest* out) {
  if (!serving.chat_template) return error("the model has no chat template; /api/generate continues plain text", "");
  ChatOrder order;
  if (Error e = read_chat_order(body, &order)) return e;
  read_think(fields, &order.conversation);
  if (fields.error) return fields.error;
  ChatPrompt made;
  if (Error e = make_chat_prompt(serving, std::move(order), &made)) return e;
  out->ids = std::move(made.ids);
  out->reply = std::move(made.reply);
  return {};
}

Error read_request(const Serving& serving, const std::string& body, OllamaRequest* out) {
  const Reading reading(*serving.readers);
  Json json;
  if (Error e = parse_body(body, &json)) return e;
  JsonFields fields{json, "request"};
  read_options(serving, fields, &out->fields);
  if (fields.error) return fields.error;
  return out->is_chat ? read_chat(serving, fields, body, out) : read_generate(serving, fields, out);
}

class OllamaAnswer : public Answer {
 public:
  OllamaAnswer(const Serving& serving, const OllamaRequest& request)
      : serving_(serving), streams_(request.fields.streams), is_chat_(request.is_chat), parser_(request.reply) {}

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
    OrderedJson json = {{"model", serving_.model}, {"created_at", now_text()}};
    if (is_chat_) json["message"] = {{"role", "assistant"}};
    OrderedJson& message = is_chat_ ? json["message"] : json;
    message[is_chat_ ? "content" : "response"] = std::exchange(content_, "");
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
  Prompted prompted = order_texts(serving, request.fields, {request.ids}, marks_of(request.reply));
  if (prompted.refused.status != 0) return error_reply(Shape::ollama, prompted.refused);
  return answer_reply(serving, Shape::ollama, request.fields, http, std::move(prompted.texts),
                      std::make_unique<OllamaAnswer>(serving, request));
}

}  // namespace

Reply ollama_version(const Serving&, const HttpRequest&) { return json_reply({{"version", PINION_VERSION}}); }

Reply ollama_tags(const Serving& serving, const HttpRequest&) {
  return json_reply({{"models", OrderedJson::array({model_json(serving)})}});
}

Reply ollama_show(const Serving& serving, const HttpRequest&) {
  OrderedJson capabilities = {"completion"};
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
