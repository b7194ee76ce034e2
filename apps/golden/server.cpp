#include "apps/golden/server.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/get/http.h"
#include "loader/files/json.h"

namespace pinion {
namespace {

struct Connection {
  std::string url;  // without an end of its own
  std::string key;
  std::string fingerprint;  // of all its answers, which have their seed behind it
  Http http;
};

std::string base_of(std::string url) {
  const auto drop = [&url](std::string_view end) {
    if (url.ends_with(end)) url.erase(url.size() - end.size());
  };
  drop("/");
  drop("/v1");
  drop("/");
  return url;
}

std::string complain_about_url(const std::string& url) {
  const bool is_one = url.starts_with("http://") || url.starts_with("https://");
  return is_one ? "" : "want an address like http://127.0.0.1:8080, have " + url;
}

// What a server's own words are, where it answers as Pinion's does: {"error": {"message": TEXT}}
std::string message_of(const std::string& page) {
  Json json;
  if (parse_json(page, "", &json)) return {};
  JsonFields fields{json, ""};
  JsonFields inner = fields.fields("error");
  const std::string text = inner.text("message", "");
  return inner.error ? "" : text;
}

Error failure_of(const Response& response, const Connection& server, const std::string& url) {
  if (is_success(response)) return {};
  const std::string status = "HTTP " + std::to_string(response.status), message = message_of(response.page);
  if (response.status == 401 && server.key.empty()) return error("wants a key", url, "--api-key-file", status);
  if (response.status == 401) return error("refuses the key", url, "one that its own --api-key-file has", status);
  if (message.empty() || response.status == 404) {
    return error("no answer of a pinion server", url, "`pinion serve` of this version or newer", status);
  }
  return error("refuses", url, {}, status + ", " + brief(Json(message)));
}

// A server whose queue is full says when to come again.
Error ask_in_turn(Connection& server, const Request& request, const Sink& sink, Response* out) {
  constexpr long kTooManyRequests = 429;
  for (int64_t left_s = 300;;) {
    Error sink_error;
    *out = {};
    if (Error e = server.http.ask(request, sink, out, &sink_error)) return e;
    if (sink_error) return sink_error;
    const int64_t wait_s = out->retry_after_s;
    if (out->status != kTooManyRequests || wait_s <= 0 || wait_s > left_s) return {};
    std::this_thread::sleep_for(std::chrono::seconds(wait_s));
    left_s -= wait_s;
  }
}

// The JSON that comes back. `body`: null for GET.
Error ask(Connection& server, const std::string& path, const Json& body, Json* out) {
  Request request = {.url = server.url + path, .token = server.key};
  if (!body.is_null()) {
    request.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
    request.most_idle_s = 0;  // a long answer comes at its end
  }
  std::string text;
  const Sink sink = [&](const Response&, std::span<const std::byte> part) {
    if (std::ssize(text) + std::ssize(part) > kMaxJsonBytes) return error("too long an answer", request.url);
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
    return Error();
  };
  Response response;
  if (Error e = ask_in_turn(server, request, sink, &response)) return e;
  if (Error e = failure_of(response, server, request.url)) return e;
  return parse_json(text, request.url, out);
}

Error encode_at(Connection& server, const std::string& text, bool adds_special, std::vector<int32_t>* out) {
  Json json;
  if (Error e = ask(server, "/tokenize", {{"content", text}, {"add_special", adds_special}}, &json)) return e;
  JsonFields fields{json, server.url + "/tokenize"};
  if (!fields.has("tokens")) fields.fail("tokens", "missing field");
  const std::vector<int64_t> ids = fields.integers("tokens", 0, std::numeric_limits<int32_t>::max());
  out->assign(ids.begin(), ids.end());
  return fields.error;
}

// Only for explanations: nothing where the server does not say.
std::string decode_at(Connection& server, std::span<const int32_t> ids) {
  Json json;
  if (ask(server, "/detokenize", {{"tokens", std::vector(ids.begin(), ids.end())}}, &json)) return {};
  return JsonFields{json, ""}.text("content", "");
}

Json completion_json(const Golden& golden, const GoldenPrompt& prompt) {
  Json body = sampler_json(golden.sampler);
  body["dry_breakers"] = golden.sampler.dry_breakers;
  body["seed"] = golden.sampler.seed;
  body["prompt"] = prompt.ids;
  body["max_tokens"] = prompt.max_tokens;
  body["return_token_ids"] = body["return_logits_hash"] = true;
  return body;
}

// Sixteen hexadecimal digits, for the text and for every stretch of it.
Error check_hashes(const GoldenAnswer& answer, const std::string& where) {
  const auto is_hash = [](const std::string& text) {
    return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == text.npos;
  };
  // Logits that ended the text belong to no token.
  const int64_t ids = std::ssize(answer.ids), stretches = std::ssize(answer.hashes_on_way);
  const bool is_whole = stretches == ids / kTokensPerHash || stretches == (ids + 1) / kTokensPerHash;
  if (is_whole && is_hash(answer.logits_hash) && std::ranges::all_of(answer.hashes_on_way, is_hash)) return {};
  return error("no hashes of its logits", where,
               "sixteen hexadecimal digits, and as many for every " + std::to_string(kTokensPerHash) + " tokens");
}

Error answer_at(Connection& server, const Golden& golden, const GoldenPrompt& prompt, GoldenAnswer* out) {
  const std::string path = "/v1/completions", where = server.url + path;
  Json json;
  if (Error e = ask(server, path, completion_json(golden, prompt), &json)) return e;
  JsonFields fields{json, where};
  const std::string fingerprint = fields.text("system_fingerprint");
  const Json* choices = fields.find("choices");
  if (fields.error) return fields.error;
  if (!fingerprint.starts_with(server.fingerprint + "-seed-")) {
    return error("not the server that it was", where, server.fingerprint, fingerprint);
  }
  if (!choices || !choices->is_array() || choices->size() != 1) return error("not one text", where + ": choices");
  JsonFields choice{choices->front(), where + ": choices"};
  if (!choice.has("token_ids")) choice.fail("token_ids", "missing field");
  if (Error e = read_answer(choice, "token_ids", out)) return e;
  return check_hashes(*out, where + ": choices");
}

}  // namespace

void add_server_options(Command app, ServerOptions* options) {
  app.add_option("--url", options->url, "Ask a running `pinion serve` there, instead of a model here")
      .check(complain_about_url)
      .type_name("URL");
  app.add_option("--api-key-file", options->key_file, "Send the first key of this file to the server").path("F");
}

Error open_server(const ServerOptions& options, Golden* served, Subject* out) {
  const auto server = std::make_shared<Connection>();
  server->url = base_of(options.url);
  std::vector<std::string> keys;
  if (Error e = read_keys(options.key_file, &keys)) return e;
  if (!keys.empty()) server->key = keys.front();
  if (Error e = check_token(server->key, input_name(options.key_file))) return e;
  if (Error e = server->http.open()) return e;
  Json json;
  const std::string path = "/v1/fingerprint";
  if (Error e = ask(*server, path, nullptr, &json)) return e;
  JsonFields fields{json, server->url + path};
  server->fingerprint = fields.text("system_fingerprint");
  const int64_t context = fields.integer("max_model_len", {}, 1);
  if (Error e = parse_golden_head(fields, served)) return e;
  *out = {.name = server->url, .context = context};
  out->encode = [server](const std::string& text, bool adds_special, std::vector<int32_t>* ids) {
    return encode_at(*server, text, adds_special, ids);
  };
  out->decode = [server](std::span<const int32_t> ids) { return decode_at(*server, ids); };
  out->token_text = [server](int32_t id) { return decode_at(*server, {&id, 1}); };
  out->answer = [server](const Golden& golden, const GoldenPrompt& prompt, GoldenAnswer* answer) {
    return answer_at(*server, golden, prompt, answer);
  };
  return {};
}

Error check_served(const Golden& recorded, const Golden& served, const std::string& where) {
  if (!recorded.weights.empty() && recorded.weights != served.weights) {
    return error("not the recorded weights", where, recorded.weights, served.weights);
  }
  // Whatever else decides the weights, their hash has seen; the KV cache is not among them.
  const OrderedJson want = run_settings_json(recorded), have = run_settings_json(served);
  for (const auto& [name, value] : want.items()) {
    if (have[name] == value || (!recorded.weights.empty() && name != "kv")) continue;
    return error("not the recorded setting", where + ": " + name, value.dump(), have[name].dump());
  }
  return {};
}

}  // namespace pinion
