// POST /v1/responses: the reply, whole or as events. GET and DELETE /v1/responses/ID, GET .../input_items: stored ones.
#include "apps/serve/responses.h"

namespace pinion {
namespace {

// Names of a text's item, of its list of parts and of its events.
struct TextKind {
  const char *item, *id, *parts, *part, *part_event, *text_event;
};
constexpr TextKind kAnswer = {"message", "msg_", "content", "output_text", "content_part", "output_text"};
constexpr TextKind kThought = {"reasoning", "rs_", "content", "reasoning_text", "content_part", "reasoning_text"};
constexpr TextKind kSummary = {
    "reasoning", "rs_", "summary", "summary_text", "reasoning_summary_part", "reasoning_summary_text"};

// The text that a custom tool takes: its only argument.
std::string custom_input(const std::string& arguments) {
  OrderedJson json;
  return parse_body(arguments, &json) ? arguments : text_of(json, "input");
}

// Items, each of one thought, text or call, in the order of the model's text.
class ResponsesFormatter : public ResponseFormatter {
 public:
  ResponsesFormatter(const ServerState& server, const ResponsesRequest& request)
      : server_(server),
        request_(request),
        response_(request.response),
        parser_(request.prompt.reply),
        is_thinking_(request.prompt.reply.inside_thought) {}

  std::string begin() override {
    for (const char* state : {"created", "in_progress"}) send(state, {{"response", response_}});
    return std::exchange(events_, "");
  }

  std::string put(const RequestEvent& event) override {
    if (event.logprobs) logprobs_.push_back(logprobs_json(*server_.tokenizer, last_id_, *event.logprobs));
    if (event.id) last_id_ = event.id;
    for (const ToolEvent& part : parse_event(parser_, event)) put(part);
    thought_tokens_ += event.id && is_thinking_;
    if (event.is_end) end(event);
    return std::exchange(events_, "");
  }

  std::string finish() override {
    for (const OrderedJson& item : output_) request_.items.push_back(item);
    const std::string whole = json_text(response_) + "\n";
    if (request_.is_stored) server_.responses->add({response_["id"], whole, json_text(request_.items)});
    if (!request_.fields.streams) return whole;
    send(response_["status"], {{"response", response_}});
    return events_;
  }

  std::string fail(Api, const ApiError& failure) override {
    response_["status"] = "failed";
    response_["error"] = {{"code", failure.code.empty() ? "server_error" : failure.code}, {"message", failure.message}};
    send("failed", {{"response", response_}});
    return events_;
  }

 private:
  void send(const std::string& name, const OrderedJson& fields) {
    if (!request_.fields.streams) return;
    OrderedJson event = {{"type", "response." + name}, {"sequence_number", event_count_++}};
    event.update(fields);
    events_ += "event: response." + name + "\n" + event_text(event);
  }

  void send_item(const char* name) { send(name, {{"output_index", output_.size() - 1}, {"item", output_.back()}}); }

  void send_in_item(const std::string& name, OrderedJson fields) {
    fields["item_id"] = output_.back()["id"];
    fields["output_index"] = output_.size() - 1;
    if (kind_) fields[std::string(kind_->parts) + "_index"] = 0;
    send(name, fields);
  }

  void begin_item(OrderedJson item) {
    end_item("completed");
    output_.push_back(std::move(item));
    send_item("output_item.added");
  }

  void add_text(const TextKind& kind, const std::string& text) {
    const bool is_answer = &kind == &kAnswer;
    const OrderedJson none = OrderedJson::array();
    if (kind_ != &kind) {
      OrderedJson item = {{"id", response_id(kind.id)}, {"type", kind.item}, {"status", "in_progress"}};
      item.update(is_answer ? OrderedJson{{"role", "assistant"}} : OrderedJson{{"summary", none}});
      item["content"] = none;
      begin_item(std::move(item));
      OrderedJson part = {{"type", kind.part}, {"text", ""}};
      if (is_answer) part.update({{"annotations", none}, {"logprobs", none}});
      output_.back()[kind.parts].push_back(part);
      kind_ = &kind;
      send_in_item(std::string(kind.part_event) + ".added", {{"part", std::move(part)}});
    }
    OrderedJson& part = output_.back()[kind.parts][0];
    OrderedJson delta = {{"delta", text}};
    part["text"].get_ref<std::string&>() += text;
    for (size_t i = 0; is_answer && i < logprobs_.size(); ++i) part["logprobs"].push_back(logprobs_[i]);
    if (is_answer) delta["logprobs"] = logprobs_;
    logprobs_ = none;
    send_in_item(std::string(kind.text_event) + ".delta", std::move(delta));
  }

  void begin_call(const ToolEvent& call) {
    const auto known = request_.tools.find(call.text);
    const ResponseTool tool = known == request_.tools.end() ? ResponseTool{call.text, ""} : known->second;
    OrderedJson item = {{"id", response_id(tool.is_custom ? "ctc_" : "fc_")},
                        {"type", tool.is_custom ? "custom_tool_call" : "function_call"},
                        {"status", "in_progress"},
                        {"call_id", call.id.empty() ? call_id() : call.id},
                        {"name", tool.name}};
    if (!tool.space.empty()) item["namespace"] = tool.space;
    item[tool.is_custom ? "input" : "arguments"] = "";
    begin_item(std::move(item));
    arguments_.clear();
    ++calls_;
  }

  void end_text(OrderedJson& item) {
    const OrderedJson& part = item[kind_->parts][0];
    OrderedJson done = {{"text", part["text"]}};
    if (kind_ == &kAnswer) done["logprobs"] = part["logprobs"];
    send_in_item(std::string(kind_->text_event) + ".done", std::move(done));
    send_in_item(std::string(kind_->part_event) + ".done", {{"part", part}});
    if (kind_ != &kAnswer) item["encrypted_content"] = std::string(kThoughtMark) + part["text"].get<std::string>();
    kind_ = nullptr;
  }

  void end_call(OrderedJson& item) {
    if (item.contains("input")) {
      item["input"] = custom_input(arguments_);
      send_in_item("custom_tool_call_input.delta", {{"delta", item["input"]}});
      return send_in_item("custom_tool_call_input.done", {{"input", item["input"]}});
    }
    item["arguments"] = arguments_;
    send_in_item("function_call_arguments.done", {{"name", item["name"]}, {"arguments", arguments_}});
  }

  void end_item(const char* status) {
    if (output_.empty() || output_.back()["status"] != "in_progress") return;
    kind_ ? end_text(output_.back()) : end_call(output_.back());
    output_.back()["status"] = status;
    send_item("output_item.done");
  }

  void put(const ToolEvent& part) {
    if (request_.single_call && calls_ > 0 && part.index != 0) return;
    is_thinking_ = part.kind == ToolEvent::Kind::kThought;
    switch (part.kind) {
      case ToolEvent::Kind::kContent: return add_text(kAnswer, part.text);
      case ToolEvent::Kind::kThought: return add_text(request_.has_summary ? kSummary : kThought, part.text);
      case ToolEvent::Kind::kCallBegun: return begin_call(part);
      case ToolEvent::Kind::kArguments:
        arguments_ += part.text;
        if (output_.back().contains("input")) return;  // JSON; the text is sent once it is complete
        return send_in_item("function_call_arguments.delta", {{"delta", part.text}});
      case ToolEvent::Kind::kCallEnded: logprobs_.clear(); end_item(part.is_complete ? "completed" : "incomplete");
    }
  }

  void end(const RequestEvent& end) {
    const bool is_complete = end.result.finish_reason == FinishReason::stop;
    response_["status"] = is_complete ? "completed" : "incomplete";
    if (!is_complete) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (is_complete) response_["completed_at"] = static_cast<int64_t>(std::time(nullptr));
    if (output_.empty()) add_text(kAnswer, "");  // clients expect an item
    end_item(is_complete ? "completed" : "incomplete");
    response_["output"] = output_;
    const size_t input = request_.prompt.ids.size(), output = end.result.ids.size();
    response_["usage"] = {
        {"input_tokens", input},
        {"input_tokens_details", {{"cached_tokens", end.result.reused_tokens}, {"cache_write_tokens", 0}}},
        {"output_tokens", output},
        {"output_tokens_details", {{"reasoning_tokens", thought_tokens_}}},
        {"total_tokens", input + output}};
  }

  const ServerState& server_;
  ResponsesRequest request_;
  OrderedJson response_, output_ = OrderedJson::array();
  ToolCallParser parser_;
  std::string events_;                           // not sent yet
  const TextKind* kind_ = nullptr;               // of the open item; null: a call, or none is open
  std::string arguments_;                        // of the open call
  OrderedJson logprobs_ = OrderedJson::array();  // of tokens whose text is not sent yet
  std::optional<int32_t> last_id_;
  int64_t event_count_ = 0, calls_ = 0, thought_tokens_ = 0;
  bool is_thinking_;
};

size_t bytes_of(const StoredResponse& stored) {
  return sizeof stored + stored.id.size() + stored.response.size() + stored.items.size();
}

const ApiError kNotStored{404, "no response with this id is stored", "response_id", "not_found"};

// The items that a response answers, in OpenAI's order: the latest first.
Reply list_input(const StoredResponse& stored, bool is_ascending) {
  const OrderedJson items = OrderedJson::parse(stored.items), response = OrderedJson::parse(stored.response);
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i + response["output"].size() < items.size(); ++i) {
    OrderedJson item = {{"id", "item_" + std::to_string(i)}, {"type", "message"}};
    item.update(items[i]);
    if (const std::string text = text_of(item, "content"); !text.empty()) {
      const bool is_answer = item["role"] == "assistant";
      item["content"] = {{{"type", is_answer ? kAnswer.part : "input_text"}, {"text", text}}};
    }
    list.insert(is_ascending ? list.end() : list.begin(), std::move(item));
  }
  const auto id_of = [&](size_t i) { return list.empty() ? OrderedJson() : list[i]["id"]; };
  const OrderedJson first = id_of(0), last = id_of(list.size() - 1);
  return json_reply({{"object", "list"}, {"data", list}, {"first_id", first}, {"last_id", last}, {"has_more", false}});
}

}  // namespace

void ResponseStore::add(StoredResponse response) {
  const std::lock_guard lock(mutex_);
  bytes_ += bytes_of(response);
  responses_.push_front(std::make_shared<const StoredResponse>(std::move(response)));
  for (; bytes_ > max_bytes_; responses_.pop_back()) bytes_ -= bytes_of(*responses_.back());
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& id, bool erases) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(responses_, [&](const auto& each) { return each->id == id; });
  if (found == responses_.end()) return nullptr;
  std::shared_ptr<const StoredResponse> response = *found;
  responses_.splice(responses_.begin(), responses_, found);
  if (erases) {
    bytes_ -= bytes_of(*response);
    responses_.pop_front();
  }
  return response;
}

OrderedJson ResponseStore::find_item(const std::string& id) {
  const std::lock_guard lock(mutex_);
  for (const auto& response : responses_) {
    OrderedJson json;
    if (response->response.find(id) == std::string::npos || parse_body(response->response, &json)) continue;
    for (const OrderedJson& item : field_of(json, "output")) {
      if (text_of(item, "id") == id) return item;
    }
  }
  return nullptr;
}

Reply create_response(const ServerState& server, const HttpRequest& http) {
  ResponsesRequest request;
  request.fields.is_strict = http.is_strict;
  if (Error e = read_responses_request(server, http.body, &request)) return error_reply(Api::openai, e);
  return chat_reply(server, Api::openai, request, http, std::make_unique<ResponsesFormatter>(server, request));
}

Reply show_response(const ServerState& server, const HttpRequest& http) {
  constexpr std::string_view kInputItems = "/input_items";
  const bool lists = http.name.ends_with(kInputItems);
  const auto stored = server.responses->find(http.name.substr(0, http.name.size() - lists * kInputItems.size()));
  if (!stored) return error_reply(Api::openai, kNotStored);
  return lists ? list_input(*stored, http.is_ascending) : Reply{.body = stored->response};
}

Reply delete_response(const ServerState& server, const HttpRequest& http) {
  if (!server.responses->find(http.name, true)) return error_reply(Api::openai, kNotStored);
  return json_reply({{"id", http.name}, {"object", "response"}, {"deleted", true}});
}

}  // namespace pinion
