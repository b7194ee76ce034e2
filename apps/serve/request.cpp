#include "apps/serve/request.h"

#include <random>

#include "kernels/base/hash.h"
#include "tokenizer/templates/fill_in.h"

namespace pinion {
namespace {

constexpr int64_t kMaxLogprobValues = 2'000'000;

// Upper bound of the log probabilities that the reply holds in memory.
int64_t logprob_values(const GenerationFields& fields, int64_t context,
                       const std::vector<std::vector<int32_t>>& prompts) {
  const GenerateOptions& options = fields.options;
  int64_t values = 0;
  for (const std::vector<int32_t>& prompt : prompts) {
    if (options.prompt_logprobs) values += std::ssize(prompt) * (1 + *options.prompt_logprobs);
    if (options.logprobs) values += std::min(options.max_tokens, context) * (1 + *options.logprobs);
  }
  return values * fields.choices;
}

struct StreamedReply {
  Api api;
  std::unique_ptr<RequestGroup> group;
  std::unique_ptr<ResponseFormatter> formatter;
  RequestEvent first;
};

// False: the client has disconnected.
bool write_stream(StreamedReply& reply, const StreamWriter& writer) {
  std::string text = reply.formatter->begin();
  std::optional<RequestEvent> event = std::move(reply.first);
  while (event) {
    const auto [kind, failure] = std::tie(event->failure_kind, event->failure);
    if (failure) return writer.write(reply.formatter->fail(reply.api, failure_error(kind, failure)));
    text += reply.formatter->put(*event);
    if (reply.group->is_over()) text += reply.formatter->finish();
    if (!text.empty() && !writer.write(text)) return false;
    if (reply.group->is_over()) return true;
    text.clear();
    event = reply.group->next_event(writer.is_open);
  }
  return false;
}

// Status 0: success.
ApiError submit_requests(const ServerState& server, const GenerationFields& fields,
                         const std::vector<std::vector<int32_t>>& prompts, std::unique_ptr<RequestGroup>* out) {
  const int64_t count = std::ssize(prompts) * fields.choices, max_count = server.service->max_requests();
  if (count > max_count) {
    return {400, std::to_string(count) + " choices exceed this server's limit of " + std::to_string(max_count), "n"};
  }
  const int64_t values = logprob_values(fields, server.service->context(), prompts);
  if (values > kMaxLogprobValues) {
    return {400,
            std::to_string(values) + " log probabilities exceed this server's limit of " +
                std::to_string(kMaxLogprobValues) + "; request fewer choices, tokens or logprobs",
            "logprobs"};
  }
  std::vector<std::string> stops = fields.stops;
  stops.insert(stops.end(), fields.end_tokens.begin(), fields.end_tokens.end());
  std::function<bool(std::string_view)> is_mark = fields.is_mark;
  if (!fields.end_tokens.empty()) {
    is_mark = [is_other_mark = fields.is_mark, ends = fields.end_tokens](std::string_view token) {
      return std::ranges::find(ends, token) != ends.end() || (is_other_mark && is_other_mark(token));
    };
  }
  std::vector<InferenceRequest> requests;
  for (const std::vector<int32_t>& prompt : prompts) {
    for (int64_t i = 0; i < fields.choices; ++i) {
      requests.push_back({prompt, fields.options, stops, is_mark, fields.single_call,
                          keeps_leading_blank(server, fields, prompt), fields.includes_stop});
      requests.back().options.sampler.seed += static_cast<uint64_t>(i);
    }
  }
  FailureKind kind = FailureKind::none;
  const Error failure = server.service->submit(std::move(requests), out, &kind);
  return failure ? failure_error(kind, failure) : ApiError{.status = 0, .message = {}};
}

}  // namespace

bool keeps_leading_blank(const ServerState& server, const GenerationFields& fields, const std::vector<int32_t>& ids) {
  return fields.is_constrained || (fields.continues_prompt && has_text(*server.tokenizer, ids));
}

Error fill_in(const ServerState& server, std::string_view prefix, std::string_view suffix, GenerationFields* fields,
              std::vector<int32_t>* out) {
  const FillInRow* row = find_fill_in(*server.tokenizer);
  if (!row) return error("this model's vocabulary has no fill-in-the-middle tokens", "request: suffix");
  const Error failure = encode_fill_in(*server.tokenizer, *row, prefix, suffix, server.service->context(), out);
  fields->end_tokens = fill_in_ends(*server.tokenizer, *row);
  return failure.what == "too long" ? too_long(server, "prompt") : failure;
}

void truncate_prompt(const GenerationFields& fields, std::vector<int32_t>* ids) {
  const int64_t most = fields.max_prompt_tokens;
  if (most > 0 && std::ssize(*ids) > most) ids->erase(ids->begin(), ids->end() - most);
}

OrderedJson settings_json(const GenerateOptions& options) {
  const SamplerOptions& sampler = options.sampler;
  return {{"n_predict", options.max_tokens},
          {"seed", sampler.seed},
          {"temperature", sampler.temperature},
          {"top_k", sampler.top_k},
          {"top_p", sampler.top_p},
          {"min_p", sampler.min_p},
          {"repeat_penalty", sampler.repetition_penalty}};
}

const char* finish_reason_name(const RequestEvent& end) {
  return end.result.finish_reason == FinishReason::stop ? "stop" : "length";
}

std::string token_piece(const Tokenizer& tokenizer, std::optional<int32_t> before, int32_t id) {
  if (before) {
    const std::string first = decode(tokenizer, std::vector{*before}, false);
    const std::string both = decode(tokenizer, std::vector{*before, id}, false);
    if (both.starts_with(first)) return both.substr(first.size());
  }
  return decode(tokenizer, std::vector{id}, false);
}

OrderedJson logprobs_json(const Tokenizer& tokenizer, std::optional<int32_t> before, const Logprobs& logprobs) {
  const auto entry = [&](const TokenLogprob& token) -> OrderedJson {
    const std::string piece = token_piece(tokenizer, before, token.id);
    const std::vector<uint8_t> bytes(piece.begin(), piece.end());
    return {{"token", piece}, {"logprob", token.logprob}, {"bytes", bytes}};
  };
  OrderedJson json = entry(logprobs.token);
  json["top_logprobs"] = OrderedJson::array();
  for (const TokenLogprob& top : logprobs.top) json["top_logprobs"].push_back(entry(top));
  return json;
}

std::string response_id(const char* prefix) {
  static thread_local std::random_device random;
  return prefix + hash_text(uint64_t{random()} << 32 | random());
}

std::string call_id() { return response_id("").substr(16 - 9); }

OpenaiFormatter::OpenaiFormatter(const ServerState& server, const GenerationFields& fields, const char* id_prefix,
                                 const char* object, size_t choice_count)
    : server_(server),
      streams_(fields.streams),
      include_usage_(fields.include_usage),
      choice_count_(choice_count),
      head_({{"id", response_id(id_prefix)},
             {"object", object},
             {"created", static_cast<int64_t>(std::time(nullptr))},
             {"model", server.model},
             {"system_fingerprint", server.fingerprint + "-seed-" + std::to_string(fields.options.sampler.seed)}}) {}

void OpenaiFormatter::add_usage(const GenerateResult& result, bool is_first_choice) {
  tokens_ += std::ssize(result.ids);
  if (!is_first_choice) return;
  prompt_tokens_ += result.reused_tokens + result.prefilled_tokens;
  cached_tokens_ += result.reused_tokens;
  disk_tokens_ += result.loaded_tokens;
}

std::string OpenaiFormatter::chunk(OrderedJson choice) const {
  OrderedJson json = head_;
  json["choices"] = OrderedJson::array({std::move(choice)});
  if (include_usage_) json["usage"] = nullptr;
  return event_text(json);
}

std::string OpenaiFormatter::finish() {
  const std::string done = "data: [DONE]\n\n";
  if (streams_ && !include_usage_) return done;
  OrderedJson json = head_;
  json["choices"] = OrderedJson::array();
  for (size_t i = 0; i < choice_count_ && !streams_; ++i) json["choices"].push_back(whole_choice(i));
  json["usage"] = {{"prompt_tokens", prompt_tokens_},
                   {"completion_tokens", tokens_},
                   {"total_tokens", prompt_tokens_ + tokens_},
                   {"prompt_tokens_details", {{"cached_tokens", cached_tokens_}, {"cached_on_disk", disk_tokens_}}}};
  return streams_ ? event_text(json) + done : json_text(json) + "\n";
}

Reply generation_reply(const ServerState& server, Api api, const GenerationFields& fields,
                       const std::vector<std::vector<int32_t>>& prompts, const HttpRequest& http,
                       std::unique_ptr<ResponseFormatter> formatter) {
  std::unique_ptr<RequestGroup> group;
  const ApiError refusal = submit_requests(server, fields, prompts, &group);
  if (refusal.status != 0) return error_reply(api, refusal);
  const HeldCalls held = fields.held.valid() ? fields.held.get() : HeldCalls{};  // compiled while the prompt is read
  Reply reply;
  reply.headers = {{"X-Pinion-Fingerprint", server.fingerprint},
                   {"X-Pinion-Weights", server.weights},
                   {"X-Pinion-Seed", std::to_string(fields.options.sampler.seed)}};
  constexpr size_t kMaxHeaderBytes = 2000;
  for (const auto& [name, list] : {std::pair("X-Pinion-Ignored", &fields.ignored),
                                   {"X-Pinion-Loose-Tools", &held.loose_tools},
                                   {"X-Pinion-Mended", &fields.mended}}) {
    if (!list->empty()) reply.headers.emplace_back(name, joined(*list).substr(0, kMaxHeaderBytes));
  }
  while (!group->is_over()) {
    std::optional<RequestEvent> event = group->next_event(http.is_client_connected);
    if (!event) return error_reply(api, {499, "the client has disconnected"});  // nobody reads it
    if (event->failure) return error_reply(api, failure_error(event->failure_kind, event->failure));
    if (fields.streams) {
      reply.type = api == Api::ollama ? "application/x-ndjson" : "text/event-stream";
      const auto streamed =
          std::make_shared<StreamedReply>(api, std::move(group), std::move(formatter), *std::move(event));
      reply.stream = [streamed](const StreamWriter& writer) { return write_stream(*streamed, writer); };
      return reply;
    }
    formatter->put(*event);
  }
  reply.body = formatter->finish();
  return reply;
}

}  // namespace pinion
