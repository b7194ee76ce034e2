// Texts as a model's tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/load_options.h"
#include "kernels/base/error.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

struct TextIds {
  std::vector<int32_t> prefix;  // what the tokenizer puts before a text: BOS, or nothing
  std::vector<int32_t> ids;     // without it
};

bool has_tokenizer(const std::string& folder);

// The tokenizer of a model folder. Fails where check_rows() does: the model lacks some of its tokens.
Error load_own_tokenizer(const std::string& model, std::shared_ptr<const Tokenizer>* out);

// A prompt's tokens. One that does not fit into the model's context is refused before all of it is encoded.
Error encode_prompt(const std::string& model, const Tokenizer& tokenizer, const std::string& text,
                    std::vector<int32_t>* out);

Error text_ids(const Tokenizer& tokenizer, const std::string& text, TextIds* out);

// The text by which 4-bit weights are quantised; `where` names it in errors.
Error use_calibration(const TextIds& text, const std::string& where, LoadOptions* out);

}  // namespace pinion
