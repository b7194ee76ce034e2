// The processing of text around the BPE model, as tokenizer.json lists it: normalisers, pre-tokenisers, decoders. Each
// list is flat (a Sequence is replaced by its members); one component of the file may become several steps.
#pragma once

#include <vector>

#include "tokenizer/tokens/regex.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {

struct Normalizer {
  enum class Kind { kForm, kLowercase, kPrepend, kReplace, kStrip };
  Kind kind;
  NormalForm form = NormalForm::kNfc;
  Regex pattern = {};              // kReplace
  std::string text = {};           // kPrepend; kReplace: the replacement
  bool left = true, right = true;  // kStrip
};

// The treatment of matches when a pattern splits text into words.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct PreTokenizer {
  enum class Kind {
    kSplit,
    kMetaspace,    // replaces each space by `text`; `prepend`: when `text` is also put in front
    kPrefixSpace,  // prepends a space if there is none
    kBytes,        // maps bytes to characters (bytes_to_chars)
  };
  enum class Prepend { kAlways, kFirst, kNever };
  Kind kind;
  Regex pattern = {};
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // swaps matches and the text between them
  std::string text = {};
  Prepend prepend = Prepend::kAlways;
};

struct Decoder {
  enum class Kind { kByteLevel, kReplace, kByteFallback, kFuse, kStrip, kMetaspace };
  Kind kind;
  Regex pattern = {};  // kReplace
  // kReplace: the replacement; kStrip: the text to remove; kMetaspace: the text that becomes a space.
  std::string text = {};
  int64_t start = 0;      // kStrip: maximum count at the start of each token
  int64_t stop = 0;       // ... and at the end
  bool prepended = true;  // kMetaspace: `text` was put in front; in the first token it is removed
};

constexpr size_t kMaxPreTokenizers = 64;  // limits the recursion: each step calls the next one

struct Pipeline {
  std::vector<Normalizer> normalizers;
  std::vector<PreTokenizer> pre_tokenizers;
  std::vector<Decoder> decoders;
  bool spaced = false;  // the file has no decoder: decoding joins tokens by spaces
};

struct NormalizedText {
  std::string text;
  bool at_start;  // the text begins where the input begins: no normaliser has removed its front
};

Error normalize(const Pipeline& pipeline, RegexFinder& finder, NormalizedText* text);

// Calls `on_word` for each word: a list would take ten times the text's memory. `at_start`: as in NormalizedText.
using OnWord = std::function<Error(std::string_view word)>;
Error pre_tokenize(const Pipeline& pipeline, std::string_view text, bool at_start, RegexFinder& finder,
                   const OnWord& on_word);

// `at_start`: the tokens begin a text. Later tokens are decoded with at_start false; the joined results equal those of
// one call if can_end_at() allows the cut and the first text does not end in U+FFFD, which may be half a character.
std::string decode_tokens(const Pipeline& pipeline, std::vector<std::string> tokens, bool at_start);

std::string fallback_token(char byte);                      // <0xXX>
std::optional<char> fallback_byte(std::string_view token);  // the byte of such a token

// The bytes of a token in the middle of a text; they may be part of a character.
std::string bytes_of_token(const Pipeline& pipeline, const std::string& token);

// True if no later token changes the text of `token`.
bool can_end_at(const Pipeline& pipeline, std::string_view token);

}  // namespace pinion
