// What a Tokenizer is made of, and the loaders that fill it in. Only for files of this folder and their tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/base/error.h"
#include "loader/files/json.h"
#include "tokenizer/tokens/added_tokens.h"
#include "tokenizer/tokens/bpe.h"
#include "tokenizer/tokens/pipeline.h"
#include "tokenizer/tokens/settings.h"
#include "tokenizer/tokens/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace pinion {

// Ids must stay below this: memory follows the highest one. The largest vocabularies in use have about 10^6 tokens.
constexpr int32_t kMostTokens = 1 << 20;

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

struct Tokenizer {
  AddedTokenFinder raw_tokens;                    // sought in the text as it came
  AddedTokenFinder normalized_tokens;             // sought in the normalised text
  std::unordered_map<int32_t, AddedToken> added;  // by id; `content` is what decoding gives
  // By the content as the file has it.
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> added_ids;

  // One of the two models: pipeline and bpe, or sentencepiece.
  Pipeline pipeline;
  BpeModel bpe;
  std::shared_ptr<const sentencepiece::SentencePieceProcessor> sentencepiece;
  int32_t context_piece = -1;      // sentencepiece: a token with visible text, see decode_pieces()
  std::vector<bool> user_defined;  // sentencepiece: the tokens that it seeks in texts by itself [pieces]

  std::vector<int32_t> prefix, suffix;  // special tokens around every text
  std::optional<int32_t> bos, eos;
  std::string file;                // that it was read from
  int32_t size = 0;                // highest id + 1
  size_t longest_token_bytes = 1;  // as the vocabulary spells it, which is never shorter than the text
};

// Components of tokenizer.json; `where` names the file and the field.
Error read_normalizer(const Json& json, const std::string& where, std::vector<Normalizer>* out);
Error read_pre_tokenizer(const Json& json, const std::string& where, std::vector<PreTokenizer>* out);
Error read_decoder(const Json& json, const std::string& where, std::vector<Decoder>* out);

Error load_tokenizer_json(std::string_view text, const std::string& where, Tokenizer* out);

// Adds tokens of the settings and of the file itself; one may come more than once, each time with part of the facts.
Error add_tokens(const std::vector<AddedToken>& tokens, const std::string& where, Tokenizer* out);

// From tekken.json, and from a tokenizer.model that is Llama 3's list of ranks.
Error load_tekken(std::string_view text, const std::string& where, const TokenizerSettings& settings, Tokenizer* out);
bool is_rank_list(std::string_view bytes);  // a sentencepiece model begins with no character of base64
Error load_rank_list(std::string_view bytes, const std::string& where, const TokenizerSettings& settings,
                     Tokenizer* out);

// From a tokenizer.model of sentencepiece's.
Error load_sentencepiece(std::string_view bytes, const std::string& where, const TokenizerSettings& settings,
                         Tokenizer* out);
void encode_pieces(const Tokenizer& tokenizer, std::string_view text, std::vector<int32_t>* ids);
// With escapes put back. The library knows tokens of its own: guarded ones that it finds where a character was put
// back, or only once it has normalised the text, are spelled character by character.
void encode_guarded(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options,
                    std::vector<int32_t>* ids);

// `at_start` as in decode_tokens(). `ids` are the model's.
std::string decode_pieces(const Tokenizer& tokenizer, const std::vector<int>& ids, bool at_start);
bool is_byte_piece(const Tokenizer& tokenizer, int32_t id);
std::string piece_bytes(const Tokenizer& tokenizer, int32_t id);     // what it adds to the middle of a text
bool is_user_defined_piece(const Tokenizer& tokenizer, int32_t id);  // `id` is a piece's
int32_t piece_count(const Tokenizer& tokenizer);
int32_t piece_id(const Tokenizer& tokenizer, std::string_view piece);  // -1: none
std::string piece_text(const Tokenizer& tokenizer, int32_t id);

}  // namespace pinion
