// The keys tokenizer.* of a GGUF file as texts of a Hugging Face folder. The meaning of the keys is that of llama.cpp's
// llama-vocab.cpp; pre-tokenizers are rows of configs/gguf_pretokenizers.json.
#include "loader/gguf/gguf_folder.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "configs/families.h"
#include "kernels/base/text.h"

namespace pinion {
namespace {

enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// The tokens that tokenizer_config.json names; `absent`: the id for sentencepiece if the key is absent.
constexpr struct {
  const char* key;
  const char* name;
  int64_t absent;
} kNamedTokens[] = {
    {"tokenizer.ggml.bos_token_id", "bos_token", 1},        {"tokenizer.ggml.eos_token_id", "eos_token", 2},
    {"tokenizer.ggml.unknown_token_id", "unk_token", 0},    {"tokenizer.ggml.padding_token_id", "pad_token", -1},
    {"tokenizer.ggml.seperator_token_id", "sep_token", -1}, {"tokenizer.ggml.mask_token_id", "mask_token", -1}};

struct GgufTokens {
  std::vector<std::string> texts;
  std::vector<int64_t> types;             // [texts]
  std::map<std::string, int64_t> ids;     // by the names above
  std::vector<int64_t> ends;              // end of turn, end of message
  bool add_bos = false, add_eos = false;  // true: the id exists
  Json added = Json::array();             // as in tokenizer.json
};

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// The list `key` has one item for each token.
void check_token_count(JsonFields& file, const char* key, size_t length, size_t tokens) {
  if (length != tokens) file.fail(key, "wrong length", tokens, length);
}

void read_token_ids(JsonFields& file, bool is_sentencepiece, GgufTokens* out) {
  const int64_t count = std::ssize(out->texts);
  for (const auto& [key, name, absent] : kNamedTokens) {
    const int64_t id = file.integer(key, is_sentencepiece && absent < count ? absent : -1, 0, count - 1);
    if (id >= 0) out->ids[name] = id;
  }
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (file.has(key)) out->ends.push_back(file.integer(key, {}, 0, count - 1));
  }
}

// Texts, types and ids. A text stands for one id only.
Error read_gguf_tokens(JsonFields& file, bool is_sentencepiece, GgufTokens* out) {
  constexpr const char* kTypes = "tokenizer.ggml.token_type";
  out->texts = file.texts("tokenizer.ggml.tokens");
  if (out->texts.empty()) file.fail("tokenizer.ggml.tokens", "no tokens");
  out->types = file.integers(kTypes, 0, kByte);
  read_token_ids(file, is_sentencepiece, out);
  if (file.error) return file.error;
  if (!file.has(kTypes)) {
    out->types.assign(out->texts.size(), kNormal);
    for (const int64_t id : out->ends) out->types[id] = kControl;
    for (const auto& [name, id] : out->ids) out->types[id] = kControl;
  }
  check_token_count(file, kTypes, out->types.size(), out->texts.size());
  std::unordered_set<std::string> seen(out->texts.size());
  for (std::string& text : out->texts) {
    // Sentencepiece has no empty pieces. The name is llama.cpp's.
    if (text.empty()) text = "[EMPTY_" + std::to_string(&text - out->texts.data()) + "]";
    if (!seen.insert(text).second) file.fail("tokenizer.ggml.tokens", "repeated token", {}, brief(Json(text)));
  }
  // Sentencepiece finds pieces in a text whose spaces it has replaced. Files of Gemma spell them with spaces.
  for (size_t id = 0; is_sentencepiece && !file.error && id < out->texts.size(); ++id) {
    std::string piece = replaced(out->texts[id], " ", "\u2581");
    if (out->types[id] == kUserDefined && seen.insert(piece).second) out->texts[id] = std::move(piece);
  }
  return file.error;
}

// Sentencepiece itself finds user-defined pieces without spaces.
void list_added_tokens(bool is_sentencepiece, const std::string& architecture, GgufTokens* out) {
  for (size_t id = 0; id < out->texts.size(); ++id) {
    const std::string& text = out->texts[id];
    const int64_t type = out->types[id];
    const bool is_special = type == kControl || type == kUnknown;
    const bool is_found = type == kUserDefined && (!is_sentencepiece || text.find(' ') != text.npos);
    if (!is_special && !is_found) continue;
    // Phi-3's tokens take the white space behind them; the format has no key for it.
    const bool strips = is_sentencepiece && is_special && architecture == "phi3" && text != "<unk>" && text != "<s>" &&
                        text != "<|endoftext|>";
    out->added.push_back(
        {{"id", id}, {"content", text}, {"special", is_special}, {"normalized", false}, {"rstrip", strips}});
  }
}

// The row of the file's pre-tokenizer. Files from before May 2024 name none: their architecture chooses it.
Error find_pre_tokenizer(JsonFields& file, const std::string& model, const std::string& architecture, Json* out) {
  constexpr const char* kPre = "tokenizer.ggml.pre";
  Json rows;
  if (Error e = parse_json(gguf_pretokenizers_text(), "gguf_pretokenizers.json", &rows)) return e;
  const std::string name = model == "gemma4" ? model : file.text(kPre, "");
  const auto find = [&](const char* list, const std::string& wanted) {
    const auto names_it = [&](const Json& row) {
      return std::ranges::count(row.value(list, Json::array()), Json(wanted)) > 0;
    };
    const auto row = std::find_if(rows.begin(), rows.end(), names_it);
    if (row != rows.end()) *out = *row;
    return row != rows.end();
  };
  const bool is_found =
      name.empty() ? find("architectures", architecture) || find("names", "default") : find("names", name);
  if (!is_found) file.fail(kPre, "unknown pre-tokenizer; use the model's Hugging Face folder", {}, brief(Json(name)));
  return file.error;
}

// The tokens around every text.
Json post_processor(const GgufTokens& tokens) {
  Json single = Json::array(), ids = Json::object();
  const auto add = [&](const char* name) {
    const int64_t id = tokens.ids.at(name);
    single.push_back({{"SpecialToken", {{"id", tokens.texts[id]}}}});
    ids[tokens.texts[id]] = {{"ids", {id}}};
  };
  if (tokens.add_bos) add("bos_token");
  single.push_back({{"Sequence", {{"id", "A"}}}});
  if (tokens.add_eos) add("eos_token");
  return {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", ids}};
}

// Vocabulary and merges have hundreds of thousands of items, so they are never a Json.
std::string tokenizer_json(const Json& row, const GgufTokens& tokens, const Json& merges) {
  Json file = row["tokenizer"];
  file.emplace("decoder", Json{{"type", "ByteLevel"}});
  file["added_tokens"] = tokens.added;
  file["post_processor"] = post_processor(tokens);
  Json model = file.value("model", Json::object());
  model["type"] = "BPE";
  if (model.contains("byte_fallback") && tokens.ids.contains("unk_token")) {
    model["unk_token"] = tokens.texts[tokens.ids.at("unk_token")];
  }
  file.erase("model");
  std::string vocabulary;
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    if (tokens.types[id] == kUnused) continue;  // fills the vocabulary up to the rows of the embedding
    vocabulary += (vocabulary.empty() ? "" : ",") + dumped(tokens.texts[id]) + ":" + std::to_string(id);
  }
  std::string whole = dumped(file), options = dumped(model);
  whole.pop_back();
  options.pop_back();
  return whole + ",\"model\":" + options + ",\"vocab\":{" + vocabulary + "},\"merges\":" + dumped(merges) + "}}";
}

// A message of protocol buffers: fields, each a tag and a value.
struct ProtoMessage {
  std::string bytes = {};

  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    bytes += static_cast<char>(value);
  }
  void number(uint32_t field, uint64_t value) {
    varint(field << 3);
    varint(value);
  }
  void text(uint32_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes += value;
  }
  void real(uint32_t field, float value) {
    varint(field << 3 | 5);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(std::bit_cast<uint32_t>(value) >> shift);
  }
};

// A ModelProto (sentencepiece_model.proto of https://github.com/google/sentencepiece).
Error sentencepiece_model(JsonFields& file, const GgufTokens& tokens, std::string* out) {
  constexpr const char* kScores = "tokenizer.ggml.scores";
  const std::vector<double> scores = file.numbers(kScores);
  check_token_count(file, kScores, scores.size(), tokens.texts.size());
  const int64_t bytes = std::ranges::count(tokens.types, kByte);
  if (bytes != 0 && bytes != 256) file.fail("tokenizer.ggml.token_type", "byte tokens", "256", bytes);
  std::string charsmap;
  for (const int64_t byte : file.integers("tokenizer.ggml.precompiled_charsmap", -128, 255)) {
    charsmap += static_cast<char>(byte);
  }
  ProtoMessage model, trainer, normalizer;
  if (file.error) return file.error;
  // The library demands exactly one unknown piece.
  const int64_t marked = std::ranges::find(tokens.types, kUnknown) - tokens.types.begin();
  const int64_t unknown = marked < std::ssize(tokens.texts) ? marked : tokens.ids.at("unk_token");
  for (int64_t id = 0; id < std::ssize(tokens.texts); ++id) {
    const int64_t type = id == unknown ? kUnknown : tokens.types[id] == kUnknown ? kControl : tokens.types[id];
    ProtoMessage piece;
    piece.text(1, tokens.texts[id]);
    piece.real(2, static_cast<float>(scores[id]));
    piece.number(3, static_cast<uint64_t>(std::max<int64_t>(type, kNormal)));
    model.text(1, piece.bytes);
  }
  trainer.number(3, 2);                     // model_type: BPE
  trainer.number(35, bytes != 0);           // byte_fallback
  trainer.text(45, tokens.texts[unknown]);  // unk_piece
  normalizer.text(2, charsmap);
  normalizer.number(3, file.boolean("tokenizer.ggml.add_space_prefix", true));
  normalizer.number(4, file.boolean("tokenizer.ggml.remove_extra_whitespaces", false));
  normalizer.number(5, 1);  // spaces become U+2581
  model.text(2, trainer.bytes);
  model.text(3, normalizer.bytes);
  *out = std::move(model.bytes);
  return file.error;
}

// The default template and the named ones.
Json chat_templates(JsonFields& file) {
  Json list = Json::array();
  const auto add = [&](const std::string& name, const std::string& key) {
    const std::string source = file.text(key, "");
    if (!source.empty()) list.push_back({{"name", name}, {"template", source}});
  };
  add("default", "tokenizer.chat_template");
  for (const std::string& name : file.texts("tokenizer.chat_templates")) add(name, "tokenizer.chat_template." + name);
  // A reranker's template is a text with {query} and {document}.
  for (Json& item : list) {
    std::string source = item["template"];
    for (const std::string role : {"query", "document"}) {
      const std::string content =
          "{{ messages | selectattr('role', 'eq', '" + role + "') | map(attribute='content') | first }}";
      if (item["name"] == "rerank") source = replaced(source, "{" + role + "}", content);
    }
    item["template"] = source;
  }
  return list;
}

Json tokenizer_config(JsonFields& file, bool is_sentencepiece, const GgufTokens& tokens) {
  Json config = {{"add_bos_token", tokens.add_bos}, {"add_eos_token", tokens.add_eos}};
  for (const auto& [name, id] : tokens.ids) config[name] = tokens.texts[id];
  config["chat_template"] = chat_templates(file);
  if (!is_sentencepiece) return config;
  Json& decoder = config["added_tokens_decoder"] = Json::object();
  for (const Json& token : tokens.added) decoder[dumped(token["id"])] = token;
  return config;
}

}  // namespace

Error make_tokenizer_texts(const Json& metadata, const std::string& where, std::map<std::string, std::string>* out) {
  out->clear();
  JsonFields file{metadata, where};
  std::string model = file.text("tokenizer.ggml.model", "none");
  const std::string architecture = file.text("general.architecture", "");
  // Ollama's own files.
  if (model == "llama" && architecture == "gemma4" && file.has("tokenizer.ggml.merges")) model = "gemma4";
  if (file.error || model == "none" || model == "no_vocab") return file.error;
  const bool is_sentencepiece = model == "llama";
  if (!is_sentencepiece && model != "gpt2" && model != "gemma4") {
    return error("this kind of tokenizer is not supported", where + ": tokenizer.ggml.model", "gpt2, llama or gemma4",
                 brief(Json(model)));
  }
  GgufTokens tokens;
  if (Error e = read_gguf_tokens(file, is_sentencepiece, &tokens)) return e;
  list_added_tokens(is_sentencepiece, architecture, &tokens);
  Json row = {{"add_bos", is_sentencepiece}};
  if (Error e = is_sentencepiece ? Error{} : find_pre_tokenizer(file, model, architecture, &row)) return e;
  // Some files of Gemma 4 wrongly deny it.
  const bool adds_bos = file.boolean("tokenizer.ggml.add_bos_token", row.value("add_bos", false));
  tokens.add_bos = (adds_bos || row.value("always_adds_bos", false)) && tokens.ids.contains("bos_token");
  tokens.add_eos = file.boolean("tokenizer.ggml.add_eos_token", false) && tokens.ids.contains("eos_token");
  (*out)["tokenizer_config.json"] = dumped(tokenizer_config(file, is_sentencepiece, tokens));
  if (is_sentencepiece) return sentencepiece_model(file, tokens, &(*out)["tokenizer.model"]);
  file.list("tokenizer.ggml.merges");
  if (!file.error) (*out)["tokenizer.json"] = tokenizer_json(row, tokens, metadata["tokenizer.ggml.merges"]);
  return file.error;
}

}  // namespace pinion
