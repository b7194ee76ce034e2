// The model part of tokenizer.model, by the sentencepiece library. What surrounds it (BOS, added tokens) comes from the
// settings files, as Hugging Face's LlamaTokenizer has it.
#include <sentencepiece_processor.h>

#include <algorithm>
#include <map>

#include "tokenizer/parts.h"

namespace pinion {
namespace {

using sentencepiece::SentencePieceProcessor;

// A token with visible text that is the same anywhere, to stand before a part that is not the start of the text.
int32_t find_context_piece(const SentencePieceProcessor& model) {
  for (int id = 0; id < model.GetPieceSize(); ++id) {
    const std::string& piece = model.IdToPiece(id);
    const bool plain = !model.IsControl(id) && !model.IsUnknown(id) && !model.IsByte(id) && !model.IsUnused(id);
    if (plain && piece.size() == 1 && piece != " ") return id;
  }
  return -1;
}

// Control tokens and the unknown token are never text of their own; they show, if at all, under their names.
void add_control_tokens(Tokenizer* out) {
  const SentencePieceProcessor& model = *out->sentencepiece;
  for (int id = 0; id < model.GetPieceSize(); ++id) {
    if (!model.IsControl(id) && !model.IsUnknown(id)) continue;
    out->added.insert_or_assign(id, AddedToken{.content = model.IdToPiece(id), .id = id, .special = true});
  }
}

// A token may be named more than once, each time with part of the facts.
std::map<std::string, AddedToken> join_facts(const std::vector<AddedToken>& tokens) {
  std::map<std::string, AddedToken> joined;
  for (const AddedToken& token : tokens) {
    const auto [entry, fresh] = joined.try_emplace(token.content, token);
    if (entry->second.id < 0) entry->second.id = token.id;
    entry->second.special = entry->second.special || token.special;
  }
  joined.erase("");
  return joined;
}

Error add_tokens(const std::vector<AddedToken>& tokens, const std::string& where, Tokenizer* out) {
  std::vector<AddedToken> sought;
  for (auto& [content, token] : join_facts(tokens)) {
    AddedToken added = token;
    if (added.id < 0) added.id = piece_id(*out, content);
    if (added.id < 0) continue;  // named, and nowhere given an id
    if (added.id >= kMostTokens) return error("token id is too large", where, {}, std::to_string(added.id));
    out->size = std::max(out->size, added.id + 1);
    out->added_ids.emplace(content, added.id);
    out->added.insert_or_assign(added.id, added);
    sought.push_back(std::move(added));
  }
  out->raw_tokens = make_finder(std::move(sought));
  return {};
}

}  // namespace

Error load_sentencepiece(std::string_view bytes, const std::string& where, const TokenizerSettings& settings,
                         Tokenizer* out) {
  const auto model = std::make_shared<SentencePieceProcessor>();
  if (!model->LoadFromSerializedProto({bytes.data(), bytes.size()}).ok()) {
    return error("not a sentencepiece model", where);
  }
  out->sentencepiece = model;
  out->context_piece = find_context_piece(*model);
  out->size = model->GetPieceSize();
  add_control_tokens(out);
  std::vector<AddedToken> tokens = settings.added;
  for (const int id : {model->bos_id(), model->eos_id(), model->unk_id()}) {
    if (id >= 0) tokens.push_back({.content = model->IdToPiece(id), .id = id, .special = true});
  }
  if (Error e = add_tokens(tokens, where, out)) return e;
  if (model->bos_id() >= 0) out->bos = model->bos_id();
  if (model->eos_id() >= 0) out->eos = model->eos_id();
  if (const int32_t id = token_id(*out, settings.bos_token); id >= 0) out->bos = id;
  if (const int32_t id = token_id(*out, settings.eos_token); id >= 0) out->eos = id;
  if (settings.add_bos && out->bos) out->prefix.push_back(*out->bos);
  if (settings.add_eos && out->eos) out->suffix.push_back(*out->eos);
  return {};
}

void encode_pieces(const Tokenizer& tokenizer, std::string_view text, std::vector<int32_t>* ids) {
  std::vector<int> pieces;
  // Fails only for a model that is not loaded.
  if (!tokenizer.sentencepiece->Encode({text.data(), text.size()}, &pieces).ok()) return;
  ids->insert(ids->end(), pieces.begin(), pieces.end());
}

std::string decode_pieces(const Tokenizer& tokenizer, const std::vector<int>& ids, bool at_start) {
  std::string text;
  if (ids.empty()) return text;
  if (at_start || tokenizer.context_piece < 0) {
    return tokenizer.sentencepiece->Decode(ids, &text).ok() ? text : std::string();
  }
  // The library strips the space of the first token it sees; an earlier token takes that place, and is cut off again.
  std::vector<int> with_context{tokenizer.context_piece};
  with_context.insert(with_context.end(), ids.begin(), ids.end());
  if (!tokenizer.sentencepiece->Decode(with_context, &text).ok()) return {};
  return text.substr(tokenizer.sentencepiece->IdToPiece(tokenizer.context_piece).size());
}

bool is_byte_piece(const Tokenizer& tokenizer, int32_t id) {
  return id < piece_count(tokenizer) && tokenizer.sentencepiece->IsByte(id);
}

int32_t piece_count(const Tokenizer& tokenizer) { return tokenizer.sentencepiece->GetPieceSize(); }

int32_t piece_id(const Tokenizer& tokenizer, std::string_view piece) {
  const int id = tokenizer.sentencepiece->PieceToId({piece.data(), piece.size()});
  // The library answers with the unknown token where it has none.
  return id >= 0 && tokenizer.sentencepiece->IdToPiece(id) == piece ? id : -1;
}

std::string piece_text(const Tokenizer& tokenizer, int32_t id) {
  return id < 0 || id >= piece_count(tokenizer) ? "" : tokenizer.sentencepiece->IdToPiece(id);
}

}  // namespace pinion
