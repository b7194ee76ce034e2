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
Reply json_reply(const OrderedJson& json);
std::string text_of(const OrderedJson& json, const char* name);  // a field that is a text; empty: it is none
OrderedJson text_or_null(const std::string& text);               // empty: null
std::string json_text(const OrderedJson& json);                  // one line; what is no UTF-8 becomes U+FFFD

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
  TextService* service = nullptr;
};

// A refusal to take texts on, as a reply.
ApiError refusal_error(Refusal why, const Error& failure);

// A field of a request that is wrong: the message of JsonFields, with the field named.
ApiError field_error(const Error& failure);

struct Route {
  const char* method;
  const char* path;
  Shape shape;
  Reply (*handle)(const Serving& serving, const std::string& body);
  bool is_open = false;    // needs no key
  bool is_static = false;  // nor the model: it is the same while that is being loaded
};

// By file.
Reply show_health(const Serving& serving, const std::string& body);
Reply list_models(const Serving& serving, const std::string& body);
Reply show_fingerprint(const Serving& serving, const std::string& body);
Reply show_metrics(const Serving& serving, const std::string& body);
Reply tokenize_text(const Serving& serving, const std::string& body);
Reply detokenize_ids(const Serving& serving, const std::string& body);
Reply complete_text(const Serving& serving, const std::string& body);
Reply complete_chat(const Serving& serving, const std::string& body);
Reply answer_messages(const Serving& serving, const std::string& body);
Reply count_tokens(const Serving& serving, const std::string& body);
Reply ollama_version(const Serving& serving, const std::string& body);
Reply ollama_tags(const Serving& serving, const std::string& body);
Reply ollama_show(const Serving& serving, const std::string& body);
Reply ollama_chat(const Serving& serving, const std::string& body);
Reply ollama_generate(const Serving& serving, const std::string& body);

}  // namespace pinion
