// Text to token ids and back, for the files of Hugging Face folders: tokenizer.json (BPE), Mistral's tekken.json, and
// tokenizer.model, which is sentencepiece's or Llama 3's. A Tokenizer is immutable; all functions are thread-safe.
#pragma once

#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "kernels/base/error.h"
#include "tokenizer/tokens/added_tokens.h"

namespace pinion {

struct Tokenizer;

// The file that load_tokenizer() reads: tokenizer.json, else tekken.json, else tokenizer.model. Empty: none exists.
// `model` is a folder, or a GGUF file, which counts as a folder of the files that its metadata stand for.
std::filesystem::path tokenizer_file(const std::string& model);

// Also reads tokenizer_config.json, special_tokens_map.json and added_tokens.json if present. A folder needs no other
// files of a model.
Error load_tokenizer(const std::string& model, std::shared_ptr<const Tokenizer>* out);

struct EncodeOptions {
  bool add_special = true;            // add BOS and EOS as configured
  bool parse_special = true;          // false: special tokens in the text are plain text
  std::vector<Escape> escapes = {};   // of escape_special_tokens(), restored after the search for special tokens
  std::vector<int32_t> guarded = {};  // added tokens that must stand in the text itself: normalisation cannot make them
  int64_t max_tokens = std::numeric_limits<int64_t>::max();  // more are an error, usually found early
};

// Ill-formed UTF-8 counts as U+FFFD.
Error encode(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options,
             std::vector<int32_t>* out);

// Equals Hugging Face's decode(ids, skip_special_tokens=skip_special, clean_up_tokenization_spaces=False). Ids outside
// of the vocabulary give no text.
std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool skip_special = true);

// Decodes token by token. The joined results of put() and finish() equal decode() of all ids; each result is whole
// UTF-8 characters, and text that a later token may change is held back. `at_start`: the ids begin a text; there, some
// vocabularies drop a leading space.
class IncrementalDecoder {
 public:
  explicit IncrementalDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = true,
                              bool at_start = true);
  std::string put(int32_t id);
  std::string finish();  // returns the text held back and resets the decoder

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  bool begins_text_;              // `at_start` of the constructor, restored by finish()
  std::vector<int32_t> pending_;  // tokens whose text is held back
  bool at_start_;                 // the ids begin a text, and none of it has been returned
};

int32_t token_id(const Tokenizer& tokenizer, std::string_view token);  // -1: no such token
std::string token_text(const Tokenizer& tokenizer, int32_t id);        // the vocabulary's spelling; empty: no such id
// The bytes of a token in the middle of a text, maybe part of a character. Empty for added tokens and unknown ids.
std::string token_bytes(const Tokenizer& tokenizer, int32_t id);
std::optional<int32_t> bos_id(const Tokenizer& tokenizer);  // from tokenizer_config.json
std::optional<int32_t> eos_id(const Tokenizer& tokenizer);
std::span<const int32_t> end_ids(const Tokenizer& tokenizer);               // the EOS of every file; may repeat one
int32_t vocab_size(const Tokenizer& tokenizer);                             // highest id + 1, added tokens included
Error check_ids(const Tokenizer& tokenizer, std::span<const int32_t> ids);  // fails for an id outside the vocabulary

// Fails if a token has no row in an embedding of `rows` rows. Added tokens may lack one (Gemma 3 1B: an image token),
// except those that encode() adds to every text. A prompt with a token that lacks a row is refused later.
Error check_rows(const Tokenizer& tokenizer, int64_t rows);

// Fails if one of these tokens lacks a row.
Error check_rows(const Tokenizer& tokenizer, int64_t rows, std::span<const int32_t> ids);

// The special tokens, and the other added tokens that occur in `template_text` and are not white space: some
// vocabularies do not flag the tokens around a turn of the conversation as special.
std::vector<AddedToken> special_tokens(const Tokenizer& tokenizer, std::string_view template_text = {});
bool is_special(const Tokenizer& tokenizer, int32_t id);

// True if the ids decode to any text. The answer to a prompt of these ids then does not begin a text: it is decoded
// with at_start false (IncrementalDecoder).
bool has_text(const Tokenizer& tokenizer, std::span<const int32_t> ids);

}  // namespace pinion
