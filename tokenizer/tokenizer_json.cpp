// Reads tokenizer.json: the BPE model, the added tokens, what surrounds every text. "truncation" and "padding" are
// left aside: they describe one way of calling, not the tokenizer.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tokenizer/parts.h"

namespace pinion {
namespace {

constexpr char kHexDigits[] = "0123456789ABCDEF";

// Fields that change what a word becomes in ways not implemented here.
Error refuse_variants(JsonFields& model) {
  const std::string type = model.text("type", "BPE");
  if (model.error) return model.error;
  if (type != "BPE") return error("model type is not supported", model.where, "\"BPE\"", "\"" + type + "\"");
  if (model.number("dropout", 0.0) != 0.0) return error("dropout is not supported", model.where);
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text(name, "").empty()) return error(std::string(name) + " is not supported", model.where);
  }
  return model.error;
}

Error read_vocabulary(JsonFields& model, BpeModel* bpe) {
  const Json* vocabulary = model.find("vocab");
  if (vocabulary == nullptr || !vocabulary->is_object()) model.fail("vocab", "missing or wrong type", "an object");
  if (model.error) return model.error;
  if (vocabulary->empty()) return error("no tokens", model.where + ": vocab");
  bpe->ids.reserve(vocabulary->size());
  JsonFields entries{*vocabulary, model.where + ": vocab"};
  for (const auto& [token, value] : vocabulary->items()) {
    if (!value.is_number_integer() || value < 0 || value >= kMostTokens) {
      return error("bad token id", entries.where + ": " + brief(token),
                   "an integer from 0 to " + std::to_string(kMostTokens - 1), brief(value));
    }
    const auto id = value.get<int32_t>();
    bpe->ids.emplace(token, id);
    if (static_cast<size_t>(id) >= bpe->tokens.size()) bpe->tokens.resize(static_cast<size_t>(id) + 1);
    bpe->tokens[id] = token;
  }
  return {};
}

// A merge is "left right", or since 2024 ["left", "right"], which lets tokens hold spaces.
bool read_merge(const Json& merge, std::string* left, std::string* right) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    *left = merge[0].get<std::string>();
    *right = merge[1].get<std::string>();
    return true;
  }
  if (!merge.is_string()) return false;
  const auto& text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) return false;
  *left = text.substr(0, space);
  *right = text.substr(space + 1);
  return true;
}

bool is_version_line(const Json& merge) {
  return merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version");
}

Error read_merges(JsonFields& model, BpeModel* bpe) {
  const Json* merges = model.find("merges");
  if (merges == nullptr || !merges->is_array()) model.fail("merges", "missing or wrong type", "a list");
  if (model.error) return model.error;
  bpe->merges.reserve(merges->size());
  int32_t rank = 0;
  std::string left, right;
  for (const Json& merge : *merges) {
    if (is_version_line(merge)) continue;
    const std::string where = model.where + ": merges: " + std::to_string(rank);
    if (!read_merge(merge, &left, &right)) return error("bad merge", where, "two tokens", brief(merge));
    const auto a = bpe->ids.find(left), b = bpe->ids.find(right), joined = bpe->ids.find(left + right);
    if (a == bpe->ids.end() || b == bpe->ids.end() || joined == bpe->ids.end()) {
      return error("merge of tokens that are not in the vocabulary", where, {}, brief(merge));
    }
    bpe->merges.insert_or_assign(merge_key(a->second, b->second), Merge{rank++, joined->second});
  }
  return {};
}

Error read_model(JsonFields model, BpeModel* bpe) {
  if (Error e = refuse_variants(model)) return e;
  bpe->fuse_unknown = model.boolean("fuse_unk", false);
  bpe->ignore_merges = model.boolean("ignore_merges", false);
  const bool byte_fallback = model.boolean("byte_fallback", false);
  const std::string unknown = model.text("unk_token", "");
  if (Error e = read_vocabulary(model, bpe)) return e;
  if (Error e = read_merges(model, bpe)) return e;
  find_cuts(bpe);
  if (const auto found = bpe->ids.find(unknown); found != bpe->ids.end()) bpe->unknown_id = found->second;
  for (int byte = 0; byte_fallback && byte < 256; ++byte) {
    const std::string name = {'<', '0', 'x', kHexDigits[byte / 16], kHexDigits[byte % 16], '>'};
    if (const auto found = bpe->ids.find(name); found != bpe->ids.end()) bpe->byte_ids[byte] = found->second;
  }
  return model.error;
}

AddedToken read_added_token(JsonFields& fields) {
  AddedToken token;
  token.content = fields.text("content");
  token.single_word = fields.boolean("single_word", false);
  token.lstrip = fields.boolean("lstrip", false);
  token.rstrip = fields.boolean("rstrip", false);
  token.special = fields.boolean("special", false);
  token.normalized = fields.boolean("normalized", !token.special);
  return token;
}

// The reference goes by the vocabulary, then by the order of the list; the file's "id" only repeats that.
Error read_added_tokens(JsonFields& file, Tokenizer* out) {
  const Json* list = file.find("added_tokens");
  if (list == nullptr) return file.error;
  if (!list->is_array()) file.fail("added_tokens", "wrong type", "a list", brief(*list));
  if (file.error) return file.error;
  RegexFinder finder(0);
  auto next_id = static_cast<int32_t>(out->bpe.ids.size());
  for (const Json& item : *list) {
    JsonFields fields{item, file.where + ": added_tokens"};
    AddedToken token = read_added_token(fields);
    if (fields.error) return fields.error;
    if (token.content.empty()) continue;
    const int32_t known = token_id(*out, token.content);
    token.id = known >= 0 ? known : next_id++;
    if (token.id >= kMostTokens) return error("too many tokens", fields.where);
    out->added_ids.insert_or_assign(token.content, token.id);
    if (token.normalized) {
      TextPiece piece{token.content, true};
      if (Error e = normalize(out->pipeline, finder, &piece)) return e;
      token.content = std::move(piece.text);
    }
    out->size = std::max(out->size, token.id + 1);
    out->added.insert_or_assign(token.id, std::move(token));
  }
  std::vector<AddedToken> raw, normalized;
  for (const auto& [id, token] : out->added) (token.normalized ? normalized : raw).push_back(token);
  out->raw_tokens = make_finder(std::move(raw));
  out->normalized_tokens = make_finder(std::move(normalized));
  return {};
}

// "single": a list of {"Sequence": {"id": "A"}} (the text, exactly once) and {"SpecialToken": {"id": NAME}}, whose ids
// are in "special_tokens". A later processor's tokens go around an earlier one's.
Error read_template(JsonFields& fields, Tokenizer* out) {
  const Json* single = fields.find("single");
  if (single == nullptr || !single->is_array()) fields.fail("single", "missing or wrong type", "a list");
  if (fields.error) return fields.error;
  JsonFields special_tokens = fields.fields("special_tokens");
  std::vector<int32_t> before, after;
  int texts = 0;
  for (const Json& item : *single) {
    JsonFields part{item, fields.where + ": single"};
    if (part.has("Sequence")) {
      if (part.fields("Sequence").text("id") != "A") return error("template uses a second text", part.where);
      ++texts;
      continue;
    }
    const std::string name = part.fields("SpecialToken").text("id");
    JsonFields token = special_tokens.fields(name);
    if (!token.has("ids")) token.fail("ids", "missing field");
    const auto ids = token.integers("ids", 0, kMostTokens - 1);
    if (token.error) return token.error;
    (texts == 0 ? before : after).insert((texts == 0 ? before : after).end(), ids.begin(), ids.end());
  }
  if (texts != 1) return error("template must hold the text once", fields.where + ": single");
  out->prefix.insert(out->prefix.begin(), before.begin(), before.end());
  out->suffix.insert(out->suffix.end(), after.begin(), after.end());
  return {};
}

Error read_post_processor(const Json& json, const std::string& where, Tokenizer* out) {
  JsonFields fields{json, where};
  const std::string type = fields.text("type");
  if (fields.error) return fields.error;
  if (type == "ByteLevel") return {};  // moves offsets, not ids
  if (type == "TemplateProcessing") return read_template(fields, out);
  if (type != "Sequence") return error("component is not supported", where, {}, "\"" + type + "\"");
  const Json* list = fields.find("processors");
  if (list == nullptr || !list->is_array()) return error("missing or wrong type", where + ": processors", "a list");
  for (const Json& member : *list) {
    if (Error e = read_post_processor(member, where, out)) return e;
  }
  return {};
}

}  // namespace

Error load_tokenizer_json(std::string_view text, const std::string& where, Tokenizer* out) {
  Json json;
  if (Error e = parse_json(text, where, &json, {.duplicate_keys = true})) return e;
  JsonFields file{json, where};
  if (const Json* part = file.find("normalizer")) {
    if (Error e = read_normalizer(*part, where + ": normalizer", &out->pipeline.normalizers)) return e;
  }
  if (const Json* part = file.find("pre_tokenizer")) {
    if (Error e = read_pre_tokenizer(*part, where + ": pre_tokenizer", &out->pipeline.pre_tokenizers)) return e;
  }
  if (const Json* part = file.find("decoder")) {
    if (Error e = read_decoder(*part, where + ": decoder", &out->pipeline.decoders)) return e;
  }
  out->pipeline.spaced = !file.has("decoder");
  if (Error e = read_model(file.fields("model"), &out->bpe)) return e;
  out->size = static_cast<int32_t>(out->bpe.tokens.size());
  if (Error e = read_added_tokens(file, out)) return e;
  if (const Json* part = file.find("post_processor")) {
    return read_post_processor(*part, where + ": post_processor", out);
  }
  return file.error;
}

}  // namespace pinion
