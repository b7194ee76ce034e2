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

// The same for a request parsed without the order of keys, which is faster for long lists of ids. Parses the body again
// if it has a constraint, because a schema's order of properties matters.
Error read_output_constraint(const Json& request, const std::string& body, OutputConstraint* out);

// Compiles the constraint into fields->options. `chat`: prompt of a conversation, whose reply may begin with thoughts
// or call tools instead; null for a completion. A new grammar moves `slot` to the grammar slots. Errors: those of
// GrammarCompiler.
Error constrain_output(const ServerState& server, const OutputConstraint& constraint, const ChatPrompt* chat,
                       Slot& slot, GenerationFields* fields);

}  // namespace pinion
