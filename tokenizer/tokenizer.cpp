// See tokenizer.h. Encoding: added tokens are cut out first, then the text between goes through normaliser,
// pre-tokeniser and model.
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tokenizer/parts.h"

namespace pinion {
namespace {

// Also false when the file is a folder or cannot be read.
bool read_file(const std::filesystem::path& path, std::string* out) {
  std::ifstream file(path, std::ios::binary);
  out->assign(std::istreambuf_iterator<char>(file), {});
  return file.good() || (file.eof() && !file.bad());
}

Error read_json(const std::filesystem::path& path, Json* out) {
  std::string text;
  if (!read_file(path, &text)) return error("cannot be read", path.string());
  return parse_json(text, path.string(), out, {.duplicate_keys = true});
}

// A token of a settings file: "text", or {"content": "text", ...}. Empty when absent.
std::string setting_token(JsonFields& settings, std::string_view name) {
  const Json* value = settings.find(name);
  if (value == nullptr || !value->is_object()) return settings.text(name, "");
  return settings.fields(name).text("content", "");
}

// Every added token of the settings, its flags and id where the file gives them.
void read_added_settings(JsonFields& config, TokenizerSettings* out) {
  const Json* decoder = config.find("added_tokens_decoder");
  if (decoder == nullptr || !decoder->is_object()) return;
  for (const auto& [key, value] : decoder->items()) {
    JsonFields fields{value, config.where + ": added_tokens_decoder: " + key};
    AddedToken token{.content = fields.text("content")};
    token.lstrip = fields.boolean("lstrip", false);
    token.rstrip = fields.boolean("rstrip", false);
    token.single_word = fields.boolean("single_word", false);
    token.special = fields.boolean("special", false);
    const bool is_id = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!is_id) fields.fail("id", "wrong type", "an integer");
    if (is_id) token.id = std::stoi(key);
    if (!config.error) config.error = fields.error;
    out->added.push_back(std::move(token));
  }
}

constexpr const char* kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "pad_token"};

void read_special_settings(JsonFields& config, TokenizerSettings* out) {
  for (const char* name : kSpecialNames) {
    out->added.push_back({.content = setting_token(config, name), .special = true});
  }
  const Json* more = config.find("additional_special_tokens");
  if (more == nullptr || !more->is_array()) return;
  for (const Json& item : *more) {
    const Json entry = {{"token", item}};
    JsonFields fields{entry, config.where + ": additional_special_tokens"};
    out->added.push_back({.content = setting_token(fields, "token"), .special = true});
    if (!config.error) config.error = fields.error;
  }
}

// Nothing is read twice: what an earlier file says rules.
Error read_settings(const std::filesystem::path& folder, TokenizerSettings* out) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::filesystem::path path = folder / name;
    std::error_code missing;
    if (!std::filesystem::exists(path, missing)) continue;
    Json json;
    if (Error e = read_json(path, &json)) return e;
    JsonFields config{json, path.string()};
    if (out->bos_token.empty()) out->bos_token = setting_token(config, "bos_token");
    if (out->eos_token.empty()) out->eos_token = setting_token(config, "eos_token");
    out->add_bos = config.boolean("add_bos_token", out->add_bos);
    out->add_eos = config.boolean("add_eos_token", out->add_eos);
    read_added_settings(config, out);
    read_special_settings(config, out);
    if (config.error) return config.error;
  }
  return {};
}

// added_tokens.json, which older sentencepiece folders have: {"token": id}.
Error read_added_file(const std::filesystem::path& path, TokenizerSettings* out) {
  std::error_code missing;
  if (!std::filesystem::exists(path, missing)) return {};
  Json json;
  if (Error e = read_json(path, &json)) return e;
  JsonFields file{json, path.string()};
  if (!json.is_object()) return error("wrong type", path.string(), "an object", brief(json));
  for (const auto& [content, value] : json.items()) {
    out->added.push_back(
        {.content = content, .id = static_cast<int32_t>(file.integer(content, {}, 0, kMostTokens - 1))});
  }
  return file.error;
}

const AddedToken* find_added(const Tokenizer& tokenizer, int32_t id) {
  const auto found = tokenizer.added.find(id);
  return found == tokenizer.added.end() ? nullptr : &found->second;
}

std::optional<int32_t> setting_id(const Tokenizer& tokenizer, const std::string& token) {
  const int32_t id = token.empty() ? -1 : token_id(tokenizer, token);
  return id < 0 ? std::nullopt : std::optional(id);
}

// Text between added tokens of the raw kind.
void encode_text(const Tokenizer& tokenizer, TextPiece piece, bool parse_special, BpeScratch* scratch,
                 std::vector<int32_t>* ids) {
  const TextPiece whole = normalize(tokenizer.pipeline, std::move(piece));
  for (const TextPart& part : split_added(tokenizer.normalized_tokens, whole.text, parse_special)) {
    if (part.id >= 0) {
      ids->push_back(part.id);
      continue;
    }
    const bool at_start = whole.at_start && part.text.data() == whole.text.data();
    for (const TextPiece& word : pre_tokenize(tokenizer.pipeline, {std::string(part.text), at_start})) {
      encode_word(tokenizer.bpe, word.text, scratch, ids);
    }
  }
}

bool is_kept(const Tokenizer& tokenizer, int32_t id, bool skip_special) {
  return !token_text(tokenizer, id).empty() && !(skip_special && is_special(tokenizer, id));
}

// Sentencepiece decodes the runs between added tokens.
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

// `ids` are kept ones.
std::string decode_part(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool at_start) {
  if (tokenizer.sentencepiece) return decode_runs(tokenizer, ids, at_start);
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) tokens.push_back(token_text(tokenizer, id));
  return decode_tokens(tokenizer.pipeline, std::move(tokens), at_start);
}

bool may_cut_after(const Tokenizer& tokenizer, int32_t last_id, std::string_view text) {
  if (tokenizer.sentencepiece) return !is_byte_piece(tokenizer, last_id);
  return is_settled(tokenizer.pipeline, text, token_text(tokenizer, last_id));
}

}  // namespace

Error load_tokenizer(const std::string& folder, std::shared_ptr<const Tokenizer>* out) {
  TokenizerSettings settings;
  if (Error e = read_settings(folder, &settings)) return e;
  const auto tokenizer = std::make_shared<Tokenizer>();
  const std::filesystem::path json = std::filesystem::path(folder) / "tokenizer.json";
  const std::filesystem::path model = std::filesystem::path(folder) / "tokenizer.model";
  std::string bytes;
  std::error_code missing;
  if (std::filesystem::exists(json, missing)) {
    if (!read_file(json, &bytes)) return error("cannot be read", json.string());
    if (Error e = load_tokenizer_json(bytes, json.string(), tokenizer.get())) return e;
  } else if (std::filesystem::exists(model, missing)) {
    if (!read_file(model, &bytes)) return error("cannot be read", model.string());
    if (Error e = read_added_file(std::filesystem::path(folder) / "added_tokens.json", &settings)) return e;
    if (Error e = load_sentencepiece(bytes, model.string(), settings, tokenizer.get())) return e;
  } else {
    return error("no tokenizer", folder, "tokenizer.json or tokenizer.model");
  }
  if (!settings.bos_token.empty()) tokenizer->bos = setting_id(*tokenizer, settings.bos_token);
  if (!settings.eos_token.empty()) tokenizer->eos = setting_id(*tokenizer, settings.eos_token);
  *out = tokenizer;
  return {};
}

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options) {
  std::vector<int32_t> ids;
  if (options.add_special) ids = tokenizer.prefix;
  const std::string clean = to_utf8(text);
  BpeScratch scratch;
  for (const TextPart& part : split_added(tokenizer.raw_tokens, clean, options.parse_special)) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    } else if (tokenizer.sentencepiece) {
      encode_pieces(tokenizer, part.text, &ids);
    } else {
      const bool at_start = part.text.data() == clean.data();
      encode_text(tokenizer, {std::string(part.text), at_start}, options.parse_special, &scratch, &ids);
    }
  }
  if (options.add_special) ids.insert(ids.end(), tokenizer.suffix.begin(), tokenizer.suffix.end());
  return ids;
}

std::string decode(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool skip_special) {
  std::vector<int32_t> kept;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(kept),
               [&](int32_t id) { return is_kept(tokenizer, id, skip_special); });
  return decode_part(tokenizer, kept, true);
}

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string StreamDecoder::put(int32_t id) {
  if (!is_kept(*tokenizer_, id, skip_special_)) return {};
  pending_.push_back(id);
  std::string text = decode_part(*tokenizer_, pending_, at_start_);
  // Until there is text, what is stripped at its start may still be to come.
  if ((at_start_ && text.empty()) || !may_cut_after(*tokenizer_, id, text)) return {};
  pending_.clear();
  at_start_ = false;
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = decode_part(*tokenizer_, pending_, at_start_);
  pending_.clear();
  at_start_ = true;
  return text;
}

int32_t token_id(const Tokenizer& tokenizer, std::string_view token) {
  if (const auto found = tokenizer.added_ids.find(token); found != tokenizer.added_ids.end()) return found->second;
  if (tokenizer.sentencepiece) return piece_id(tokenizer, token);
  const auto found = tokenizer.bpe.ids.find(token);
  return found == tokenizer.bpe.ids.end() ? -1 : found->second;
}

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  if (const AddedToken* added = find_added(tokenizer, id)) return added->content;
  if (tokenizer.sentencepiece) return piece_text(tokenizer, id);
  return id < 0 || static_cast<size_t>(id) >= tokenizer.bpe.tokens.size() ? "" : tokenizer.bpe.tokens[id];
}

std::optional<int32_t> bos_id(const Tokenizer& tokenizer) { return tokenizer.bos; }

std::optional<int32_t> eos_id(const Tokenizer& tokenizer) { return tokenizer.eos; }

int32_t vocab_size(const Tokenizer& tokenizer) { return tokenizer.size; }

bool is_special(const Tokenizer& tokenizer, int32_t id) {
  const AddedToken* added = find_added(tokenizer, id);
  return added != nullptr && added->special;
}

}  // namespace pinion
