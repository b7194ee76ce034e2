// Tool calls that are held to the tools of their request by a grammar.
#pragma once

#include "apps/serve/conversation.h"

namespace pinion {

constexpr double kMaxGrammarSeconds = 1;  // CPU time on the engine thread, which all requests share

// Adds rules to fields->options.rules: a call that the model begins, or that the prompt has begun, gets a name of the
// request's tools and arguments that fit its schema. The text outside of calls follows the rules that were there.
// Tools whose schema no grammar expresses may get any object. The grammar is compiled by the thread that first waits
// for fields->held; the rules are not ready before that.
void hold_calls(const ServerState& server, const ChatPrompt& chat, GenerationFields* fields);

}  // namespace pinion
