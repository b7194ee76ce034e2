#include "apps/serve/api.h"

#include <cmath>

namespace pinion {
namespace {

// Prefix of Error::where for fields of a request.
constexpr std::string_view kWhere = "request: ";

// Holds a prompt of token ids as long as the longest contexts.
constexpr JsonLimits kBodyLimits = {.values = 200'000, .keys = 4096, .lone_surrogates = true};

OrderedJson error_json(Api api, const ApiError& failure) {
  if (api == Api::ollama) return {{"error", failure.message}};
  const OrderedJson& types = server_table("error_types");
  const auto row = types.find(std::to_string(failure.status));
  const OrderedJson& type = row != types.end() ? *row : types[failure.status < 500 ? "400" : "500"];
  if (api == Api::anthropic) {
    return {{"type", "error"}, {"error", {{"type", type["anthropic"]}, {"message", failure.message}}}};
  }
  return {{"error",
           {{"message", failure.message},
            {"type", type["openai"]},
            {"param", text_or_null(failure.param)},
            {"code", text_or_null(failure.code)}}}};
}

ApiError field_error(const Error& failure) {
  ApiError out{.message = failure.message()};
  if (failure.where.starts_with(kWhere)) out.param = failure.where.substr(kWhere.size());
  if (failure.what == "too long") out.code = "context_length_exceeded";
  return out;
}

void make_integers(Json& value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (value.is_structured()) std::ranges::for_each(value, make_integers);
  if (!value.is_number_float()) return;
  const double number = value.get<double>();
  if (std::abs(number) <= kExact && std::trunc(number) == number) value = static_cast<int64_t>(number);
}

}  // namespace

void Slots::lock() {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [&] { return free_ > 0; });
  --free_;
}

void Slots::unlock() {
  const std::lock_guard lock(mutex_);
  ++free_;
  freed_.notify_one();
}

const OrderedJson& server_table(const char* name) {
  static const OrderedJson kTables = OrderedJson::parse(server_tables_text());
  return kTables[name];
}

BodyFields::BodyFields(const std::string& body) { fields.error = parse_json(body, "request", &json, kBodyLimits); }

Error parse_body(const std::string& body, OrderedJson* out) {
  return parse_ordered_json(body, "request", out, kBodyLimits);
}

Json request_fields(const OrderedJson& body) {
  Json fields = body;
  make_integers(fields);
  return fields;
}

Error too_long(const ServerState& server, const std::string& field) {
  return error("too long", std::string(kWhere) + field, at_most(server.service->context()) + " tokens (the context)");
}

Error encode_field(const ServerState& server, const std::string& field, std::string_view text, bool add_special,
                   std::vector<int32_t>* out) {
  const EncodeOptions options{.add_special = add_special, .max_tokens = server.service->context()};
  const Error failure = encode(*server.tokenizer, text, options, out);
  return failure.what == "too long" ? too_long(server, field) : failure;
}

const OrderedJson& field_of(const OrderedJson& json, const char* name) {
  static const OrderedJson kNull;
  const auto field = json.find(name);  // end() unless json is an object
  return field == json.end() ? kNull : *field;
}

OrderedJson take_field(OrderedJson& json, const char* name) {
  const auto field = json.find(name);
  if (field == json.end()) return nullptr;
  OrderedJson value = std::move(*field);
  json.erase(field);
  return value;
}

std::string text_of(const OrderedJson& json, const char* name) {
  const OrderedJson& field = field_of(json, name);
  return field.is_string() ? field.get<std::string>() : "";
}

OrderedJson text_or_null(const std::string& text) { return text.empty() ? OrderedJson(nullptr) : OrderedJson(text); }

Reply json_reply(const OrderedJson& json) { return {.body = json_text(json) + "\n"}; }

Reply error_reply(Api api, const ApiError& failure) {
  Reply reply = json_reply(error_json(api, failure));
  reply.status = failure.status;
  if (failure.status == 429 || failure.status == 503) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

Reply error_reply(Api api, const Error& failure) { return error_reply(api, field_error(failure)); }

std::string event_text(const OrderedJson& json) { return "data: " + json_text(json) + "\n\n"; }

std::string error_event(Api api, const ApiError& failure) {
  const OrderedJson json = error_json(api, failure);
  if (api == Api::ollama) return json_text(json) + "\n";
  return (api == Api::anthropic ? "event: error\n" : "") + event_text(json);
}

ApiError failure_error(FailureKind kind, const Error& failure) {
  if (kind == FailureKind::queue_full) return {429, failure.message(), {}, kQueueFull};
  if (kind == FailureKind::draining) return {503, failure.message(), {}, "draining"};
  if (kind != FailureKind::internal) return field_error(failure);
  const bool is_clients_choice = failure.where == "grammar" || failure.where == kAllowedTokens;
  return {is_clients_choice ? 400 : 500, failure.message()};
}
}  // namespace pinion
