#include "apps/serve/api.h"

namespace pinion {
namespace {

// Of requests, the beginning of JsonFields' messages.
constexpr std::string_view kWhere = "request: ";

const char* openai_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

const char* anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

OrderedJson error_json(Shape shape, const ApiError& failure) {
  switch (shape) {
    case Shape::openai:
      break;
    case Shape::anthropic:
      return {{"type", "error"}, {"error", {{"type", anthropic_type(failure.status)}, {"message", failure.message}}}};
    case Shape::ollama:
      return {{"error", failure.message}};
  }
  return {{"error",
           {{"message", failure.message},
            {"type", openai_type(failure.status)},
            {"param", text_or_null(failure.param)},
            {"code", text_or_null(failure.code)}}}};
}

}  // namespace

std::string text_of(const OrderedJson& json, const char* name) {
  if (!json.is_object()) return "";
  const auto field = json.find(name);
  return field != json.end() && field->is_string() ? field->get<std::string>() : "";
}

OrderedJson text_or_null(const std::string& text) { return text.empty() ? OrderedJson(nullptr) : OrderedJson(text); }

std::string json_text(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

Reply json_reply(const OrderedJson& json) { return {.body = json_text(json) + "\n"}; }

Reply error_reply(Shape shape, const ApiError& failure) {
  Reply reply = json_reply(error_json(shape, failure));
  reply.status = failure.status;
  if (failure.status == 429 || failure.status == 503) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

std::string event_text(const OrderedJson& json) { return "data: " + json_text(json) + "\n\n"; }

std::string error_event(Shape shape, const ApiError& failure) {
  const OrderedJson json = error_json(shape, failure);
  switch (shape) {
    case Shape::openai:
      break;
    case Shape::anthropic:
      return "event: error\n" + event_text(json);
    case Shape::ollama:
      return json_text(json) + "\n";
  }
  return event_text(json);
}

ApiError refusal_error(Refusal why, const Error& failure) {
  switch (why) {
    case Refusal::full:
      return {429, failure.message(), {}, "queue_full"};
    case Refusal::draining:
      return {503, failure.message(), {}, "draining"};
    case Refusal::failed:
      return {500, failure.message()};
    default:
      return field_error(failure);
  }
}

ApiError field_error(const Error& failure) {
  ApiError out{.message = failure.message()};
  if (failure.where.starts_with(kWhere)) out.param = failure.where.substr(kWhere.size());
  if (failure.what == "too long") out.code = "context_length_exceeded";
  return out;
}

}  // namespace pinion
