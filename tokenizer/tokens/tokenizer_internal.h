// The members of Tokenizer and the loaders that fill them. Only for files of this folder and their tests.
#pragma once

#include <unordered_map>

#include "tokenizer/tokens/bpe.h"
#include "tokenizer/tokens/pipeline.h"
#include "tokenizer/tokens/settings.h"
#include "tokenizer/tokens/tokenizer.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace pinion {

// Limit of ids, since memory grows with the highest one. The largest vocabularies in use have about 10^6 tokens.
constexpr int32_t kMaxVocabSize = 1 << 20;

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

struct Tokenizer {
  AddedTokenFinder raw_tokens;                    // searched in the text as given
  AddedTokenFinder normalized_tokens;             // searched in the normalised text
  std::unordered_map<int32_t, AddedToken> added;  // by id; decoding gives `content`
  // By the content in the file, before normalisation.
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> added_ids;

  // One of two models: pipeline with bpe, or sentencepiece, whose pieces are in bpe.tokens.
  Pipeline pipeline;
  BpeModel bpe;
  std::shared_ptr<const sentencepiece::SentencePieceProcessor> sentencepiece;
  int32_t context_piece = -1;      // a piece of one visible character that decode_pieces() puts in front
  std::vector<bool> user_defined;  // pieces that sentencepiece itself finds in texts [piece_count]

  std::vector<int32_t> prefix, suffix;  // special tokens around every text
  std::optional<int32_t> bos, eos;
  std::vector<int32_t> ends;       // see end_ids()
  std::string file;                // path, for errors
  int32_t size = 0;                // highest id + 1
  size_t longest_token_bytes = 1;  // of the vocabulary's spelling, which is never shorter than the token's text
};

extern const Json kTokenizerData;  // configs/tokenizers.json

// pipeline_json.cpp: components of tokenizer.json. `where` names the file and the field.
Error read_normalizer(const Json& json, const std::string& where, std::vector<Normalizer>* out);
Error read_pre_tokenizer(const Json& json, const std::string& where, std::vector<PreTokenizer>* out);
Error read_decoder(const Json& json, const std::string& where, std::vector<Decoder>* out);

// tokenizer_json.cpp
Error load_tokenizer_json(std::string_view text, const std::string& where, Tokenizer* out);

// tokenizer.cpp: adds the tokens of the settings and the file, which may list a token several times, each time in part.
Error add_tokens(const std::vector<AddedToken>& tokens, const std::string& where, Tokenizer* out);

// rank_files.cpp: tekken.json, and a tokenizer.model that is Llama 3's list of ranks.
Error load_tekken(std::string_view text, const std::string& where, const TokenizerSettings& settings, Tokenizer* out);
bool is_rank_list(std::string_view bytes);  // a sentencepiece model does not begin with a base64 digit
Error load_rank_list(std::string_view bytes, const std::string& where, const TokenizerSettings& settings,
                     Tokenizer* out);

// sentencepiece.cpp: a tokenizer.model of sentencepiece. Its tokens are called pieces.
Error load_sentencepiece(std::string_view bytes, const std::string& where, const TokenizerSettings& settings,
                         Tokenizer* out);
// Restores the escapes and encodes `text`. The library itself finds user-defined pieces. If a guarded one contains a
// restored character, or was made by normalisation, each of its characters becomes a token instead.
void encode_pieces(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options,
                   std::vector<int32_t>* ids);
// `at_start`: as in decode_tokens(). `ids`: pieces only.
std::string decode_pieces(const Tokenizer& tokenizer, const std::vector<int>& ids, bool at_start);
bool is_byte_piece(const Tokenizer& tokenizer, int32_t id);
std::string piece_bytes(const Tokenizer& tokenizer, int32_t id);  // in the middle of a text

}  // namespace pinion
