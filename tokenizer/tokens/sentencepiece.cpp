// tokenizer.model, run by the sentencepiece library. BOS, EOS and added tokens come from the settings files.
#include <sentencepiece_processor.h>
#include <nlohmann/json.hpp>

#include "kernels/base/text.h"
#include "tokenizer/tokens/tokenizer_internal.h"

namespace pinion {
namespace {

using sentencepiece::SentencePieceProcessor;

// A piece that decodes to the same visible text anywhere, for decode_pieces().
int32_t find_context_piece(const SentencePieceProcessor& model) {
  for (int id = 0; id < model.GetPieceSize(); ++id) {
    const std::string& piece = model.IdToPiece(id);
    const bool plain = !model.IsControl(id) && !model.IsUnknown(id) && !model.IsByte(id) && !model.IsUnused(id);
    if (plain && piece.size() == 1 && piece != " ") return id;
  }
  return -1;
}

// A number of a protocol buffer: groups of seven bits, the lowest first.
uint64_t take_varint(std::string_view* bytes) {
  uint64_t value = 0;
  for (int shift = 0; !bytes->empty() && shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes->front());
    bytes->remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) break;
  }
  return value;
}

// The number of the next field; its value goes to *number or *text. 0: the end, or an unexpected kind.
uint64_t take_field(std::string_view* bytes, uint64_t* number, std::string_view* text) {
  constexpr uint64_t kVarint = 0, kBytes = 2, kFourBytes = 5;
  if (bytes->empty()) return 0;
  const uint64_t tag = take_varint(bytes), kind = tag & 7;
  if (kind != kVarint && kind != kBytes && kind != kFourBytes) return 0;
  if (kind != kFourBytes) *number = take_varint(bytes);
  *text = bytes->substr(0, kind == kBytes ? *number : kind == kFourBytes ? 4 : 0);
  bytes->remove_prefix(text->size());
  return tag >> 3;
}

// The library has no function for this type. Field 1 of the model is a piece (repeated), and its field 3 the type.
std::vector<bool> find_user_defined(std::string_view model) {
  constexpr uint64_t kPieces = 1, kType = 3, kUserDefined = 4;
  std::vector<bool> found;
  uint64_t number = 0;
  std::string_view piece, text;
  while (const uint64_t field = take_field(&model, &number, &piece)) {
    if (field != kPieces) continue;
    found.push_back(false);
    while (const uint64_t piece_field = take_field(&piece, &number, &text)) {
      if (piece_field == kType) found.back() = number == kUserDefined;
    }
  }
  return found;
}

// Control pieces and the unknown piece decode to their names, or to nothing if special tokens are skipped.
void add_control_tokens(Tokenizer* out) {
  const SentencePieceProcessor& model = *out->sentencepiece;
  for (int id = 0; id < model.GetPieceSize(); ++id) {
    if (!model.IsControl(id) && !model.IsUnknown(id)) continue;
    out->added.insert_or_assign(id, AddedToken{.content = model.IdToPiece(id), .id = id, .special = true});
  }
}

// Spells a text without the library, which would find the piece again: as pieces of a character, bytes, or unknown.
void spell(const Tokenizer& tokenizer, std::string_view text, std::vector<int32_t>* ids) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    next_char(text, &at);
    const std::string_view character = text.substr(begin, at - begin);
    if (const int32_t id = tokenizer.bpe.tokens.find(character); id >= 0) {
      ids->push_back(id);
      continue;
    }
    for (const char c : character) {
      const int32_t id = tokenizer.bpe.tokens.find(fallback_token(c));
      ids->push_back(id >= 0 ? id : tokenizer.sentencepiece->unk_id());
      if (id < 0) break;
    }
  }
}

}  // namespace

Error load_sentencepiece(std::string_view bytes, const std::string& where, const TokenizerSettings& settings,
                         Tokenizer* out) {
  const auto model = std::make_shared<SentencePieceProcessor>();
  const bool is_model = model->LoadFromSerializedProto({bytes.data(), bytes.size()}).ok();
  if (!is_model) return error("not a sentencepiece model", where);
  out->sentencepiece = model;
  out->context_piece = find_context_piece(*model);
  out->user_defined = find_user_defined(bytes);
  out->size = model->GetPieceSize();
  out->bpe.tokens.reserve(out->size, bytes.size());
  for (int id = 0; id < out->size; ++id) out->bpe.tokens.set(model->IdToPiece(id), id);
  out->bpe.tokens.index_by_id();
  add_control_tokens(out);
  std::vector<AddedToken> tokens = settings.added;
  for (const int id : {model->bos_id(), model->eos_id(), model->unk_id()}) {
    if (id >= 0) tokens.push_back({.content = model->IdToPiece(id), .id = id, .special = true});
  }
  if (Error e = add_tokens(tokens, where, out)) return e;
  if (model->bos_id() >= 0) out->bos = model->bos_id();
  if (model->eos_id() >= 0) out->eos = model->eos_id();
  return {};
}

void encode_pieces(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options,
                   std::vector<int32_t>* ids) {
  std::vector<size_t> restored;
  const std::string whole = unescaped(text, options.escapes, &restored);
  if (options.guarded.empty()) {
    std::vector<int> pieces;
    // Fails only for a model that is not loaded.
    if (!tokenizer.sentencepiece->Encode(whole, &pieces).ok()) return;
    ids->insert(ids->end(), pieces.begin(), pieces.end());
    return;
  }
  const sentencepiece::ImmutableSentencePieceText encoded = tokenizer.sentencepiece->EncodeAsImmutableProto(whole);
  for (const auto& piece : encoded.pieces()) {
    const auto id = static_cast<int32_t>(piece.id());
    const auto next = std::ranges::lower_bound(restored, piece.begin());
    const std::string surface = replaced(piece.surface(), " ", "\u2581");  // spaces as in pieces
    const bool is_altered = (next != restored.end() && *next < piece.end()) || surface != tokenizer.bpe.tokens.text(id);
    if (is_altered && std::ranges::find(options.guarded, id) != options.guarded.end() &&
        !tokenizer.sentencepiece->IsUnknown(id)) {
      spell(tokenizer, tokenizer.bpe.tokens.text(id), ids);
    } else {
      ids->push_back(id);
    }
  }
}

std::string decode_pieces(const Tokenizer& tokenizer, const std::vector<int>& ids, bool at_start) {
  std::string text;
  if (ids.empty()) return text;
  const auto& model = *tokenizer.sentencepiece;
  if (at_start || tokenizer.context_piece < 0) return model.Decode(ids, &text).ok() ? text : std::string();
  // The library strips the space of the first piece. So another piece is put before it, and its text removed again.
  std::vector<int> with_context{tokenizer.context_piece};
  with_context.insert(with_context.end(), ids.begin(), ids.end());
  if (!tokenizer.sentencepiece->Decode(with_context, &text).ok()) return {};
  return text.substr(tokenizer.sentencepiece->IdToPiece(tokenizer.context_piece).size());
}

bool is_byte_piece(const Tokenizer& tokenizer, int32_t id) {
  return id < tokenizer.sentencepiece->GetPieceSize() && tokenizer.sentencepiece->IsByte(id);
}

std::string piece_bytes(const Tokenizer& tokenizer, int32_t id) {
  const auto& model = *tokenizer.sentencepiece;
  if (id < 0 || id >= model.GetPieceSize()) return {};
  if (model.IsControl(id) || model.IsUnknown(id) || model.IsUnused(id)) return {};
  const std::optional<char> byte = model.IsByte(id) ? fallback_byte(model.IdToPiece(id)) : std::nullopt;
  return byte ? std::string{*byte} : decode_pieces(tokenizer, {id}, false);
}

}  // namespace pinion
