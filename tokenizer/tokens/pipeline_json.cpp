// Reads components of tokenizer.json. An unsupported one is an error: without it the ids would be silently wrong.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "tokenizer/tokens/tokenizer_internal.h"

namespace pinion {
namespace {

// Names in the file, in the order of the enumerations.
constexpr std::string_view kForms[] = {"NFC", "NFD", "NFKC", "NFKD"};
constexpr std::string_view kBehaviors[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
constexpr std::string_view kPrepends[] = {"always", "first", "never"};

// The value whose name is the text of a field (`absent`: of a missing field). An unknown text is an error.
template <class Enum>
Enum choice(JsonFields& fields, std::string_view field, std::span<const std::string_view> names, std::string absent) {
  const std::string text = fields.text(field, std::move(absent));
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  if (!fields.error) fields.fail(field, "not supported", {}, "\"" + text + "\"");
  return {};
}

// Reads the members of a Sequence, which are in the list `name`.
template <typename Component>
Error read_sequence(JsonFields& fields, std::string_view name,
                    Error (*read)(const Json&, const std::string&, Component*), Component* out) {
  for (const Json& member : fields.list(name)) {
    if (Error e = read(member, fields.where, out)) return e;
  }
  return fields.error;
}

Error unsupported_component(const JsonFields& fields, const std::string& type) {
  return error("component is not supported", fields.where, {}, "\"" + type + "\"");
}

// "pattern": {"String": "..."} or {"Regex": "..."}.
Regex read_pattern(JsonFields& fields) {
  JsonFields pattern = fields.fields("pattern");
  const bool literal = pattern.has("String");
  const std::string text = pattern.text(literal ? "String" : "Regex");
  Regex regex;
  if (!pattern.error) pattern.error = compile_regex(text, literal, pattern.where, &regex);
  if (!fields.error) fields.error = pattern.error;
  return regex;
}

Regex fixed_pattern(JsonFields& fields, const std::string& pattern, bool literal) {
  Regex regex;
  if (Error e = compile_regex(pattern, literal, fields.where, &regex); e && !fields.error) fields.error = e;
  return regex;
}

// The pattern that a component of this type has by its definition.
Regex own_pattern(JsonFields& fields, const std::string& type) {
  return fixed_pattern(fields, kTokenizerData["patterns"][type], false);
}

std::string one_character(JsonFields& fields, std::string_view name) {
  const std::string text = fields.text(name);
  if (!fields.error && (text.empty() || utf8_length(text) != text.size())) {
    fields.fail(name, "wrong length", "one character", "\"" + text + "\"");
  }
  return text;
}

PreTokenizer::Prepend read_prepend(JsonFields& fields) {
  const bool adds_space = fields.boolean("add_prefix_space", true);  // the old field
  return choice<PreTokenizer::Prepend>(fields, "prepend_scheme", kPrepends, adds_space ? "always" : "never");
}

PreTokenizer split_step(Regex pattern, SplitBehavior behavior, bool invert = false) {
  return {.kind = PreTokenizer::Kind::kSplit, .pattern = std::move(pattern), .behavior = behavior, .invert = invert};
}

void read_byte_level(JsonFields& fields, std::vector<PreTokenizer>* out) {
  if (fields.boolean("add_prefix_space")) out->push_back({.kind = PreTokenizer::Kind::kPrefixSpace});
  if (fields.boolean("use_regex", true)) {
    out->push_back(split_step(own_pattern(fields, "ByteLevel"), SplitBehavior::kIsolated));
  }
  out->push_back({.kind = PreTokenizer::Kind::kBytes});
}

void read_metaspace(JsonFields& fields, std::vector<PreTokenizer>* out) {
  const std::string replacement = one_character(fields, "replacement");
  const PreTokenizer::Prepend prepend = read_prepend(fields);
  out->push_back({.kind = PreTokenizer::Kind::kMetaspace, .text = replacement, .prepend = prepend});
  if (fields.boolean("split", true)) {
    out->push_back(split_step(fixed_pattern(fields, replacement, true), SplitBehavior::kMergedWithNext));
  }
}

}  // namespace

Error read_normalizer(const Json& json, const std::string& where, std::vector<Normalizer>* out) {
  JsonFields fields{json, where};
  const std::string type = fields.text("type");
  if (fields.error) return fields.error;
  if (type == "Sequence") return read_sequence(fields, "normalizers", read_normalizer, out);
  if (const auto* form = std::ranges::find(kForms, type); form != std::end(kForms)) {
    out->push_back({.kind = Normalizer::Kind::kForm, .form = static_cast<NormalForm>(form - kForms)});
  } else if (type == "Lowercase") {
    out->push_back({.kind = Normalizer::Kind::kLowercase});
  } else if (type == "Prepend") {
    out->push_back({.kind = Normalizer::Kind::kPrepend, .text = fields.text("prepend")});
  } else if (type == "Replace") {
    Regex pattern = read_pattern(fields);
    out->push_back({.kind = Normalizer::Kind::kReplace, .pattern = pattern, .text = fields.text("content")});
  } else if (type == "Strip") {
    const bool left = fields.boolean("strip_left"), right = fields.boolean("strip_right");
    out->push_back({.kind = Normalizer::Kind::kStrip, .left = left, .right = right});
  } else {
    return unsupported_component(fields, type);
  }
  return fields.error;
}

Error read_pre_tokenizer(const Json& json, const std::string& where, std::vector<PreTokenizer>* out) {
  JsonFields fields{json, where};
  const std::string type = fields.text("type");
  if (fields.error) return fields.error;
  if (type == "Sequence") {
    if (Error e = read_sequence(fields, "pretokenizers", read_pre_tokenizer, out)) return e;
    if (out->size() > kMaxPreTokenizers) return error("too many pre-tokenizers", where, at_most(kMaxPreTokenizers));
  } else if (type == "Split") {
    Regex pattern = read_pattern(fields);
    const SplitBehavior behavior = choice<SplitBehavior>(fields, "behavior", kBehaviors, "");
    out->push_back(split_step(std::move(pattern), behavior, fields.boolean("invert", false)));
  } else if (type == "ByteLevel") {
    read_byte_level(fields, out);
  } else if (type == "Metaspace") {
    read_metaspace(fields, out);
  } else if (type == "Digits") {
    const bool is_individual = fields.boolean("individual_digits", false);
    const auto behavior = is_individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    out->push_back(split_step(own_pattern(fields, type), behavior));
  } else if (type == "Punctuation") {
    out->push_back(
        split_step(own_pattern(fields, type), choice<SplitBehavior>(fields, "behavior", kBehaviors, "Isolated")));
  } else if (type == "WhitespaceSplit" || type == "Whitespace") {
    out->push_back(split_step(own_pattern(fields, type), SplitBehavior::kRemoved, type == "Whitespace"));
  } else {
    return unsupported_component(fields, type);
  }
  return fields.error;
}

Error read_decoder(const Json& json, const std::string& where, std::vector<Decoder>* out) {
  JsonFields fields{json, where};
  const std::string type = fields.text("type");
  if (fields.error) return fields.error;
  if (type == "Sequence") return read_sequence(fields, "decoders", read_decoder, out);
  if (type == "ByteLevel") {
    out->push_back({.kind = Decoder::Kind::kByteLevel});
  } else if (type == "ByteFallback") {
    out->push_back({.kind = Decoder::Kind::kByteFallback});
  } else if (type == "Fuse") {
    out->push_back({.kind = Decoder::Kind::kFuse});
  } else if (type == "Replace") {
    Regex pattern = read_pattern(fields);
    out->push_back({.kind = Decoder::Kind::kReplace, .pattern = pattern, .text = fields.text("content")});
  } else if (type == "Strip") {
    const std::string content = one_character(fields, "content");
    const int64_t start = fields.integer("start", {}, 0), stop = fields.integer("stop", {}, 0);
    out->push_back({.kind = Decoder::Kind::kStrip, .text = content, .start = start, .stop = stop});
  } else if (type == "Metaspace") {
    const std::string replacement = one_character(fields, "replacement");
    const bool prepended = read_prepend(fields) != PreTokenizer::Prepend::kNever;
    out->push_back({.kind = Decoder::Kind::kMetaspace, .text = replacement, .prepended = prepended});
  } else {
    return unsupported_component(fields, type);
  }
  return fields.error;
}

}  // namespace pinion
