// Reads tokenizer.json: BPE, added tokens, tokens around texts. "truncation" and "padding" are a call's options.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "configs/families.h"
#include "tokenizer/tokens/tokenizer_internal.h"

namespace pinion {
namespace {

// Refuses models and variants of BPE that are not implemented.
Error check_variants(JsonFields& model) {
  const std::string type = model.text("type", "BPE");
  if (model.error) return model.error;
  if (type != "BPE") return error("model type is not supported", model.where, "\"BPE\"", "\"" + type + "\"");
  if (model.number("dropout", 0.0) != 0.0) return error("dropout is not supported", model.where);
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text(name, "").empty()) return error(std::string(name) + " is not supported", model.where);
  }
  return model.error;
}

bool is_token_id(const FlatJson::Node& value) {
  return value.kind == FlatJson::Kind::kCount && value.at < static_cast<uint64_t>(kMaxVocabSize);
}

Error read_vocabulary(JsonFields& model, const FlatJson& vocabulary, BpeModel* bpe) {
  const Json* object = model.find("vocab");
  if (object == nullptr || !object->is_object()) model.fail("vocab", "missing or wrong type", "an object");
  if (model.error) return model.error;
  const std::string where = model.where + ": vocab";
  if (vocabulary.nodes[0].size == 0) return error("no tokens", where);
  bpe->tokens.reserve(vocabulary.nodes[0].size, vocabulary.texts.size());
  std::map<std::string_view, size_t> bad;  // nodes by token. A repeated token has its last id
  for (size_t key = 1; key < vocabulary.nodes.size(); key = vocabulary.next(key + 1)) {
    const std::string_view token = vocabulary.text(key);
    if (is_token_id(vocabulary.nodes[key + 1])) {
      bpe->tokens.set(token, static_cast<int32_t>(vocabulary.nodes[key + 1].at));
      bad.erase(token);
    } else {
      bad[token] = key + 1;
    }
  }
  bpe->tokens.index_by_id();
  if (bad.empty()) return {};
  const auto& [token, value] = *bad.begin();
  return error("bad token id", where + ": " + brief(std::string(token)),
               "an integer from 0 to " + std::to_string(kMaxVocabSize - 1), brief(vocabulary, value));
}

struct TokenPair {
  std::string_view left, right;
};

// A merge is "left right", or since 2024 ["left", "right"], which allows spaces in tokens.
std::optional<TokenPair> read_merge(const FlatJson& merges, size_t node) {
  const auto is_text = [&](size_t at) { return merges.nodes[at].kind == FlatJson::Kind::kText; };
  if (merges.nodes[node].kind == FlatJson::Kind::kList && merges.nodes[node].size == 2 && is_text(node + 1) &&
      is_text(node + 2)) {
    return TokenPair{merges.text(node + 1), merges.text(node + 2)};
  }
  if (!is_text(node)) return {};
  const std::string_view text = merges.text(node);
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) return {};
  return TokenPair{text.substr(0, space), text.substr(space + 1)};
}

// The id of the merged token, -1: none. `guess` is tried first, which saves most look-ups.
int32_t find_joined(const TokenTable& tokens, const TokenPair& pair, int32_t guess) {
  const std::string_view guessed = tokens.text(guess);
  const bool fits = guessed.size() == pair.left.size() + pair.right.size() && guessed.starts_with(pair.left) &&
                    guessed.ends_with(pair.right) && !guessed.empty();
  return fits ? guess : tokens.find(std::string(pair.left).append(pair.right));
}

Error read_merges(JsonFields& model, const FlatJson& merges, BpeModel* bpe) {
  model.list("merges");
  if (model.error) return model.error;
  bpe->merges.reserve(merges.nodes[0].size);
  int32_t rank = 0, joined = -1;
  for (size_t node = 1; node < merges.nodes.size(); node = merges.next(node)) {
    if (merges.nodes[node].kind == FlatJson::Kind::kText && merges.text(node).starts_with("#version")) continue;
    const auto where = [&] { return model.where + ": merges: " + std::to_string(rank); };
    const std::optional<TokenPair> pair = read_merge(merges, node);
    if (!pair) return error("bad merge", where(), "two tokens", brief(merges, node));
    const int32_t left = bpe->tokens.find(pair->left), right = bpe->tokens.find(pair->right);
    joined = find_joined(bpe->tokens, *pair, joined + 1);  // usually the next id
    if (left < 0 || right < 0 || joined < 0) {
      return error("merge of tokens that are not in the vocabulary", where(), {}, brief(merges, node));
    }
    const Merge merge{rank++, joined};
    *bpe->merges.insert(left, right, merge) = merge;
  }
  return {};
}

Error read_model(JsonFields model, const FlatJson& vocabulary, const FlatJson& merges, BpeModel* bpe) {
  if (Error e = check_variants(model)) return e;
  bpe->fuse_unknown = model.boolean("fuse_unk", false);
  bpe->ignore_merges = model.boolean("ignore_merges", false);
  const bool byte_fallback = model.boolean("byte_fallback", false);
  const std::string unknown = model.text("unk_token", "");
  if (Error e = read_vocabulary(model, vocabulary, bpe)) return e;
  if (Error e = read_merges(model, merges, bpe)) return e;
  find_cuts(bpe);
  if (!unknown.empty()) bpe->unknown_id = bpe->tokens.find(unknown);
  for (int byte = 0; byte_fallback && byte < 256; ++byte) {
    bpe->byte_ids[byte] = bpe->tokens.find(fallback_token(static_cast<char>(byte)));
  }
  return model.error;
}

// As in the reference, ids come from the vocabulary, then from the order of the list; the field "id" only repeats them.
Error read_added_tokens(JsonFields& file, Tokenizer* out) {
  const Json* list = file.find("added_tokens");
  if (list == nullptr) return file.error;
  if (!list->is_array()) file.fail("added_tokens", "wrong type", "a list", brief(*list));
  if (file.error) return file.error;
  RegexFinder finder(0);
  auto next_id = static_cast<int32_t>(out->bpe.tokens.size());
  for (const Json& item : *list) {
    JsonFields fields{item, file.where + ": added_tokens"};
    AddedToken token = read_added_token(fields);
    token.normalized = fields.boolean("normalized", !token.special);
    if (fields.error) return fields.error;
    if (token.content.empty()) continue;
    const int32_t known = token_id(*out, token.content);
    token.id = known >= 0 ? known : next_id++;
    if (token.id >= kMaxVocabSize) return error("too many tokens", fields.where);
    out->added_ids.insert_or_assign(token.content, token.id);
    if (token.normalized) {
      NormalizedText content{token.content, true};
      if (Error e = normalize(out->pipeline, finder, &content)) return e;
      token.content = std::move(content.text);
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

// "single": a list of {"Sequence": {"id": "A"}}, the text, and {"SpecialToken": {"id": NAME}}, whose ids are in
// "special_tokens". In a sequence of processors, tokens of a later one surround those of an earlier one.
Error read_template_processing(JsonFields& fields, Tokenizer* out) {
  const std::span<const Json> single = fields.list("single");
  if (fields.error) return fields.error;
  JsonFields special_tokens = fields.fields("special_tokens");
  std::vector<int32_t> before, after;
  int texts = 0;
  for (const Json& item : single) {
    JsonFields element{item, fields.where + ": single"};
    if (element.has("Sequence")) {
      if (element.fields("Sequence").text("id") != "A") return error("template uses a second text", element.where);
      ++texts;
      continue;
    }
    const std::string name = element.fields("SpecialToken").text("id");
    JsonFields token = special_tokens.fields(name);
    if (!token.has("ids")) token.fail("ids", "missing field");
    const auto ids = token.integers("ids", 0, kMaxVocabSize - 1);
    if (token.error) return token.error;
    (texts == 0 ? before : after).insert((texts == 0 ? before : after).end(), ids.begin(), ids.end());
  }
  if (texts != 1) return error("template must contain the text once", fields.where + ": single");
  out->prefix.insert(out->prefix.begin(), before.begin(), before.end());
  out->suffix.insert(out->suffix.end(), after.begin(), after.end());
  return {};
}

Error read_post_processor(const Json& json, const std::string& where, Tokenizer* out) {
  JsonFields fields{json, where};
  const std::string type = fields.text("type");
  if (fields.error) return fields.error;
  if (type == "ByteLevel") return {};  // changes offsets, not ids
  if (type == "TemplateProcessing") return read_template_processing(fields, out);
  if (type != "Sequence") return error("component is not supported", where, {}, "\"" + type + "\"");
  for (const Json& member : fields.list("processors")) {
    if (Error e = read_post_processor(member, where, out)) return e;
  }
  return fields.error;
}

}  // namespace

const Json kTokenizerData = Json::parse(tokenizers_text());

Error load_tokenizer_json(std::string_view text, const std::string& where, Tokenizer* out) {
  Json json;
  FlatJson vocabulary, merges;
  const FlatMember flat[] = {{"model", "vocab", &vocabulary}, {"model", "merges", &merges}};
  if (Error e = parse_json(text, where, &json, {.duplicate_keys = true}, flat)) return e;
  JsonFields file{json, where};
  const auto read = [&](const char* name, auto read_component, auto* to) {
    const Json* component = file.find(name);
    return component ? read_component(*component, where + ": " + name, to) : Error{};
  };
  if (Error e = read("normalizer", read_normalizer, &out->pipeline.normalizers)) return e;
  if (Error e = read("pre_tokenizer", read_pre_tokenizer, &out->pipeline.pre_tokenizers)) return e;
  if (Error e = read("decoder", read_decoder, &out->pipeline.decoders)) return e;
  out->pipeline.spaced = !file.has("decoder");
  if (Error e = read_model(file.fields("model"), vocabulary, merges, &out->bpe)) return e;
  out->size = out->bpe.tokens.highest_id() + 1;
  if (Error e = read_added_tokens(file, out)) return e;
  if (Error e = read("post_processor", read_post_processor, out)) return e;
  return file.error;
}

}  // namespace pinion
