#include "apps/golden/golden.h"

#include <nlohmann/json.hpp>

#include "apps/get/http.h"
#include "kernels/base/hash.h"
#include "kernels/base/text.h"

namespace pinion {
namespace {

// The text that the ids add to the prompt, as in a server's completions.
std::string text_after(const std::shared_ptr<const Tokenizer>& tokenizer, const GoldenPrompt& prompt,
                       std::span<const int32_t> ids) {
  if (!tokenizer) return {};
  IncrementalDecoder decoder(tokenizer, true, !has_text(*tokenizer, prompt.ids));
  std::string text;
  for (const int32_t id : ids) text += decoder.put(id);
  return text + decoder.finish();
}

Error answer_prompt(const Runtime& runtime, const Golden& golden, const GoldenPrompt& prompt,
                    const std::shared_ptr<const Tokenizer>& tokenizer, GoldenAnswer* out) {
  std::unique_ptr<Session> session;
  if (Error e = open_session(runtime, {.context = std::ssize(prompt.ids) + prompt.max_tokens}, &session)) return e;
  GenerateResult result;
  const GenerateOptions options = {.max_tokens = prompt.max_tokens,
                                   .sampler = golden.sampler,
                                   .ignore_eos = false,
                                   .hash_logits = true,
                                   .tokens_per_hash = kTokensPerHash};
  if (Error e = generate(*session, prompt.ids, options, [](int32_t) { return true; }, &result)) return e;
  *out = golden_answer(result, text_after(tokenizer, prompt, result.ids));
  return {};
}

// --- A model behind a server

struct Connection {
  std::string url;  // without a final slash
  std::string key;
  std::string fingerprint;  // common beginning of the fingerprints of all answers, which end in their seed
  HttpClient http;
};

std::string base_of(std::string url) {
  for (const std::string_view end : {"/", "/v1", "/"}) {
    if (url.ends_with(end)) url.erase(url.size() - end.size());
  }
  return url;
}

// The message of an error page in Pinion's format, {"error": {"message": TEXT}}; empty for other pages.
std::string message_of(const std::string& page) {
  Json json;
  if (parse_json(page, "", &json)) return {};
  JsonFields fields{json, ""};
  JsonFields inner = fields.fields("error");
  const std::string text = inner.text("message", "");
  return inner.error ? "" : text;
}

Error failure_of(const ClientResponse& response, const Connection& server, const std::string& url) {
  if (is_success(response)) return {};
  const std::string status = "HTTP " + std::to_string(response.status), message = message_of(response.page);
  if (response.status == 401 && server.key.empty()) return error("needs a key", url, "--api-key-file", status);
  if (response.status == 401) return error("refuses the key", url, "a key of its own --api-key-file", status);
  if (message.empty() || response.status == 404) {
    return error("not a pinion server", url, "`pinion serve` of this version or newer", status);
  }
  return error("refuses", url, {}, status + ", " + brief(Json(message)));
}

// Waits and tries again while the server's queue is full.
Error ask_in_turn(Connection& server, const ClientRequest& request, const Sink& sink, ClientResponse* out) {
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

// Sends `body` by POST, or a GET request if it is null, and parses the JSON of the response.
Error ask(Connection& server, const std::string& path, const Json& body, Json* out) {
  ClientRequest request = {.url = server.url + path, .token = server.key};
  if (!body.is_null()) {
    request.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
    request.idle_timeout_s = 0;  // the server sends nothing before the answer is complete
  }
  std::string text;
  ClientResponse response;
  if (Error e = ask_in_turn(server, request, text_sink(&text, kMaxJsonBytes, request.url), &response)) return e;
  if (Error e = failure_of(response, server, request.url)) return e;
  return parse_json(text, request.url, out);
}

Error encode_at(Connection& server, const std::string& text, bool adds_special, std::vector<int32_t>* out) {
  Json json;
  if (Error e = ask(server, "/tokenize", {{"content", text}, {"add_special", adds_special}}, &json)) return e;
  JsonFields fields{json, server.url + "/tokenize"};
  if (!fields.has("tokens")) fields.fail("tokens", "missing field");
  *out = read_token_ids(fields, "tokens");
  return fields.error;
}

// For explanations only: empty if the server fails.
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

// Checks the hash of the whole answer and the partial ones: sixteen hexadecimal digits each.
Error check_hashes(const GoldenAnswer& answer, const std::string& where) {
  const auto is_hash = [](const std::string& text) { return is_hexadecimal(text, 16); };
  // The logits that ended the text count as well, but have no id.
  const int64_t ids = std::ssize(answer.ids), partial = std::ssize(answer.partial_hashes);
  const bool is_complete = partial == ids / kTokensPerHash || partial == (ids + 1) / kTokensPerHash;
  if (is_complete && is_hash(answer.logits_hash) && std::ranges::all_of(answer.partial_hashes, is_hash)) return {};
  return error("invalid hashes of the logits", where,
               "sixteen hexadecimal digits, also for every " + std::to_string(kTokensPerHash) + " tokens");
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
    return error("the server has changed", where, server.fingerprint, fingerprint);
  }
  if (!choices || !choices->is_array() || choices->size() != 1) return error("not one text", where + ": choices");
  JsonFields choice{choices->front(), where + ": choices"};
  if (!choice.has("token_ids")) choice.fail("token_ids", "missing field");
  if (Error e = read_answer(choice, "token_ids", out)) return e;
  return check_hashes(*out, where + ": choices");
}

}  // namespace

Subject model_subject(const Runtime& runtime, const std::string& folder, std::shared_ptr<const Tokenizer> tokenizer) {
  Subject out{.name = folder, .has_tokenizer = tokenizer != nullptr};
  out.answer = [&runtime, tokenizer](const Golden& golden, const GoldenPrompt& prompt, GoldenAnswer* answer) {
    return answer_prompt(runtime, golden, prompt, tokenizer, answer);
  };
  if (!tokenizer) return out;
  out.encode = [folder, tokenizer](const std::string& text, bool adds_special, std::vector<int32_t>* ids) {
    if (adds_special) return encode_prompt(folder, *tokenizer, text, ids);
    return encode(*tokenizer, text, {.add_special = false}, ids);
  };
  out.decode = [tokenizer](std::span<const int32_t> ids) { return decode(*tokenizer, ids); };
  out.token_text = [tokenizer](int32_t id) { return token_text(*tokenizer, id); };
  return out;
}

std::string weights_hash(const Model& model) {
  if (model.exchange) return {};
  return hash_text(hash_words(kHashSeed, model.packed()));
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
  std::ignore = ask(*server, "/tokenize", {{"content", ""}}, &json);  // loads the model, unless it is
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

}  // namespace pinion
