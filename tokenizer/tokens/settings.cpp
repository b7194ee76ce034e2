#include "tokenizer/tokens/settings.h"

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "pad_token"};

// "added_tokens_decoder": {"ID": {"content": "text", flags}}.
void read_decoder_tokens(JsonFields& config, TokenizerSettings* out) {
  JsonFields decoder = config.fields("added_tokens_decoder");
  for (const auto& [key, value] : decoder.object.items()) {
    JsonFields fields{value, decoder.where + ": " + key, {}, {}, &config};
    AddedToken token = read_added_token(fields);
    const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (code != std::errc() || end != key.data() + key.size() || token.id < 0) fields.fail("id", "not a number");
    out->added.push_back(std::move(token));
  }
}

void read_named_tokens(JsonFields& config, TokenizerSettings* out) {
  auto& added = out->added;
  for (const char* name : kSpecialTokens) added.push_back({.content = setting_token(config, name), .special = true});
  const Json* more = config.find("additional_special_tokens");
  if (more == nullptr || !more->is_array()) return;
  for (const Json& item : *more) {
    const Json entry = {{"token", item}};
    JsonFields fields{entry, config.where + ": additional_special_tokens", {}, {}, &config};
    out->added.push_back({.content = setting_token(fields, "token"), .special = true});
  }
}

// Reads one settings file; tokens named in an earlier file take precedence.
Error read_tokenizer_config(const Json& json, const std::string& where, TokenizerSettings* out) {
  JsonFields config{json, where};
  if (out->bos_token.empty()) out->bos_token = setting_token(config, "bos_token");
  out->eos_tokens.push_back(setting_token(config, "eos_token"));
  if (out->eos_token.empty()) out->eos_token = out->eos_tokens.back();
  out->add_bos = config.boolean("add_bos_token", out->add_bos);
  out->add_eos = config.boolean("add_eos_token", out->add_eos);
  read_decoder_tokens(config, out);
  read_named_tokens(config, out);
  return config.error;
}

// added_tokens.json of older sentencepiece folders: {"text": id}.
Error read_added_tokens_json(const Json& json, const std::string& where, TokenizerSettings* out) {
  if (!json.is_object()) return error("wrong type", where, "an object", brief(json));
  JsonFields file{json, where};
  for (const auto& [content, value] : json.items()) {
    const auto id = static_cast<int32_t>(file.integer(content, {}, 0, std::numeric_limits<int32_t>::max()));
    out->added.push_back({.content = content, .id = id});
  }
  return file.error;
}

}  // namespace

AddedToken read_added_token(JsonFields& fields) {
  AddedToken token{.content = fields.text("content")};
  token.single_word = fields.boolean("single_word", false);
  token.lstrip = fields.boolean("lstrip", false);
  token.rstrip = fields.boolean("rstrip", false);
  token.special = fields.boolean("special", false);
  return token;
}

std::string setting_token(JsonFields& settings, std::string_view name) {
  const Json* value = settings.find(name);
  return value == nullptr || !value->is_object() ? settings.text(name, "") : settings.fields(name).text("content", "");
}

Error read_settings_file(const std::filesystem::path& model, const char* name, JsonLimits limits, Json* out) {
  *out = Json::object();
  if (!has_model_text(model, name)) return {};
  std::string text;
  if (Error e = read_model_text(model, name, kMaxJsonBytes, &text)) return e;
  return parse_json(text, (model / name).string(), out, limits);
}

Error read_settings(const std::filesystem::path& model, TokenizerSettings* out) {
  const auto read = [&](const char* name, auto* read_file) {
    Json json;
    Error e = read_settings_file(model, name, {.duplicate_keys = true}, &json);
    return e ? e : read_file(json, (model / name).string(), out);
  };
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (Error e = read(name, read_tokenizer_config)) return e;
  }
  return read("added_tokens.json", read_added_tokens_json);
}

}  // namespace pinion
