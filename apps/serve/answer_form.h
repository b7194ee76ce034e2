// What a request says about the form of its answer: a JSON schema, a regex, a grammar or a choice of texts.
#pragma once

#include <optional>
#include <string>

#include "apps/serve/conversation.h"
#include "tokenizer/grammar/grammar.h"

namespace pinion {

struct AnswerForm {
  std::string field;                         // that says so
  std::optional<GrammarSource> source = {};  // none: any text will do
};

// Takes it out of a request. OpenAI's response_format, vLLM's structured_outputs, llama.cpp's json_schema and grammar;
// Anthropic's output_config and output_format; Ollama's format. Errors: a wrong shape, two forms at once.
Error take_answer_form(OrderedJson& body, Shape shape, AnswerForm* out);

// The same of one that was parsed without the order of its keys, as most have no form and may have long lists of ids.
Error read_answer_form(const Json& request, const std::string& body, AnswerForm* out);

// Has the answers keep to the form. `chat`: the prompt of a conversation, whose answer may have thoughts first, or
// calls of tools instead; null: there is none. A form that is new takes its time in another queue. Errors:
// GrammarCompiler's.
Error keep_to_form(const Serving& serving, const AnswerForm& form, const ChatPrompt* chat, Reading& reading,
                   TextFields* fields);

}  // namespace pinion
