#include "apps/serve/api.h"

namespace pinion {
namespace {

// Of requests, the beginning of JsonFields' messages.
constexpr std::string_view kWhere = "request: ";

// Enough for a prompt of ids as long as the longest contexts.
constexpr JsonLimits kBodyLimits = {.values = 200'000, .keys = 4096};

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

void Readers::take() {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [&] { return free_ > 0; });
  --free_;
}

void Readers::give() {
  {
    const std::lock_guard lock(mutex_);
    ++free_;
  }
  freed_.notify_one();
}

Reading::Reading(Readers& readers) : readers_(&readers) { readers.take(); }

Reading::~Reading() { readers_->give(); }

void Reading::move_to(Readers& others) {
  readers_->give();
  readers_ = &others;
  readers_->take();
}

Error parse_body(const std::string& body, Json* out) { return parse_json(body, "request", out, kBodyLimits); }

Error parse_body(const std::string& body, OrderedJson* out) {
  return parse_ordered_json(body, "request", out, kBodyLimits);
}

Error too_long(const Serving& serving, const std::string& field) {
  return error("too long", std::string(kWhere) + field,
               "at most " + std::to_string(serving.service->context()) + " tokens (the context)");
}

Error encode_field(const Serving& serving, const std::string& field, std::string_view text, bool adds_special,
                   std::vector<int32_t>* out) {
  const EncodeOptions options{.add_special = adds_special, .most_tokens = serving.service->context()};
  const Error failure = encode(*serving.tokenizer, text, options, out);
  return failure.what == "too long" ? too_long(serving, field) : failure;
}

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
      return {failure.where == "grammar" ? 400 : 500, failure.message()};  // the request's own
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
