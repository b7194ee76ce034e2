// Reads tiktoken's byte-level BPE by rank: Mistral's tekken.json, and the tokenizer.model of Llama 3, a list of lines
// "BASE64 RANK". The files list no merges: two tokens merge if their joined bytes are a token, the lowest rank first.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/base/text.h"
#include "tokenizer/tokens/tokenizer_internal.h"

namespace pinion {
namespace {

// Every split of a token in two is looked up: time grows with the square of its length, memory with the splits into two
// tokens. Mistral's longest token has 76 bytes, and its file 269,443 such splits.
constexpr size_t kMaxTokenBytes = 512;
constexpr size_t kMaxMerges = 2'000'000;

// A list of ranks lacks the split pattern. Lists of later models look the same, are longer and split differently.
constexpr size_t kLlama3Tokens = 128'000;

// Llama 3's special tokens have the ids after the list: some names, then numbered names.
constexpr size_t kLlama3SpecialTokens = 256;
constexpr int kLlama3FirstNumber = 2;  // of the numbered names

// The special tokens of a format that does not list them.
std::vector<std::string> special_names(const char* format) { return kTokenizerData["special_tokens"][format]; }

constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool decode_base64(std::string_view text, std::string* bytes) {
  if (text.size() % 4 != 0) return false;
  for (int n = 0; n < 2 && text.ends_with('='); ++n) text.remove_suffix(1);
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = kBase64Digits.find(text[i]), place = i % 4;  // in a group, which holds three bytes
    if (digit == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (place > 0) *bytes += static_cast<char>(bits >> (6 - 2 * place) & 0xFF);
  }
  return true;
}

// `tokens`: by rank, in the alphabet of byte-level BPE; empty: not read yet. The caller sets Error::where.
Error set_token(std::string_view base64, int64_t rank, std::vector<std::string>* tokens) {
  std::string bytes;
  if (!decode_base64(base64, &bytes) || bytes.empty() || bytes.size() > kMaxTokenBytes) {
    return error("bad token", {}, "base64 of 1 to " + std::to_string(kMaxTokenBytes) + " bytes",
                 brief(std::string(base64)));
  }
  std::string& token = (*tokens)[rank];
  if (!token.empty()) return error("rank given twice", {}, {}, rank);
  token = bytes_to_chars(bytes);
  return {};
}

Error find_merges(const std::vector<std::string>& tokens, size_t first_id, const std::string& where, BpeModel* bpe) {
  const std::string most = at_most(kMaxMerges);
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string_view token = tokens[rank];
    const Merge merge{static_cast<int32_t>(rank), static_cast<int32_t>(first_id + rank)};
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if (!begins_character(token[cut])) continue;
      const int32_t left = bpe->tokens.find(token.substr(0, cut));
      if (left < 0) continue;
      const int32_t right = bpe->tokens.find(token.substr(cut));
      if (right >= 0) bpe->merges.insert(left, right, merge);
    }
    if (bpe->merges.size() > kMaxMerges) return error("too many merges", where, most);
  }
  return {};
}

// `tokens`: by rank, all set.
Error build_model(const std::vector<std::string>& tokens, size_t first_id, const std::string& where, BpeModel* bpe) {
  bpe->ignore_merges = true;
  size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  bpe->tokens.reserve(tokens.size(), bytes);
  bpe->merges.reserve(2 * tokens.size());  // about the number in known files
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    if (!bpe->tokens.set(tokens[rank], static_cast<int32_t>(first_id + rank))) {
      return error("token given twice", where, {}, brief(tokens[rank]));
    }
  }
  bpe->tokens.index_by_id();
  for (int byte = 0; byte < 256; ++byte) {
    const std::string token = bytes_to_chars(std::string{static_cast<char>(byte)});
    if (!bpe->tokens.contains(token)) return error("no token for byte " + std::to_string(byte), where);
  }
  return find_merges(tokens, first_id, where, bpe);
}

// Rust's \w: a class of Oniguruma's and the joiners.
std::string with_rust_words(const std::string& pattern) {
  const std::string kWords = "\\w\\u200C\\u200D";
  std::string out;
  int classes = 0;  // open ones
  for (std::string_view rest = pattern; !rest.empty();) {
    const std::string_view unit = rest.substr(0, rest.front() == '\\' ? 2 : 1);
    rest.remove_prefix(unit.size());
    if (unit == "[") ++classes;
    if (unit == "]" && classes > 0) --classes;
    if (unit == "\\w" || unit == "\\W") {
      out += unit == "\\w" && classes > 0 ? kWords : (unit == "\\w" ? "[" : "[^") + kWords + "]";
    } else {
      out += unit;
    }
  }
  return out;
}

// tiktoken's regular expressions are in Rust's dialect. It differs from Oniguruma's, which compile_regex() reads: ^ and
// $ do not match at line breaks, -- and ~~ are set operators, [:name:] is ASCII, and joiners are parts of words.
Error compile_rust_regex(const std::string& pattern, const std::string& where, Regex* out) {
  for (const std::string_view part : {"$", "--", "~~", "[:", "\\b", "\\B"}) {
    if (pattern.find(part) != std::string::npos) {
      return error("regular expression uses " + std::string(part) + ", which is not supported", where);
    }
  }
  for (size_t at = pattern.find('^'); at != std::string::npos; at = pattern.find('^', at + 1)) {
    if (at == 0 || pattern[at - 1] != '[') {
      return error("regular expression uses ^ outside the start of [ ], which is not supported", where);
    }
  }
  return compile_regex(with_rust_words(pattern), false, where, out);
}

Error build_pipeline(const std::string& pattern, const std::string& where, Pipeline* out) {
  Regex regex;
  if (Error e = compile_rust_regex(pattern, where, &regex)) return e;
  out->pre_tokenizers = {{.kind = PreTokenizer::Kind::kSplit, .pattern = regex}, {.kind = PreTokenizer::Kind::kBytes}};
  out->decoders = {{.kind = Decoder::Kind::kByteLevel}};
  return {};
}

// The token that the settings name, else the default one.
Error find_token(const Tokenizer& tokenizer, const std::string& named, const std::string& default_name,
                 const std::string& where, std::optional<int32_t>* out) {
  const std::string& name = named.empty() ? default_name : named;
  const int32_t id = token_id(tokenizer, name);
  if (id < 0) return error("no such token", where, {}, brief(name));
  *out = id;
  return {};
}

// `names`: of the special tokens, for consecutive ids from `first_id`. The settings may rename reserved ones.
Error add_special_tokens(const std::vector<std::string>& names, size_t first_id, const TokenizerSettings& settings,
                         const std::string& where, Tokenizer* out) {
  std::set<int32_t> renamed;
  for (const AddedToken& token : settings.added) renamed.insert(token.id);
  std::vector<AddedToken> tokens = settings.added;
  std::set<std::string_view> seen;
  for (const std::string& name : names) {
    const auto id = static_cast<int32_t>(first_id++);
    if (name.empty()) return error("special token without text", where, {}, id);
    if (!seen.insert(name).second) return error("special token given twice", where, {}, brief(name));
    if (!renamed.contains(id)) tokens.push_back({.content = name, .id = id, .special = true});
  }
  out->size = std::max(static_cast<int32_t>(first_id), out->bpe.tokens.highest_id() + 1);
  return add_tokens(tokens, where, out);
}

Error read_tekken_vocabulary(JsonFields& file, std::vector<std::string>* tokens) {
  const std::span<const Json> list = file.list("vocab");
  if (file.error) return file.error;
  if (list.size() < tokens->size()) return error("too few tokens", file.where + ": vocab", tokens->size(), list.size());
  // Files may list more tokens than default_vocab_size; the rest is unused.
  for (size_t i = 0; i < tokens->size(); ++i) {
    JsonFields fields{list[i], file.where + ": vocab: " + std::to_string(i)};
    const int64_t rank = fields.integer("rank", {}, 0, static_cast<int64_t>(tokens->size()) - 1);
    const std::string base64 = fields.text("token_bytes");
    if (fields.error) return fields.error;
    if (Error e = set_token(base64, rank, tokens)) return e.where = fields.where, e;
  }
  return {};
}

// Fills all of `names`; the file lists the first ones.
Error read_tekken_names(JsonFields& file, const std::string& version, std::vector<std::string>* names) {
  std::vector<std::string> listed;
  if (!file.has("special_tokens") && (version == "v3" || version == "v7")) {
    listed = special_names("tekken v7");
  } else {
    for (const Json& item : file.list("special_tokens")) {
      const std::string rank = std::to_string(listed.size());
      JsonFields fields{item, file.where + ": special_tokens: " + rank};
      fields.integer("rank", {}, std::ssize(listed), std::ssize(listed));
      listed.push_back(fields.text("token_str"));
      if (fields.error) return fields.error;
    }
    if (file.error) return file.error;
  }
  if (listed.size() > names->size()) {
    return error("too many tokens", file.where + ": special_tokens", at_most(names->size()), listed.size());
  }
  for (size_t i = listed.size(); i < names->size(); ++i) listed.push_back("<SPECIAL_" + std::to_string(i) + ">");
  *names = std::move(listed);
  return {};
}

// The caller sets Error::where.
Error read_rank_line(std::string_view line, std::vector<std::string>* tokens) {
  const size_t space = std::min(line.find(' '), line.size());
  const char* const end = line.data() + line.size();
  int64_t rank = -1;
  const auto read = std::from_chars(line.data() + std::min(space + 1, line.size()), end, rank);
  if (read.ec != std::errc() || read.ptr != end || rank < 0 || rank >= static_cast<int64_t>(tokens->size())) {
    return error("bad line", {}, "BASE64 RANK, ranks from 0 to " + std::to_string(tokens->size() - 1),
                 brief(std::string(line)));
  }
  return set_token(line.substr(0, space), rank, tokens);
}

}  // namespace

Error load_tekken(std::string_view text, const std::string& where, const TokenizerSettings& settings, Tokenizer* out) {
  Json json;
  if (Error e = parse_json(text, where, &json)) return e;
  JsonFields file{json, where};
  JsonFields config = file.fields("config");
  const int64_t specials = config.integer("default_num_special_tokens", {}, 1, kMaxVocabSize);
  const int64_t size = config.integer("default_vocab_size", {}, specials + 1, kMaxVocabSize);
  const std::string pattern = config.text("pattern"), version = config.text("version");
  if (config.error) return config.error;
  const auto first_id = static_cast<size_t>(specials);
  std::vector<std::string> tokens(size - specials), names(first_id);
  if (Error e = read_tekken_names(file, version, &names)) return e;
  if (Error e = read_tekken_vocabulary(file, &tokens)) return e;
  if (Error e = build_model(tokens, first_id, where + ": vocab", &out->bpe)) return e;
  if (Error e = build_pipeline(pattern, config.where + ": pattern", &out->pipeline)) return e;
  if (Error e = add_special_tokens(names, 0, settings, where + ": special_tokens", out)) return e;
  if (Error e = find_token(*out, settings.bos_token, "<s>", where, &out->bos)) return e;
  return find_token(*out, settings.eos_token, "</s>", where, &out->eos);
}

bool is_rank_list(std::string_view bytes) {
  return !bytes.empty() && kBase64Digits.find(bytes.front()) != std::string_view::npos;
}

Error load_rank_list(std::string_view bytes, const std::string& where, const TokenizerSettings& settings,
                     Tokenizer* out) {
  std::vector<std::string_view> lines;
  while (!bytes.empty()) {
    std::string_view line = bytes.substr(0, bytes.find('\n'));
    bytes.remove_prefix(std::min(line.size() + 1, bytes.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.push_back(line);
    if (lines.size() > kLlama3Tokens) {
      return error("not Llama 3's list of ranks", where, at_most(kLlama3Tokens) + " tokens");
    }
  }
  std::vector<std::string> tokens(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    if (Error e = read_rank_line(lines[i], &tokens)) return e.where = where + ": token " + std::to_string(i), e;
  }
  std::vector<std::string> names = special_names("Llama 3");
  for (int number = kLlama3FirstNumber; names.size() < kLlama3SpecialTokens; ++number) {
    names.push_back("<|reserved_special_token_" + std::to_string(number) + "|>");
  }
  if (Error e = build_model(tokens, 0, where, &out->bpe)) return e;
  if (Error e = build_pipeline(kTokenizerData["patterns"]["Llama 3"], where, &out->pipeline)) return e;
  if (Error e = add_special_tokens(names, tokens.size(), settings, where, out)) return e;
  if (Error e = find_token(*out, settings.bos_token, "<|begin_of_text|>", where, &out->bos)) return e;
  return find_token(*out, settings.eos_token, "<|end_of_text|>", where, &out->eos);
}

}  // namespace pinion
