// What requests of all shapes have in common: fields about sampling and ending, and the parts of answers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/serve/api.h"

namespace pinion {

// Field names are those of OpenAI's API reference; samplers beyond it are named as in generation_config.json.
struct TextFields {
  GenerateOptions options;  // but max_tokens and logprobs, for which each shape has names of its own
  std::vector<std::string> stops;
  int64_t choices = 1;
  bool streams = false;
  bool wants_usage = false;                  // a last chunk with figures, when it streams
  std::vector<std::string> end_tokens = {};  // special tokens that end the text as stop texts do
  bool goes_on = false;                      // with the text of the prompt; else it is a text of its own
};

constexpr int64_t kMostChoices = 128;

// A seed of chance where the request has none. What is wrong is in fields.error. `stop`: what the shape calls stop
// texts.
void read_text_fields(JsonFields& fields, const Serving& serving, TextFields* out, std::string_view stop = "stop");

// Takes texts on: `choices` for each prompt, with seeds that follow each other. Status 0: done.
struct Prompted {
  std::unique_ptr<Texts> texts;
  ApiError refused = {.status = 0, .message = {}};
};
Prompted order_texts(const Serving& serving, const TextFields& fields, const std::vector<std::vector<int32_t>>& prompts,
                     std::function<bool(std::string_view)> is_mark = {},
                     std::shared_ptr<const ToolCallOptions> one_call = {});

// Whether an answer goes on with the text of its prompt: then it has the blank with which it begins. So has one that
// keeps to a form.
bool goes_on(const Serving& serving, const TextFields& fields, const std::vector<int32_t>& prompt);

// "suffix": the prompt has the model fill in what stands between the two texts. Errors: it has no tokens for that.
Error fill_in(const Serving& serving, std::string_view prefix, std::string_view suffix, TextFields* fields,
              std::vector<int32_t>* out);

// The tokens of all choices. A prompt counts once, however many choices it has.
struct Usage {
  int64_t prompt_tokens = 0, cached_tokens = 0, tokens = 0;

  void add(const GenerateResult& result, bool is_first_choice);
  OrderedJson json() const;
};

// OpenAI's word: "stop" or "length".
const char* finish_word(const TextEvent& end);

// A token's own text after another token; "\xHH" has no place there: half a character is U+FFFD.
std::string token_piece(const Tokenizer& tokenizer, std::optional<int32_t> before, int32_t id);

// The end of OpenAI's streams: figures, where wanted, and [DONE].
std::string stream_end(const TextFields& fields, const OrderedJson& head, const Usage& usage);

// {"id", "object", "created", "model", "system_fingerprint"}: what computed the answer, and from which seed.
OrderedJson answer_head(const Serving& serving, const TextFields& fields, const std::string& id, const char* object);
std::string answer_id(const char* prefix);  // another one each time

}  // namespace pinion
