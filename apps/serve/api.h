// Interface between HTTP and the endpoints: requests, replies, the route table, and the state that all endpoints share.
#pragma once

#include "apps/cli/console.h"
#include "apps/model/embedding.h"
#include "apps/serve/inference_service.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/templates/chat_template.h"

namespace pinion {

// Sink of a streamed reply.
struct StreamWriter {
  std::function<bool(std::string_view text)> write;  // false: the connection is closed
  std::function<bool()> is_open;
};

struct ServerState;

struct Reply {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::shared_ptr<const ServerState> server = {};  // used by the stream and destroyed after it; set by HTTP
  // Replaces the body. False: the stream is incomplete; the connection is cut, so that the client notices.
  std::function<bool(const StreamWriter&)> stream = {};
};

struct HttpRequest {
  std::string path;
  std::string name = {};   // the rest of the path, for a route whose path ends in '/'
  std::string model = {};  // ?model=
  std::string body = {};
  bool is_strict = false;                          // X-Pinion-Strict: conversations are not mended
  bool is_ascending = false;                       // ?order=asc, of lists
  std::function<bool()> is_client_connected = {};  // valid until the reply begins
};

// A failure in no API's format yet.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};  // the invalid field
  std::string code = {};   // for programs: "context_length_exceeded"
};

// The API that an endpoint belongs to; it decides the format of errors.
enum class Api : uint8_t { openai, anthropic, ollama };

Reply error_reply(Api api, const ApiError& failure);
Reply error_reply(Api api, const Error& failure);           // of JsonFields; names the field
std::string error_event(Api api, const ApiError& failure);  // last event of a stream
Reply json_reply(const OrderedJson& json);
const OrderedJson& field_of(const OrderedJson& json, const char* name);  // null: absent, or json is no object
OrderedJson take_field(OrderedJson& json, const char* name);             // the same; removes the field
std::string text_of(const OrderedJson& json, const char* name);  // a string field; empty: absent or another type
OrderedJson text_or_null(const std::string& text);               // empty: null
std::string event_text(const OrderedJson& json);                 // "data: {...}\n\n" (html.spec.whatwg.org, 9.2)

inline constexpr const char* kQueueFull = "queue_full";  // ApiError::code

// Converts a failure of an inference request.
ApiError failure_error(FailureKind kind, const Error& failure);

// Counting semaphore: without a limit, parsing for many clients would take the engine's cores and much memory.
class Slots {
 public:
  explicit Slots(int count) : free_(count) {}
  void lock();  // waits for a free one
  void unlock();

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  int free_;
};

using Slot = std::unique_lock<Slots>;  // holds one slot; the constructor waits for it

// A request's body, with lower limits than a file has.
Error parse_body(const std::string& body, OrderedJson* out);
// The same, field by field. A body that cannot be parsed is the fields' first error.
struct BodyFields {
  Json json;
  JsonFields fields{json, "request"};
  explicit BodyFields(const std::string& body);
};

// The body's fields; whole numbers such as 5.0 are integers.
Json request_fields(const OrderedJson& body);

class ModelList;
class ResponseStore;

// A loaded model as the endpoints see it. Constant once its first request is admitted.
struct ServerState {
  std::string model;             // name in replies
  std::string fingerprint;       // build, mode and hash of the weights
  std::string weights;           // that hash
  std::string golden_head;       // JSON: head of a golden file recorded here (build, weights, settings)
  std::string quant;             // "w8a8"
  int64_t created = 0;           // Unix time of the start
  SamplerOptions sampler;        // defaults, from the model folder and the command line
  std::optional<uint64_t> seed;  // default seed; nothing: a random one for each request
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: the model has none
  std::shared_ptr<const EmbeddingModel> embedding;    // vectors and scores, if the model makes any
  std::shared_ptr<GrammarCompiler> grammars;          // for structured outputs
  std::shared_ptr<ResponseStore> responses;           // of /v1/responses; of all models
  ModelList* models = nullptr;
  InferenceService* service = nullptr;
  // One slot a core, counted before the team pins this thread; at least two, so that a slow template blocks no others.
  std::shared_ptr<Slots> parse_slots = std::make_shared<Slots>(std::max(2u, std::thread::hardware_concurrency()));
  // Compiling a grammar takes up to seconds: one at a time, while other requests are parsed.
  std::shared_ptr<Slots> grammar_slots = std::make_shared<Slots>(1);
};

// Token ids of a request's field; fails beyond the context's length.
Error encode_field(const ServerState& server, const std::string& field, std::string_view text, bool add_special,
                   std::vector<int32_t>* out);
Error too_long(const ServerState& server, const std::string& field);

using Endpoint = Reply(const ServerState& server, const HttpRequest& http);

struct Route {
  const char* method;
  const char* path;  // ends with '/': all paths that begin so, except "/" itself
  Api api;
  Endpoint* handle;
  bool is_public = false;  // needs no key
  bool is_static = false;  // works while the model is being loaded
  bool is_of_all = false;  // needs no loaded model
};

// Files of apps/serve/page, compiled into the program.
struct PageFile {
  const char* path;  // "/app.js"
  std::string_view text;
};
std::span<const PageFile> page_files();

std::string_view server_tables_text();              // apps/serve/tables.json, compiled into the program
const OrderedJson& server_table(const char* name);  // one of these tables

// endpoints.cpp
Endpoint show_page, show_health, list_models, show_model, move_model, show_fingerprint, show_metrics;
Endpoint tokenize_text, detokenize_ids, show_props, show_slots, apply_template;
Endpoint complete_text, complete_native, infill;                  // completions.cpp
Endpoint complete_chat;                                           // chat.cpp
Endpoint answer_messages, count_tokens;                           // messages.cpp
Endpoint create_response, show_response, delete_response;         // responses.cpp
Endpoint embed_texts, rerank, ollama_embed, ollama_embed_prompt;  // embeddings.cpp
// ollama.cpp
Endpoint ollama_version, ollama_tags, ollama_ps, ollama_show, ollama_pull, ollama_generate;

}  // namespace pinion
