// What the server's endpoints share: requests as text, replies as values, and what all of them know of the model.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "apps/cli/console.h"
#include "apps/serve/text_service.h"
#include "kernels/base/error.h"
#include "loader/files/json.h"
#include "tokenizer/grammar/grammar.h"
#include "tokenizer/templates/chat_template.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

// Where an answer goes, piece by piece.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual bool write(std::string_view text) = 0;  // false: it has been closed
  virtual bool is_open() = 0;
};

struct Reply {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  // Instead of a body. False: what was written is not all; the connection is cut, so that the client knows.
  std::function<bool(Connection&)> stream = {};
};

// What an endpoint gets.
struct HttpRequest {
  std::string name;  // what stands behind a route's path that ends in '/'
  std::string body;
  std::function<bool()> is_open;  // whether the client is still there, while the answer has not begun
};

// A request that failed, before the API's own words are put around it.
struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {};  // the field at fault
  std::string code = {};   // for programs: "context_length_exceeded"
};

// Whose words an endpoint speaks.
enum class Shape : uint8_t { openai, anthropic, ollama };

Reply error_reply(Shape shape, const ApiError& failure);
std::string error_event(Shape shape, const ApiError& failure);  // as the last event of a stream that has begun
Reply json_reply(const OrderedJson& json);
std::string text_of(const OrderedJson& json, const char* name);  // a field that is a text; empty: it is none
OrderedJson text_or_null(const std::string& text);               // empty: null
std::string json_text(const OrderedJson& json);                  // one line; what is no UTF-8 becomes U+FFFD
std::string event_text(const OrderedJson& json);                 // "data: {...}\n\n" (html.spec.whatwg.org, 9.2)

// Requests are parsed, rendered and encoded beside the engine: at most so many at once, or a crowd of clients would
// take its cores and much memory.
class Readers {
 public:
  explicit Readers(int most) : free_(most) {}

 private:
  friend class Reading;
  void take();
  void give();
  std::mutex mutex_;
  std::condition_variable freed_;
  int free_;
};

// One of them; waits for its turn.
class Reading {
 public:
  explicit Reading(Readers& readers);
  ~Reading();
  // Gives its place up and waits for one of the others.
  void move_to(Readers& others);
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  Readers* readers_;
};

// The body of a request, which has less in it than a file may.
Error parse_body(const std::string& body, Json* out);
Error parse_body(const std::string& body, OrderedJson* out);

// What endpoints know. Written before the first request is let in.
struct Serving {
  std::string model;        // its name in answers
  std::string fingerprint;  // build, mode and hash of the weights
  std::string weights;      // that hash
  std::string golden_head;  // what a golden file recorded here says first: build, weights and settings, as JSON
  std::string family;       // as configs/models names it
  std::string parameters;   // "596M"
  std::string quant;        // "w8a8"
  int64_t weight_bytes = 0;
  int64_t created = 0;           // Unix time of the start
  SamplerOptions sampler;        // the folder's and the command line's
  std::optional<uint64_t> seed;  // of requests that have none; none: one of chance each
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: none
  std::shared_ptr<GrammarCompiler> grammars;          // for the forms that requests give their answers
  TextService* service = nullptr;
  // As many as cores, counted before a team pins the thread that starts it; two, so that no template holds up all.
  std::shared_ptr<Readers> readers = std::make_shared<Readers>(std::max(2u, std::thread::hardware_concurrency()));
  // Of requests' grammars, which may take seconds: one after the other, while others are read.
  std::shared_ptr<Readers> preparers = std::make_shared<Readers>(1);
};

// The ids of a text, the `field` of a request: at most as many as the context holds.
Error encode_field(const Serving& serving, const std::string& field, std::string_view text, bool adds_special,
                   std::vector<int32_t>* out);
Error too_long(const Serving& serving, const std::string& field);

// A refusal to take texts on, or the failure of one, as a reply.
ApiError refusal_error(Refusal why, const Error& failure);

// A field of a request that is wrong: the message of JsonFields, with the field named.
ApiError field_error(const Error& failure);

struct Route {
  const char* method;
  const char* path;
  Shape shape;
  Reply (*handle)(const Serving& serving, const HttpRequest& http);
  bool is_open = false;    // needs no key
  bool is_static = false;  // nor the model: it is the same while that is being loaded
};

// By file.
Reply show_health(const Serving& serving, const HttpRequest& http);
Reply list_models(const Serving& serving, const HttpRequest& http);
Reply show_model(const Serving& serving, const HttpRequest& http);
Reply show_fingerprint(const Serving& serving, const HttpRequest& http);
Reply show_metrics(const Serving& serving, const HttpRequest& http);
Reply tokenize_text(const Serving& serving, const HttpRequest& http);
Reply detokenize_ids(const Serving& serving, const HttpRequest& http);
Reply complete_text(const Serving& serving, const HttpRequest& http);
Reply complete_chat(const Serving& serving, const HttpRequest& http);
Reply answer_messages(const Serving& serving, const HttpRequest& http);
Reply count_tokens(const Serving& serving, const HttpRequest& http);
Reply ollama_version(const Serving& serving, const HttpRequest& http);
Reply ollama_tags(const Serving& serving, const HttpRequest& http);
Reply ollama_ps(const Serving& serving, const HttpRequest& http);
Reply ollama_embed(const Serving& serving, const HttpRequest& http);
Reply ollama_show(const Serving& serving, const HttpRequest& http);
Reply ollama_chat(const Serving& serving, const HttpRequest& http);
Reply ollama_generate(const Serving& serving, const HttpRequest& http);

}  // namespace pinion
