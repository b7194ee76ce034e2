// Generation requests of all APIs: the common fields (fields.cpp), submission, and the reply, whole or streamed.
#pragma once

#include <future>

#include "apps/serve/api.h"

namespace pinion {

// The grammar of a request's tool calls.
struct HeldCalls {
  std::shared_ptr<const Grammar> grammar = {};  // null: none could be compiled
  std::vector<std::string> loose_tools = {};    // may get any object as arguments, for X-Pinion-Loose-Tools
};

// Field names are those of OpenAI's API; samplers that it lacks are named as in generation_config.json.
struct GenerationFields {
  GenerateOptions options;  // without max_tokens and logprobs, which each API reads itself
  std::vector<std::string> stops;
  int64_t choices = 1;
  bool streams = false;
  bool include_usage = false;                // stream_options.include_usage
  bool includes_stop = false;                // the text ends with the stop string
  int64_t max_prompt_tokens = 0;             // the beginning of a longer prompt is dropped; 0: no limit
  std::vector<std::string> end_tokens = {};  // special tokens that end the text as stop strings do
  bool continues_prompt = false;             // a completion, not a reply: its leading blank is kept
  bool is_constrained = false;               // a grammar covers the whole text
  bool is_strict = false;                    // the conversation is not mended
  std::vector<std::string> mended = {};      // changes to the conversation, for X-Pinion-Mended
  std::shared_future<HeldCalls> held = {};   // the first thread that waits for it compiles it
  std::vector<std::string> ignored = {};     // parts of the request without effect, for X-Pinion-Ignored
  // See InferenceRequest.
  std::function<bool(std::string_view token)> is_mark = {};
  std::shared_ptr<const ToolCallOptions> single_call = {};
};

constexpr int64_t kMaxChoices = 128;
constexpr int64_t kMaxTopLogprobs = 100;

// Errors are left in fields.error. The default seed is the server's, else random. `stop`: the field of stop strings.
void read_generation_fields(JsonFields& fields, const ServerState& server, GenerationFields* out,
                            std::string_view stop = "stop");

// The last of the fields that is given. -1 is no limit: the context's length. `absent`: nothing: one is required.
int64_t read_max_tokens(JsonFields& fields, const ServerState& server, std::initializer_list<const char*> names,
                        std::optional<int64_t> absent, int64_t min = 1);

// After all fields were read: fails for unsupported ones that would change the answer, appends names of unknown ones.
// Returns fields.error.
Error check_other_fields(JsonFields& fields, std::string_view prefix, std::vector<std::string>* ignored);

// Appends a client's word to `ignored`, once.
void note_ignored(const char* where, const std::string& name, GenerationFields* fields);

// A request may hold its text to a JSON schema, a regex, a grammar or a choice of strings.
struct OutputConstraint {
  std::string field;                         // the request's field that holds it
  std::optional<GrammarSource> source = {};  // nothing: unconstrained
};

// Moves the constraint out of a request: OpenAI's response_format, vLLM's structured_outputs and guided_*, llama.cpp's
// json_schema and grammar; Anthropic's output_config and output_format; Ollama's format. Fails for two at once.
Error take_output_constraint(OrderedJson& body, Api api, OutputConstraint* out);

// {"type": "json_schema", "json_schema": {"schema": {...}}}; of Anthropic and responses: without the inner object.
Error read_response_format(const OrderedJson& format, const std::string& field, OutputConstraint* out);

struct ChatPrompt;  // conversation.h

// Compiles the constraint into fields->options, and holds the calls of a conversation to its tools. `chat`: prompt of a
// conversation, whose reply may begin with thoughts or call tools instead; null for a completion. A new grammar moves
// `slot` to the grammar slots. Errors: those of GrammarCompiler, and a minimum number of tokens.
Error constrain_output(const ServerState& server, const OutputConstraint& constraint, const ChatPrompt* chat,
                       Slot& slot, GenerationFields* fields);

// True if the text keeps its leading blank: it continues the prompt's text or is constrained by a grammar.
bool keeps_leading_blank(const ServerState& server, const GenerationFields& fields, const std::vector<int32_t>& ids);

// Makes a fill-in-the-middle prompt of the texts around the gap. Fails if the vocabulary has no tokens for that.
Error fill_in(const ServerState& server, std::string_view prefix, std::string_view suffix, GenerationFields* fields,
              std::vector<int32_t>* out);

void truncate_prompt(const GenerationFields& fields, std::vector<int32_t>* ids);  // to max_prompt_tokens

std::string header_text(std::string name);                  // of characters that a header may hold
OrderedJson settings_json(const GenerateOptions& options);  // as in llama.cpp's server

const char* finish_reason_name(const RequestEvent& end);  // OpenAI's: "stop" or "length"

// A token's text after another token; an incomplete character is U+FFFD.
std::string token_piece(const Tokenizer& tokenizer, std::optional<int32_t> before, int32_t id);

// A token with its log probability and the most likely ones, in the format of OpenAI's chat API and of Ollama.
OrderedJson logprobs_json(const Tokenizer& tokenizer, std::optional<int32_t> before, const Logprobs& logprobs);

std::string response_id(const char* prefix);  // unique, not to be guessed: it admits to a stored response
std::string call_id();                        // some templates (Mistral's) accept nine letters and digits only

// Converts the events of a request group to an API's format.
class ResponseFormatter {
 public:
  virtual ~ResponseFormatter() = default;

  virtual std::string begin() { return {}; }               // first bytes of a stream
  virtual std::string put(const RequestEvent& event) = 0;  // next bytes of a stream; ignored for a whole reply
  virtual std::string finish() = 0;                        // last bytes of a stream, or all of a whole reply

  // Last bytes of a stream that fails.
  virtual std::string fail(Api api, const ApiError& failure) { return error_event(api, failure); }
};

// Common part of OpenAI's two formats: head, chunks, usage.
class OpenaiFormatter : public ResponseFormatter {
 public:
  std::string finish() override;

 protected:
  OpenaiFormatter(const ServerState& server, const GenerationFields& fields, const char* id_prefix, const char* object,
                  size_t choice_count);

  virtual OrderedJson whole_choice(size_t index) = 0;  // a choice of a whole reply
  std::string chunk(OrderedJson choice) const;         // an event with a part of a choice
  // `is_first_choice`: counts the prompt, which all choices share.
  void add_usage(const GenerateResult& result, bool is_first_choice);

  const ServerState& server_;
  const bool streams_;

 private:
  const bool include_usage_;
  const size_t choice_count_;
  OrderedJson head_;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, disk_tokens_ = 0, tokens_ = 0;
};

// Submits `choices` requests for each prompt, with consecutive seeds. Waits for the last event of a whole reply, or for
// the first event of a stream: a request that fails before its first token gets a status of its own, later failures are
// the last event of the stream. Headers name seed and fingerprint.
Reply generation_reply(const ServerState& server, Api api, const GenerationFields& fields,
                       const std::vector<std::vector<int32_t>>& prompts, const HttpRequest& http,
                       std::unique_ptr<ResponseFormatter> formatter);

}  // namespace pinion
