// Encoding: added tokens are split off first; the text between them goes through normaliser, pre-tokeniser and model.
#include "tokenizer/tokens/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <utility>

#include "loader/files/hints.h"
#include "loader/gguf/gguf_folder.h"
#include "tokenizer/tokens/tokenizer_internal.h"

namespace pinion {
namespace {

const AddedToken* find_added(const Tokenizer& tokenizer, int32_t id) {
  const auto found = tokenizer.added.find(id);
  return found == tokenizer.added.end() ? nullptr : &found->second;
}

// Tokens with `normalized` are searched in the normalised text, where normalisation may have made one. Guarded ones are
// therefore found earlier, in the text as given, and replaced by placeholders: private-use characters of plane 15 that
// do not occur in the text.
struct Placeholders {
  AddedTokenFinder spelled;  // finds the guarded tokens in the text as given
  std::unordered_map<int32_t, std::string> by_id;
  AddedTokenFinder normalized;  // finds the placeholders and the tokens that are not guarded in the normalised text
};

Placeholders make_placeholders(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options) {
  Placeholders result;
  const auto is_guarded = [&](int32_t id) { return std::ranges::find(options.guarded, id) != options.guarded.end(); };
  std::vector<AddedToken> normalized, spelled;
  std::ranges::copy_if(tokenizer.normalized_tokens.tokens, std::back_inserter(normalized),
                       [&](const AddedToken& token) { return !is_guarded(token.id); });
  if (normalized.size() == tokenizer.normalized_tokens.tokens.size()) return {{}, {}, tokenizer.normalized_tokens};
  char32_t next = 0xF0000;
  for (const auto& [content, id] : tokenizer.added_ids) {
    const AddedToken* token = find_added(tokenizer, id);
    if (token == nullptr || !token->normalized || !is_guarded(id) || text.find(content) == text.npos) continue;
    std::string placeholder;
    do {
      placeholder.clear();
      append_utf8(next++, &placeholder);
    } while (text.find(placeholder) != text.npos);
    spelled.push_back({.content = content, .id = id});
    normalized.push_back(*token);
    normalized.back().content = placeholder;
    result.by_id[id] = std::move(placeholder);
  }
  result.spelled = make_finder(std::move(spelled));
  result.normalized = make_finder(std::move(normalized));
  return result;
}

std::string put_placeholders(const Placeholders& placeholders, std::string_view text) {
  std::string result;
  for (const TextRun& run : split_added(placeholders.spelled, text, true)) {
    result += run.id >= 0 ? std::string_view(placeholders.by_id.at(run.id)) : run.text;
  }
  return result;
}

Error too_long(int64_t max_tokens) { return error("too long", "text", at_most(max_tokens) + " tokens"); }

// The state of encoding one text.
struct Encoding {
  const Tokenizer& tokenizer;
  const EncodeOptions& options;
  Placeholders placeholders;
  RegexFinder regex_finder;
  BpeScratch scratch = {};
  std::vector<int32_t>* ids;
};

// Encodes text between tokens that match in the raw text.
Error encode_text(Encoding& encoding, std::string_view text, bool at_start) {
  const Pipeline& pipeline = encoding.tokenizer.pipeline;
  const EncodeOptions& options = encoding.options;
  NormalizedText whole{put_placeholders(encoding.placeholders, text), at_start};
  if (Error e = normalize(pipeline, encoding.regex_finder, &whole)) return e;
  const auto on_word = [&](std::string_view word) {
    encode_word(encoding.tokenizer.bpe, word, &encoding.scratch, encoding.ids);
    return std::ssize(*encoding.ids) > options.max_tokens ? too_long(options.max_tokens) : Error{};
  };
  for (const TextRun& run : split_added(encoding.placeholders.normalized, whole.text, options.parse_special)) {
    if (run.id >= 0) {
      encoding.ids->push_back(run.id);
      continue;
    }
    const bool is_first = whole.at_start && run.text.data() == whole.text.data();
    const std::string plain = unescaped(run.text, options.escapes);
    if (Error e = pre_tokenize(pipeline, plain, is_first, encoding.regex_finder, on_word)) return e;
  }
  return {};
}

bool is_kept(const Tokenizer& tokenizer, int32_t id, bool skip_special) {
  return !token_text(tokenizer, id).empty() && !(skip_special && is_special(tokenizer, id));
}

// Added tokens give their content; sentencepiece decodes the runs of pieces between them.
std::string decode_runs(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool at_start) {
  std::string text;
  std::vector<int> run;
  const auto end_run = [&] {
    text += decode_pieces(tokenizer, run, at_start && text.empty());
    run.clear();
  };
  for (const int32_t id : ids) {
    if (const AddedToken* added = find_added(tokenizer, id)) {
      end_run();
      text += added->content;
    } else {
      run.push_back(id);
    }
  }
  end_run();
  return text;
}

// `ids`: filtered by is_kept().
std::string decode_kept(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool at_start) {
  if (tokenizer.sentencepiece) return decode_runs(tokenizer, ids, at_start);
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) tokens.push_back(token_text(tokenizer, id));
  return decode_tokens(tokenizer.pipeline, std::move(tokens), at_start);
}

bool may_cut_after(const Tokenizer& tokenizer, int32_t id) {
  if (tokenizer.sentencepiece) return !is_byte_piece(tokenizer, id);
  return can_end_at(tokenizer.pipeline, token_text(tokenizer, id));
}

Error load_file(const std::filesystem::path& file, const TokenizerSettings& settings, Tokenizer* out) {
  const std::string where = file.string();
  std::string bytes;
  if (Error e = read_model_text(file.parent_path(), file.filename().string(), kMaxJsonBytes, &bytes)) return e;
  if (const std::string_view kind = foreign_content(bytes); !kind.empty()) return error(std::string(kind), where);
  if (file.filename() == "tokenizer.json") return load_tokenizer_json(bytes, where, out);
  if (file.filename() == "tekken.json") return load_tekken(bytes, where, settings, out);
  return is_rank_list(bytes) ? load_rank_list(bytes, where, settings, out)
                             : load_sentencepiece(bytes, where, settings, out);
}

}  // namespace

Error add_tokens(const std::vector<AddedToken>& tokens, const std::string& where, Tokenizer* out) {
  std::map<std::string, AddedToken> joined;
  for (const AddedToken& token : tokens) {
    AddedToken& entry = joined.try_emplace(token.content, token).first->second;
    if (entry.id < 0) entry.id = token.id;
    entry.special |= token.special;
  }
  joined.erase("");
  std::vector<AddedToken> raw;
  for (auto& [content, added] : joined) {
    if (added.id < 0) added.id = token_id(*out, content);
    if (added.id < 0) continue;  // no file gives an id
    if (added.id >= kMaxVocabSize) return error("token id is too large", where, {}, added.id);
    out->size = std::max(out->size, added.id + 1);
    out->added_ids.emplace(content, added.id);
    out->added.insert_or_assign(added.id, added);
    raw.push_back(std::move(added));
  }
  out->raw_tokens = make_finder(std::move(raw));
  return {};
}

std::filesystem::path tokenizer_file(const std::string& model) {
  for (const char* name : {"tokenizer.json", "tekken.json", "tokenizer.model"}) {
    if (has_model_text(model, name)) return std::filesystem::path(model) / name;
  }
  return {};
}

Error load_tokenizer(const std::string& model, std::shared_ptr<const Tokenizer>* out) {
  const std::filesystem::path file = tokenizer_file(model);
  if (file.empty()) return error("no tokenizer", model, "tokenizer.json, tekken.json or tokenizer.model");
  TokenizerSettings settings;
  if (Error e = read_settings(model, &settings)) return e;
  const auto tokenizer = std::make_shared<Tokenizer>();
  if (Error e = load_file(file, settings, tokenizer.get())) return e;
  tokenizer->file = file.string();
  if (const int32_t id = token_id(*tokenizer, settings.bos_token); id >= 0) tokenizer->bos = id;
  if (const int32_t id = token_id(*tokenizer, settings.eos_token); id >= 0) tokenizer->eos = id;
  if (tokenizer->eos) tokenizer->ends.push_back(*tokenizer->eos);
  for (const std::string& token : settings.eos_tokens) {
    if (const int32_t id = token_id(*tokenizer, token); id >= 0) tokenizer->ends.push_back(id);
  }
  // tokenizer.json lists the tokens around a text itself (read_template_processing).
  if (file.filename() != "tokenizer.json") {
    if (settings.add_bos && tokenizer->bos) tokenizer->prefix.push_back(*tokenizer->bos);
    if (settings.add_eos && tokenizer->eos) tokenizer->suffix.push_back(*tokenizer->eos);
  }
  for (int32_t id = 0; id < tokenizer->size; ++id) {
    tokenizer->longest_token_bytes = std::max(tokenizer->longest_token_bytes, token_text(*tokenizer, id).size());
  }
  *out = tokenizer;
  return {};
}

Error encode(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options,
             std::vector<int32_t>* out) {
  out->clear();
  // Refuses a text that is certainly too long before encoding it: a token covers at most longest_token_bytes. (More
  // only if it strips white space, or normalisation shortens the text; such a text may be refused although it fits.)
  const size_t least = text.size() / tokenizer.longest_token_bytes;
  if (std::cmp_greater(least, options.max_tokens)) return too_long(options.max_tokens);
  if (options.add_special) *out = tokenizer.prefix;
  const std::string clean = to_utf8(text);
  Encoding encoding{tokenizer, options, make_placeholders(tokenizer, clean, options), RegexFinder(clean.size()),
                    {},        out};
  for (const TextRun& run : split_added(tokenizer.raw_tokens, clean, options.parse_special)) {
    if (run.id >= 0) {
      out->push_back(run.id);
    } else if (tokenizer.sentencepiece) {
      encode_pieces(tokenizer, run.text, options, out);
    } else if (Error e = encode_text(encoding, run.text, run.text.data() == clean.data())) {
      return e;
    }
  }
  if (options.add_special) out->insert(out->end(), tokenizer.suffix.begin(), tokenizer.suffix.end());
  return std::ssize(*out) > options.max_tokens ? too_long(options.max_tokens) : Error{};
}

std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool skip_special) {
  std::vector<int32_t> kept;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(kept),
               [&](int32_t id) { return is_kept(tokenizer, id, skip_special); });
  return decode_kept(tokenizer, kept, true);
}

IncrementalDecoder::IncrementalDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special, bool at_start)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special), begins_text_(at_start), at_start_(at_start) {}

std::string IncrementalDecoder::put(int32_t id) {
  if (!is_kept(*tokenizer_, id, skip_special_)) return {};
  pending_.push_back(id);
  if (!may_cut_after(*tokenizer_, id)) return {};
  std::string text = decode_kept(*tokenizer_, pending_, at_start_);
  // While there is no text, the next token still stands at the start, where decoders strip it.
  if (text.ends_with(kReplacement) || (at_start_ && text.empty())) return {};
  pending_.clear();
  at_start_ = false;
  return text;
}

std::string IncrementalDecoder::finish() {
  std::string text = decode_kept(*tokenizer_, pending_, at_start_);
  pending_.clear();
  at_start_ = begins_text_;
  return text;
}

int32_t token_id(const Tokenizer& tokenizer, std::string_view token) {
  if (token.empty()) return -1;  // the name of a token that a file does not have
  if (const auto found = tokenizer.added_ids.find(token); found != tokenizer.added_ids.end()) return found->second;
  return tokenizer.bpe.tokens.find(token);
}

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  if (const AddedToken* added = find_added(tokenizer, id)) return added->content;
  return std::string(tokenizer.bpe.tokens.text(id));
}

std::string token_bytes(const Tokenizer& tokenizer, int32_t id) {
  if (find_added(tokenizer, id)) return {};
  if (tokenizer.sentencepiece) return piece_bytes(tokenizer, id);
  const std::string token = token_text(tokenizer, id);
  return token.empty() ? token : bytes_of_token(tokenizer.pipeline, token);
}

std::optional<int32_t> bos_id(const Tokenizer& tokenizer) { return tokenizer.bos; }
std::optional<int32_t> eos_id(const Tokenizer& tokenizer) { return tokenizer.eos; }
std::span<const int32_t> end_ids(const Tokenizer& tokenizer) { return tokenizer.ends; }
int32_t vocab_size(const Tokenizer& tokenizer) { return tokenizer.size; }

Error check_ids(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  const auto outside = std::ranges::find_if(ids, [&](int32_t id) { return id < 0 || id >= tokenizer.size; });
  if (outside == ids.end()) return {};
  return error("outside the vocabulary", "token id", "0 to " + std::to_string(tokenizer.size - 1), *outside);
}

Error check_rows(const Tokenizer& tokenizer, int64_t rows, std::span<const int32_t> ids) {
  const auto id = std::ranges::find_if(ids, [&](int32_t i) { return i >= rows; });
  if (id == ids.end()) return {};
  return error("token has no embedding row", tokenizer.file + ": \"" + token_text(tokenizer, *id) + "\"",
               "an id below " + std::to_string(rows) + ", config.json's vocab_size", *id);
}

Error check_rows(const Tokenizer& tokenizer, int64_t rows) {
  if (Error e = check_rows(tokenizer, rows, tokenizer.prefix)) return e;
  if (Error e = check_rows(tokenizer, rows, tokenizer.suffix)) return e;
  for (auto id = static_cast<int32_t>(std::min<int64_t>(rows, tokenizer.size)); id < tokenizer.size; ++id) {
    if (token_text(tokenizer, id).empty() || tokenizer.added.contains(id)) continue;
    return check_rows(tokenizer, rows, {&id, 1});
  }
  return {};
}

std::vector<AddedToken> special_tokens(const Tokenizer& tokenizer, std::string_view template_text) {
  std::vector<AddedToken> tokens;
  const auto is_in_template = [&](const std::string& content) {
    return template_text.find(content) != template_text.npos && !strip(content, true, false, is_white_space).empty();
  };
  for (const auto& [id, token] : tokenizer.added) {
    if (token.special || is_in_template(token.content)) tokens.push_back(token);
  }
  for (int32_t id = 0; std::cmp_less(id, tokenizer.user_defined.size()); ++id) {
    if (!tokenizer.user_defined[id] || tokenizer.added.contains(id)) continue;
    if (std::string content = token_text(tokenizer, id); is_in_template(content)) {
      tokens.push_back({.content = std::move(content), .id = id});
    }
  }
  return tokens;
}

bool is_special(const Tokenizer& tokenizer, int32_t id) {
  const AddedToken* added = find_added(tokenizer, id);
  return added != nullptr && added->special;
}

bool has_text(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  constexpr size_t kFew = 16;  // almost always contain text, so the whole prompt need not be decoded
  return !decode(tokenizer, ids.first(std::min(ids.size(), kFew))).empty() || !decode(tokenizer, ids).empty();
}

}  // namespace pinion
