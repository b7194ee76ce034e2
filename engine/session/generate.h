// The loop: prompt in, tokens out.
#pragma once

#include <cstdint>
#include <span>

#include "engine/session/continuation.h"
#include "engine/session/session.h"

namespace pinion {

// Continues `prompt`, the whole sequence: what the session holds of it already is not evaluated again. Errors: an empty
// prompt, one that does not fit, ids outside the vocabulary, options out of range.
Error generate(Session& session, std::span<const int32_t> prompt, const GenerateOptions& options,
               const OnToken& on_token, GenerateResult* out);

}  // namespace pinion
