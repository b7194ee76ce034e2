#include "loader/quant/quantization.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "configs/families.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

constexpr size_t kMaxPatterns = 4096;  // enough for every module of a large model
constexpr std::string_view kRegexMark = "re:";
constexpr uint32_t kMaxRegexSteps = 100'000;  // names are short: sane expressions need some dozens
constexpr uint32_t kMaxRegexMemory = 1024;    // KiB

Error match_regex(const ModulePattern& pattern, const std::string& name, bool* out) {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(context, kMaxRegexSteps);
  pcre2_set_heap_limit(context, kMaxRegexMemory);
  const int found =
      pcre2_match(pattern.regex.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, data, context);
  pcre2_match_context_free(context);
  pcre2_match_data_free(data);
  *out = found >= 0;
  if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return {};
  return error("regular expression takes too many steps", "config.json: quantization_config: " + brief(pattern.text),
               {}, brief(name));
}

// A module's name, and its possible names before the renaming.
std::vector<std::string> names_of(const std::string& module, const Quantization& quantization) {
  std::vector<std::string> names = {module};
  const std::string tensors = module + ".";  // prefix of its tensors' names
  for (const auto& [from, to] : quantization.renamed) {
    if (!tensors.starts_with(to)) continue;
    names.push_back(from + tensors.substr(to.size()));
    names.back().pop_back();
  }
  return names;
}

Error read_patterns(JsonFields& fields, std::string_view name, std::vector<ModulePattern>* out) {
  const std::vector<std::string> texts = fields.texts(name);
  if (texts.size() > kMaxPatterns) fields.fail(name, "too many entries", at_most(kMaxPatterns));
  if (fields.error) return fields.error;
  for (const std::string& text : texts) {
    if (Error e = compile_pattern(text, fields.where + ": " + std::string(name), &out->emplace_back())) return e;
  }
  return {};
}

std::string alternatives(const std::vector<Json>& values) {
  std::string text;
  for (const Json& value : values) text += (text.empty() ? "" : " or ") + brief(value);
  return text;
}

// A field that may be absent or null, but otherwise must have one of these values.
void expect(JsonFields& fields, std::string_view name, const std::vector<Json>& values) {
  const Json* value = fields.find(name);
  if (!value || std::ranges::find(values, *value) != values.end()) return;
  fields.fail(name, "not supported", alternatives(values), brief(*value));
}

// The same for a required field: the library's default would be another format.
void require(JsonFields& fields, std::string_view name, const std::vector<Json>& values) {
  if (!fields.has(name)) fields.fail(name, "missing field", alternatives(values));
  expect(fields, name, values);
}

// The row of a table that a required field names.
template <class Row, size_t N>
const Row& require_row(JsonFields& fields, std::string_view name, const Row (&table)[N]) {
  std::vector<Json> names;
  for (const Row& row : table) names.emplace_back(row.name);
  require(fields, name, names);
  const auto found = std::ranges::find(table, fields.text(name, ""), &Row::name);
  return found != std::end(table) ? *found : table[0];
}

Error refuse_unread(JsonFields& fields) {
  for (const std::string& name : fields.unread()) {
    const Json& value = *fields.find(name);
    if (!value.is_structured() || !value.empty()) fields.fail(name, "not supported", "null", brief(value));
  }
  return fields.error;
}

// Checks the fields that a row of configs/quantization.json lists; `ignored` ones have no effect.
void check_fields(JsonFields& fields, const Json& row) {
  const Json required = row.value("required", Json()), allowed = row.value("allowed", Json());
  for (const auto& [name, values] : required.items()) require(fields, name, values);
  for (const auto& [name, values] : allowed.items()) expect(fields, name, values);
  for (const Json& name : row.value("ignored", Json::array())) fields.find(name.get_ref<const std::string&>());
}

// 0: all inputs, which files write as -1.
int64_t read_group_size(JsonFields& fields) {
  const int64_t size = fields.integer("group_size", {}, -1, kMaxK);
  if (size == 0) fields.fail("group_size", "out of range", "-1 or at least 1", "0");
  return std::max<int64_t>(size, 0);
}

void read_tile(JsonFields& fields, std::string_view name, CodeScheme* out) {
  const std::vector<int64_t> tile = fields.integers(name, 1, kMaxK);
  if (tile.size() != 2) return fields.fail(name, "wrong length", "[rows, columns] of a block", tile.size());
  out->rows_per_scale = tile[0];
  out->group_size = tile[1];
}

struct TensorsFormat {
  std::string_view name;  // in compressed-tensors
  StoredAs stored_as;
};

constexpr TensorsFormat kTensorsFormats[] = {
    {"int-quantized", StoredAs::bytes},
    {"float-quantized", StoredAs::fp8},
    {"pack-quantized", StoredAs::packed},
    {"nvfp4-pack-quantized", StoredAs::nvfp4},
};

// The QuantizationArgs of weights. Values of actorder other than "group" only affected how GPTQ computed the codes.
Error read_weight_arguments(JsonFields fields, const Json& rules, CodeScheme* out) {
  if (fields.object.empty() && !fields.error) return error("not supported", fields.where, "8-bit weights", "none");
  const StoredAs format = out->stored_as;
  check_fields(fields, rules["weights"][std::ranges::find(kTensorsFormats, format, &TensorsFormat::stored_as)->name]);
  if (format == StoredAs::bytes || format == StoredAs::packed) {
    out->bits = static_cast<int>(fields.integer("num_bits", 8));
    out->symmetric = fields.boolean("symmetric", true);
    const Json* order = fields.find("actorder");
    out->has_order = order && *order == "group";
  }
  const std::string strategy = fields.text("strategy", "");
  if (format == StoredAs::nvfp4) {
    out->group_size = kNvGroup;
  } else if (strategy == "group") {
    out->group_size = read_group_size(fields);
  } else {
    expect(fields, "group_size", {-1, 0});
  }
  if (strategy == "block") read_tile(fields, "block_structure", out);
  if (format == StoredAs::bytes && out->bits == 8 && out->symmetric && strategy == "channel") {
    out->stored_as = StoredAs::int8;
    expect(fields, "actorder", {"weight", "static", false});  // these codes have no tensor with an order
  }
  return refuse_unread(fields);
}

// The QuantizationArgs of activations. With int8 codes they must be those of w8a8, which uses the codes directly.
// Weights of other formats are quantised again, and activations by Pinion's rules, so most settings have no effect.
Error check_activations(JsonFields fields, const Json& rules, StoredAs format) {
  const bool is_w8a8 = format == StoredAs::int8;
  if (fields.object.empty() && !fields.error) {
    return is_w8a8 ? error("not supported", fields.where, "8-bit dynamic activations", "none") : Error{};
  }
  check_fields(fields, rules["activations"][is_w8a8 ? "w8a8" : format == StoredAs::nvfp4 ? "nvfp4" : "others"]);
  return refuse_unread(fields);
}

Error read_group(JsonFields group, const Json& rules, StoredAs format, Quantization* out) {
  CodedModules& modules = out->groups.emplace_back();
  modules.scheme.stored_as = format;
  if (Error e = read_weight_arguments(group.fields("weights"), rules, &modules.scheme)) return e;
  if (Error e = check_activations(group.fields("input_activations"), rules, modules.scheme.stored_as)) return e;
  if (!group.has("targets")) group.fail("targets", "missing field");
  if (Error e = read_patterns(group, "targets", &modules.targets)) return e;
  return refuse_unread(group);  // output_activations, for one
}

Error read_compressed_tensors(JsonFields& fields, const Json& rules, Quantization* out) {
  // A file with several formats has one in each group.
  const bool several = fields.has("format") && *fields.find("format") == "mixed-precision";
  const bool for_all = fields.has("format") && !several;
  StoredAs format = StoredAs::bytes;
  if (for_all) format = require_row(fields, "format", kTensorsFormats).stored_as;
  check_fields(fields, rules["methods"]["compressed-tensors"]);
  if (fields.error) return fields.error;
  JsonFields sparsity = fields.fields("sparsity_config");
  if (!sparsity.object.empty()) require(sparsity, "format", {"dense"});
  if (sparsity.error) return sparsity.error;
  if (Error e = read_patterns(fields, "ignore", &out->ignore)) return e;
  const JsonFields groups = fields.fields("config_groups");
  if (groups.error) return groups.error;
  if (groups.object.empty()) return error("missing field", fields.where + ": config_groups");
  for (const auto& [name, description] : groups.object.items()) {
    JsonFields group{description, groups.where + ": " + name};
    StoredAs group_format = format;
    if (!for_all || group.has("format")) group_format = require_row(group, "format", kTensorsFormats).stored_as;
    if (for_all && group_format != format) {
      group.fail("format", "not supported", brief(*fields.find("format")), brief(*group.find("format")));
    }
    if (group.error) return group.error;
    if (Error e = read_group(std::move(group), rules, group_format, out)) return e;
  }
  return refuse_unread(fields);
}

// Begins a method whose tensors show which modules have codes.
CodeScheme& add_scheme(JsonFields& fields, const Json& rules, const char* method, StoredAs stored_as,
                       Quantization* out) {
  check_fields(fields, rules["methods"][method]);
  check_fields(fields, {{"ignored", rules["notes"]}});
  CodeScheme& scheme = out->groups.emplace_back().scheme;
  scheme.stored_as = stored_as;
  return scheme;
}

// The layout, under the old name or the new ones. Tools write some or all of them, in lower or upper case.
std::string read_layout(JsonFields& fields, const char* old_name, std::string absent, const std::vector<Json>& values) {
  std::string layout;
  for (const char* name : {old_name, "format", "checkpoint_format"}) {
    if (!fields.has(name)) continue;
    std::string text = fields.text(name);
    std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
    if (std::ranges::find(values, Json(text)) == values.end()) expect(fields, name, values);
    if (!layout.empty() && text != layout) fields.fail(name, "contradicts another layout field", layout, text);
    layout = text;
  }
  return layout.empty() ? absent : layout;
}

// Modules with other settings than the rest, and unread fields, are errors. "-:" only excludes modules, and AutoRound's
// exceptions left them in floats, as their tensors show too.
Error refuse_exceptions(JsonFields& fields) {
  const JsonFields dynamic = fields.fields("dynamic");
  for (const auto& [pattern, settings] : dynamic.object.items()) {
    if (pattern.starts_with("-:")) continue;
    fields.fail("dynamic", "not supported", "modules left out (\"-:\")", brief(pattern));
  }
  const JsonFields extra = fields.fields("extra_config");
  for (const auto& [pattern, settings] : extra.object.items()) {
    if (!settings.is_object()) {
      fields.fail("extra_config", "wrong type", "an object for each module", brief(settings));
      continue;
    }
    JsonFields exception{settings, fields.where + ": extra_config: " + pattern, {}, {}, &fields};
    const int64_t bits = exception.integer("bits", 16, 1, 32);
    if (bits < 16) exception.fail("bits", "not supported", "16 or more: a module in floats", bits);
  }
  return refuse_unread(fields);
}

Error read_gptq(JsonFields& fields, const Json& rules, Quantization* out) {
  CodeScheme& scheme = add_scheme(fields, rules, "gptq", StoredAs::gptq, out);
  scheme.bits = static_cast<int>(fields.integer("bits", 4));
  scheme.group_size = read_group_size(fields);
  scheme.zeros_less_one = read_layout(fields, "checkpoint_format", "gptq", {"gptq", "gptq_v2"}) == "gptq";
  scheme.has_order = fields.boolean("desc_act", false);
  return refuse_exceptions(fields);
}

// The current name of a setting or, if a file lacks it, an older one. Both are an error unless they agree.
void use_old_name(JsonFields& fields, const char* name, const char* old_name, Json* renamed) {
  const Json* value = fields.find(name);
  const Json* old_value = fields.find(old_name);
  if (!old_value) return;
  if (value && *value != *old_value)
    fields.fail(old_name, "contradicts " + std::string(name), brief(*value), brief(*old_value));
  (*renamed)[name] = *old_value;
}

// The backend llm-awq has another layout.
Error read_awq(JsonFields& given, const Json& rules, Quantization* out) {
  Json current = given.object;
  use_old_name(given, "bits", "w_bit", &current);
  use_old_name(given, "group_size", "q_group_size", &current);
  if (given.error) return given.error;
  JsonFields fields{current, given.where};
  CodeScheme& scheme = add_scheme(fields, rules, "awq", StoredAs::awq, out);
  scheme.bits = 4;
  scheme.group_size = read_group_size(fields);
  read_layout(fields, "version", "gemm", {"gemm"});
  return refuse_exceptions(fields);
}

Error read_fp8(JsonFields& fields, const Json& rules, Quantization* out) {
  CodeScheme& scheme = add_scheme(fields, rules, "fp8", StoredAs::fp8, out);
  if (fields.has("weight_block_size")) read_tile(fields, "weight_block_size", &scheme);
  return refuse_unread(fields);
}

// Ternary weights as in microsoft/bitnet-b1.58-2B-4T. Mode online, which stores floats and makes them ternary in each
// pass, is not supported, nor is use_rms_norm, one more norm without weights.
Error read_bitnet(JsonFields& fields, const Json& rules, Quantization* out) {
  CodeScheme& scheme = add_scheme(fields, rules, "bitnet", StoredAs::bitnet, out);
  scheme.bits = 2;
  scheme.divides = fields.text("linear_class", "bitlinear") == "bitlinear";
  return refuse_unread(fields);
}

// AutoRound's own name for the layouts of GPTQ and AWQ.
Error read_auto_round(JsonFields& given, const Json& rules, Quantization* out) {
  check_fields(given, rules["methods"]["auto-round"]);
  const bool is_gptq = given.text("packing_format", "") == "auto_round:auto_gptq";
  if (given.error) return given.error;
  Json layout = given.object;
  layout.erase("packing_format");
  layout.erase("backend");  // of its kernels; AWQ's reader takes it for a layout
  JsonFields fields{layout, given.where};
  return is_gptq ? read_gptq(fields, rules, out) : read_awq(fields, rules, out);
}

struct Method {
  std::string_view name;
  Error (*read)(JsonFields& fields, const Json& rules, Quantization* out);
};

constexpr Method kMethods[] = {
    {"compressed-tensors", read_compressed_tensors},
    {"fp8", read_fp8},
    {"gptq", read_gptq},
    {"awq", read_awq},
    {"auto-round", read_auto_round},
    {"bitnet", read_bitnet},
};

}  // namespace

Error compile_pattern(const std::string& text, const std::string& where, ModulePattern* out) {
  out->text = text;
  if (!text.starts_with(kRegexMark)) return {};
  const std::string_view pattern = std::string_view(text).substr(kRegexMark.size());
  int code = 0;
  size_t offset = 0;
  pcre2_code* compiled =
      pattern.find("(*") != pattern.npos
          ? nullptr
          : pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr);
  if (compiled == nullptr) return error("not a regular expression", where, {}, brief(text));
  out->regex = {compiled, [](const pcre2_code* regex) { pcre2_code_free(const_cast<pcre2_code*>(regex)); }};
  return {};
}

Error match_patterns(const std::vector<ModulePattern>& patterns, const std::vector<std::string>& names, Match* out) {
  *out = Match::none;
  for (const ModulePattern& pattern : patterns) {
    if (pattern.text == "Linear") *out = std::max(*out, Match::by_class);
    for (const std::string& name : names) {
      bool is_named = pattern.text == name;
      if (pattern.regex) {
        if (Error e = match_regex(pattern, name, &is_named)) return e;
      }
      if (is_named) *out = Match::by_name;
    }
  }
  return {};
}

Error read_quantization(JsonFields& fields, Quantization* out) {
  const Method& method = require_row(fields, "quant_method", kMethods);
  if (fields.error) return fields.error;
  Json rules;
  if (Error e = parse_json(quantization_text(), "configs/quantization.json", &rules)) return e;
  out->by_tensors = method.read != read_compressed_tensors;
  return method.read(fields, rules, out);
}

bool has_w4_codes(const Quantization& quantization) {
  return std::ranges::any_of(quantization.groups, [](const CodedModules& group) { return group.scheme.bits == 4; });
}

bool keeps_w4_codes(const Quantization& quantization) {
  return std::ranges::any_of(quantization.groups, [](const CodedModules& group) {
    return group.scheme.bits == 4 && group.scheme.group_size % kGroupK == 0 && !group.scheme.has_order;
  });
}

Error find_scheme(const Quantization& quantization, const std::string& module, const CodeScheme** out) {
  *out = nullptr;
  const std::vector<std::string> names = names_of(module, quantization);
  Match ignored = Match::none, best = Match::none;
  if (Error e = match_patterns(quantization.ignore, names, &ignored)) return e;
  for (const CodedModules& group : quantization.groups) {
    Match found = Match::none;
    if (Error e = match_patterns(group.targets, names, &found)) return e;
    if (found == Match::none || found < best) continue;
    if (found == best && !(group.scheme == **out)) {
      return error("two config_groups match this module", "config.json: quantization_config", {}, brief(module));
    }
    best = found;
    *out = &group.scheme;
  }
  if (ignored != Match::none) *out = nullptr;
  return {};
}

}  // namespace pinion
