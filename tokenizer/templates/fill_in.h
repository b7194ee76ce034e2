// Prompts for "fill in the middle" (Bavarian et al. 2022): the model completes the text between a prefix and a suffix.
#pragma once

#include <array>

#include "kernels/base/error.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

// The prompt format of one model family. Its marks are single tokens of the vocabulary that delimit the texts.
struct FillInRow {
  std::string_view name;
  std::string_view prefix, suffix;       // marks in front of these texts
  std::string_view middle;               // mark at the end of the prompt; empty: none
  std::array<std::string_view, 3> ends;  // tokens that end the answer, besides EOS, if the vocabulary has them
  bool suffix_first = false;
  bool suffix_continues_text = false;  // a sentencepiece tokenizer must not put a space before the suffix
};

// The first row whose marks are in the vocabulary, or null.
const FillInRow* find_fill_in(const Tokenizer& tokenizer);

// The prompt's ids: BOS if the tokenizer adds it, marks, texts, whose special tokens are plain. More ids are an error.
Error encode_fill_in(const Tokenizer& tokenizer, const FillInRow& row, std::string_view prefix, std::string_view suffix,
                     int64_t max_tokens, std::vector<int32_t>* out);

std::vector<std::string> fill_in_ends(const Tokenizer& tokenizer, const FillInRow& row);  // FillInRow::ends that exist

}  // namespace pinion
