// Structured outputs: a request may constrain its text to a JSON schema, a regex, a grammar or a choice of strings.
#pragma once

#include <optional>
#include <string>

#include "apps/serve/conversation.h"
#include "tokenizer/grammar/grammar.h"

namespace pinion {

struct OutputConstraint {
  std::string field;                         // the request's field that holds it
  std::optional<GrammarSource> source = {};  // nothing: unconstrained
};

// Moves the constraint out of a request: OpenAI's response_format, vLLM's structured_outputs and guided_*, llama.cpp's
// json_schema and grammar; Anthropic's output_config and output_format; Ollama's format. Errors: a wrong type, two
// constraints at once.
Error take_output_constraint(OrderedJson& body, Api api, OutputConstraint* out);

// {"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}; in the APIs of Anthropic and of responses
// {"type": "json_schema", "schema": {...}}.
Error read_response_format(const OrderedJson& format, const std::string& field, OutputConstraint* out);

// Compiles the constraint into fields->options, and holds the calls of a conversation to its tools. `chat`: prompt of a
// conversation, whose reply may begin with thoughts or call tools instead; null for a completion. A new grammar moves
// `slot` to the grammar slots. Errors: those of GrammarCompiler, and a minimum number of tokens.
Error constrain_output(const ServerState& server, const OutputConstraint& constraint, const ChatPrompt* chat,
                       Slot& slot, GenerationFields* fields);

}  // namespace pinion
