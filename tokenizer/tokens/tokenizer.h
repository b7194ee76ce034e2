// Text to token ids and back, for the file kinds of Hugging Face folders: tokenizer.json (BPE), Mistral's tekken.json,
// and tokenizer.model, which is sentencepiece's or Llama 3's. A Tokenizer never changes after loading; every function
// here may be called from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "tokenizer/tokens/special_token_escape.h"

namespace pinion {

struct Tokenizer;

// The file that load_tokenizer() reads: tokenizer.json, else tekken.json, else tokenizer.model. Empty: there is none.
std::filesystem::path tokenizer_file(const std::string& folder);

// tokenizer_config.json, special_tokens_map.json and added_tokens.json are used where present. The folder need not hold
// anything else of a model.
Error load_tokenizer(const std::string& folder, std::shared_ptr<const Tokenizer>* out);

struct EncodeOptions {
  bool add_special = true;            // BOS and EOS as the folder asks
  bool parse_special = true;          // false: special tokens written in the text are ordinary text
  std::vector<Escape> escapes = {};   // put back after special tokens have been looked for (special_token_escape.h)
  std::vector<int32_t> guarded = {};  // tokens only where the text spells them, not where normalising it makes them
  int64_t most_tokens = std::numeric_limits<int64_t>::max();  // more are an error: early, not once all is encoded
};

// Bytes that are not UTF-8 count as U+FFFD.
Error encode(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options,
             std::vector<int32_t>* out);

// Hugging Face's decode(ids, skip_special_tokens=skip_special, clean_up_tokenization_spaces=False). Ids outside the
// vocabulary give no text.
std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool skip_special = true);

// One token at a time. The pieces that put() and finish() return, joined, are decode() of the whole; each piece is
// whole UTF-8 characters, and text that a later token may still change is held back. `at_start`: a text begins, of
// which some vocabularies leave out a first blank; else the tokens go on with one.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true, bool at_start = true);
  std::string put(int32_t id);
  std::string finish();  // what was held back; afterwards the decoder is as new

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_, begins_;
  std::vector<int32_t> pending_;  // tokens whose text is held back
  bool at_start_;                 // no text was given out yet
};

int32_t token_id(const Tokenizer& tokenizer, std::string_view token);  // -1: no such token
std::string token_text(const Tokenizer& tokenizer, int32_t id);        // as the vocabulary spells it; empty: no such id
// What a token adds to the middle of a text: it may be part of a character. Empty: an added token, or none.
std::string token_bytes(const Tokenizer& tokenizer, int32_t id);
std::optional<int32_t> bos_id(const Tokenizer& tokenizer);  // as tokenizer_config.json names it
std::optional<int32_t> eos_id(const Tokenizer& tokenizer);
int32_t vocab_size(const Tokenizer& tokenizer);  // highest id + 1, added tokens included
// Fails if a token's id is beyond an embedding of `rows`. Added tokens may be, unless they go around every text:
// Gemma 3 1B has one for pictures. A prompt that has such a token is refused later.
Error check_rows(const Tokenizer& tokenizer, int64_t rows);
// Some vocabularies do not mark the tokens that delimit turns as special: those that `written`, what a template writes
// by itself, spells out count too. Blanks do not: text is full of them.
std::vector<AddedToken> special_tokens(const Tokenizer& tokenizer, std::string_view written = {});
bool is_special(const Tokenizer& tokenizer, int32_t id);
// Whether a prompt has any text: then what a model writes behind it goes on with it.
bool has_text(const Tokenizer& tokenizer, std::span<const int32_t> ids);

}  // namespace pinion
