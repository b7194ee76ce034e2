// Prompts that have a model fill in what stands between two texts ("fill in the middle", Bavarian et al. 2022).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

// One family's way. The marks are tokens of its vocabulary.
struct FillInRow {
  std::string_view name;
  std::string_view prefix, suffix;  // stand before these texts
  std::string_view middle;          // what the model goes on from; empty: the last text itself
  bool suffix_first = false;        // the order of the two
  bool suffix_goes_on = false;      // is encoded without the blank that begins texts of sentencepiece's vocabularies
  std::array<std::string_view, 3> ends = {};  // end what is filled in, where the vocabulary has them, as EOS does
};

// The row whose marks the vocabulary has, or null.
const FillInRow* find_fill_in(const Tokenizer& tokenizer);

// BOS where the folder asks for it, the marks and the texts, in which special tokens are plain text. `most_tokens`: see
// EncodeOptions.
Error encode_fill_in(const Tokenizer& tokenizer, const FillInRow& row, std::string_view prefix, std::string_view suffix,
                     int64_t most_tokens, std::vector<int32_t>* out);

// The row's ends that the vocabulary has.
std::vector<std::string> fill_in_ends(const Tokenizer& tokenizer, const FillInRow& row);

}  // namespace pinion
