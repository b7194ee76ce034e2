// What happens to text around the model, as tokenizer.json lists it: normalisers, pre-tokenisers, decoders. Each list
// is flat (a Sequence is its members); a component of the file may become several steps here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "tokenizer/tokens/regex.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {

struct Normalizer {
  enum class Kind { kForm, kLowercase, kPrepend, kReplace, kStrip };
  Kind kind;
  NormalForm form = NormalForm::kNfc;
  Regex pattern = {};              // kReplace
  std::string text = {};           // kPrepend, and what kReplace puts in
  bool left = true, right = true;  // kStrip
};

// What becomes of the matches of a pattern that cuts text into pieces.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct PreTokenizer {
  enum class Kind {
    kSplit,
    kMetaspace,    // spaces become `text`, which is also put in front where `prepend` says so
    kPrefixSpace,  // a space in front where there is none
    kBytes,        // bytes become characters
  };
  enum class Prepend { kAlways, kFirst, kNever };
  Kind kind;
  Regex pattern = {};
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // the pattern describes what lies between matches
  std::string text = {};
  Prepend prepend = Prepend::kAlways;
};

struct Decoder {
  enum class Kind { kByteLevel, kReplace, kByteFallback, kFuse, kStrip, kMetaspace };
  Kind kind;
  Regex pattern = {};     // kReplace
  std::string text = {};  // what kReplace puts in, what kStrip removes, what kMetaspace turns into a space
  int64_t start = 0;      // kStrip: at most so many at the start of each token
  int64_t stop = 0;       // ... and at the end
  bool prepended = true;  // kMetaspace: the first token's is no space
};

constexpr size_t kMostPreTokenizers = 64;  // each calls the next

struct Pipeline {
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  std::vector<Decoder> decoders;
  bool spaced = false;  // there is no decoder: tokens are joined by spaces
};

struct TextPiece {
  std::string text;
  bool at_start;  // nothing of the input lies before it
};

Error normalize(const Pipeline& pipeline, RegexFinder& finder, TextPiece* piece);

// Calls `on_word` with one word after the other: all of them at once would take ten times the text's memory.
using OnWord = std::function<Error(std::string_view word)>;
Error pre_tokenize(const Pipeline& pipeline, std::string_view text, bool at_start, RegexFinder& finder,
                   const OnWord& on_word);

// `at_start`: these are the first tokens of the text. Later tokens are decoded with at_start false, and the joined
// results are the same as for all at once wherever can_end_at() allowed the cut and the text before it does not end in
// U+FFFD, which may be half a character.
std::string decode_tokens(const Pipeline& pipeline, std::vector<std::string> tokens, bool at_start);

std::optional<char> fallback_byte(std::string_view token);  // that <0xXX> spells

// What a token adds to the middle of a text: bytes that need not be whole characters.
std::string bytes_of_token(const Pipeline& pipeline, const std::string& token);

// No token that comes after `token` changes what it decodes to.
bool can_end_at(const Pipeline& pipeline, std::string_view token);

}  // namespace pinion
