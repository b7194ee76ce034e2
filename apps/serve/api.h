// What the server's endpoints share: requests as text, replies as values, and what all of them know of the model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/cli/console.h"
#include "apps/serve/text_service.h"
#include "kernels/error.h"
#include "loader/config/json.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

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

// What endpoints know. Written before the first request is let in.
struct Serving {
  std::string model;        // its name in answers
  std::string fingerprint;  // build, mode and hash of the weights
  std::string weights;      // that hash
  std::string family;       // as configs/models names it
  std::string parameters;   // "596M"
  std::string quant;        // "w8a8"
  int64_t weight_bytes = 0;
  int64_t created = 0;           // Unix time of the start
  SamplerOptions sampler;        // the folder's and the command line's
  std::optional<uint64_t> seed;  // of requests that have none; none: one of chance each
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: none
  TextService* service = nullptr;
};

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
Reply show_metrics(const Serving& serving, const HttpRequest& http);
Reply tokenize_text(const Serving& serving, const HttpRequest& http);
Reply detokenize_ids(const Serving& serving, const HttpRequest& http);
Reply complete_text(const Serving& serving, const HttpRequest& http);
Reply complete_chat(const Serving& serving, const HttpRequest& http);
Reply answer_messages(const Serving& serving, const HttpRequest& http);
Reply count_tokens(const Serving& serving, const HttpRequest& http);
Reply ollama_version(const Serving& serving, const HttpRequest& http);
Reply ollama_tags(const Serving& serving, const HttpRequest& http);
Reply ollama_show(const Serving& serving, const HttpRequest& http);
Reply ollama_chat(const Serving& serving, const HttpRequest& http);
Reply ollama_generate(const Serving& serving, const HttpRequest& http);

}  // namespace pinion
