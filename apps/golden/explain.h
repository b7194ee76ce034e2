// Says where a run leaves a recording.
#pragma once

#include <string>

#include "apps/golden/subject.h"

namespace pinion {

// "17 \" the\"", or what stands in its place after the last token.
std::string token_label(const Subject& subject, const std::vector<int32_t>& ids, size_t index);

// What was generated before the first token that differs, the recorded and the present candidate.
std::string explain(const Subject& subject, const GoldenAnswer& want, const GoldenAnswer& have);

// The same with log probabilities, and how this way parts from the definition, the scalar table on one thread: along
// the recorded tokens up to the first that differs, or where none does to where other bits can have begun. `bisect`:
// with the layer.
Error explain_here(const Subject& subject, const Runtime& runtime, bool bisect, const GoldenPrompt& prompt,
                   const GoldenAnswer& want, const GoldenAnswer& have, std::string* out);

}  // namespace pinion
