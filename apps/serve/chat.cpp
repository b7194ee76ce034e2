// POST /v1/chat/completions: the next message of a conversation (platform.openai.com/docs/api-reference/chat).
#include "apps/serve/answer_form.h"
#include "apps/serve/chat_answer.h"

namespace pinion {
namespace {

constexpr int64_t kMostTopLogprobs = 100;

struct ChatRequest {
  TextFields fields;
  bool only_one_call = false;
  ChatPrompt prompt;
};

Error read_request(const Serving& serving, const std::string& body, ChatRequest* out) {
  Reading reading(*serving.readers);
  OrderedJson json;
  ChatOrder order;
  AnswerForm form;
  if (Error e = parse_body(body, &json)) return e;
  if (Error e = take_answer_form(json, Shape::openai, &form)) return e;
  if (Error e = take_chat_order(json, &order)) return e;
  const Json rest = json;
  JsonFields fields{rest, "request"};
  read_text_fields(fields, serving, &out->fields);
  const int64_t most = fields.integer("max_tokens", serving.service->context(), 1, 1 << 30);
  out->fields.options.max_tokens = fields.integer("max_completion_tokens", most, 1, 1 << 30);
  const bool wants_logprobs = fields.boolean("logprobs", false);
  const int64_t top = fields.integer("top_logprobs", 0, 0, kMostTopLogprobs);
  if (wants_logprobs) out->fields.options.logprobs = static_cast<int32_t>(top);
  if (top > 0 && !wants_logprobs) fields.fail("top_logprobs", "without logprobs: true");
  out->only_one_call = !fields.boolean("parallel_tool_calls", true);
  for (const char* name : {"functions", "function_call"}) {
    if (fields.has(name)) fields.fail(name, "no longer read", "tools and tool_choice, which came in its place");
  }
  if (fields.error) return fields.error;
  if (Error e = make_chat_prompt(serving, std::move(order), &out->prompt)) return e;
  return keep_to_form(serving, form, &out->prompt, reading, &out->fields);
}

}  // namespace

Reply complete_chat(const Serving& serving, const HttpRequest& http) {
  if (!serving.chat_template) {
    return error_reply(Shape::openai,
                       {.message = "the model has no chat template; /v1/completions continues plain text"});
  }
  ChatRequest request;
  if (Error e = read_request(serving, http.body, &request)) return error_reply(Shape::openai, field_error(e));
  const ToolCallOptions& reply = request.prompt.reply;
  Prompted prompted = order_replies(serving, request.fields, request.prompt, request.only_one_call);
  if (prompted.refused.status != 0) return error_reply(Shape::openai, prompted.refused);
  return answer_reply(serving, Shape::openai, request.fields, http, std::move(prompted.texts),
                      std::make_unique<ChatAnswer>(serving, request.fields, reply, request.only_one_call));
}

}  // namespace pinion
