#include "loader/quantization.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>

namespace pinion {
namespace {

constexpr std::string_view kRegexMark = "re:";
constexpr size_t kMostPatterns = 4096;         // a large model's layers one by one
constexpr uint32_t kMostRegexSteps = 100'000;  // names are short: sane expressions need some dozens
constexpr uint32_t kMostRegexMemory = 1024;    // KiB

// Python's re and PCRE2 read alike what names of modules need. What only one of them knows begins with "(*".
Error compile(const std::string& text, const std::string& where, ModulePattern* out) {
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

Error match_regex(const ModulePattern& pattern, const std::string& name, bool* out) {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(context, kMostRegexSteps);
  pcre2_set_heap_limit(context, kMostRegexMemory);
  const int found =
      pcre2_match(pattern.regex.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, data, context);
  pcre2_match_context_free(context);
  pcre2_match_data_free(data);
  *out = found >= 0;
  if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return {};
  return error("regular expression takes too many steps", "quantization_config: " + pattern.text, {}, brief(name));
}

// Only linear layers are asked for.
Error matches(const std::vector<ModulePattern>& patterns, const std::string& module, bool* out) {
  *out = false;
  for (const ModulePattern& pattern : patterns) {
    *out = pattern.text == module || pattern.text == "Linear";
    if (pattern.regex) {
      if (Error e = match_regex(pattern, module, out)) return e;
    }
    if (*out) return {};
  }
  return {};
}

Error read_patterns(JsonFields& fields, std::string_view name, std::vector<ModulePattern>* out) {
  const std::vector<std::string> texts = fields.texts(name);
  if (texts.size() > kMostPatterns) fields.fail(name, "too many entries", "at most " + std::to_string(kMostPatterns));
  if (fields.error) return fields.error;
  for (const std::string& text : texts) {
    if (Error e = compile(text, fields.where + ": " + std::string(name), &out->emplace_back())) return e;
  }
  return {};
}

// A field that may be absent, or null, but must otherwise have one of these values.
void expect(JsonFields& fields, std::string_view name, std::initializer_list<Json> values) {
  const Json* value = fields.find(name);
  if (!value || std::ranges::find(values, *value) != values.end()) return;
  std::string wanted;
  for (const Json& v : values) wanted += (wanted.empty() ? "" : " or ") + brief(v);
  fields.fail(name, "not supported", wanted, brief(*value));
}

// The same for one that must be there: what the library takes where it is absent is another format.
void require(JsonFields& fields, std::string_view name, std::initializer_list<Json> values) {
  if (!fields.has(name)) fields.fail(name, "missing field", brief(*values.begin()));
  expect(fields, name, values);
}

void refuse(JsonFields& fields, std::string_view name) {
  const Json* value = fields.find(name);
  if (value && !(value->is_structured() && value->empty())) fields.fail(name, "not supported", "null", brief(*value));
}

Error refuse_unread(JsonFields& fields) {
  for (const std::string& name : fields.unread()) refuse(fields, name);
  return fields.error;
}

// QuantizationArgs, of weights or of activations.
Error check_arguments(JsonFields fields, bool is_weights) {
  if (fields.object.empty() && !fields.error) {
    return error("not supported", fields.where, is_weights ? "8-bit weights" : "8-bit dynamic activations", "none");
  }
  expect(fields, "num_bits", {8});
  expect(fields, "type", {"int"});
  expect(fields, "symmetric", {true});
  require(fields, "strategy", {is_weights ? "channel" : "token"});
  if (is_weights) {
    expect(fields, "dynamic", {false});
    expect(fields, "group_size", {-1, 0});
    // The other values reorder the inputs in the file; these only ordered GPTQ's own work.
    expect(fields, "actorder", {"weight", "static", false});
  } else {
    require(fields, "dynamic", {true});
  }
  // How the scales were found, and types that the tensors themselves show.
  for (const char* name : {"observer", "observer_kwargs", "scale_dtype", "zp_dtype"}) fields.find(name);
  return refuse_unread(fields);
}

Error read_group(JsonFields group, Quantization* out) {
  expect(group, "format", {"int-quantized"});
  if (Error e = check_arguments(group.fields("weights"), true)) return e;
  if (Error e = check_arguments(group.fields("input_activations"), false)) return e;
  if (!group.has("targets")) group.fail("targets", "missing field");
  if (Error e = read_patterns(group, "targets", &out->targets)) return e;
  return refuse_unread(group);  // output_activations, for one
}

Error bind_scale(const Checkpoint& checkpoint, const std::string& name, int64_t n, TensorView* out) {
  const std::string where = checkpoint.folder + ": " + name;
  const TensorView* scale = checkpoint.find(name);
  if (!scale) return error("no such tensor", where, "the scales of int8 weights");
  if (scale->dtype != DType::bf16 && scale->dtype != DType::f16 && scale->dtype != DType::f32) {
    return error("type differs", where, "BF16, F16 or F32", std::string(dtype_name(scale->dtype)));
  }
  const std::vector<int64_t> column = {n, 1}, one = {1, 1};
  const std::vector<int64_t> shapes[] = {column, {n}, one, {1}, {}};
  if (std::ranges::find(shapes, scale->shape) == std::end(shapes)) {
    return error("shape differs", where, shape_text(column) + ", " + shape_text({&n, 1}) + " or one number",
                 shape_text(scale->shape));
  }
  *out = *scale;
  return {};
}

}  // namespace

Error read_quantization(JsonFields& fields, Quantization* out) {
  require(fields, "quant_method", {"compressed-tensors"});
  expect(fields, "format", {"int-quantized"});
  expect(fields, "quantization_status", {"compressed", "frozen"});
  refuse(fields, "kv_cache_scheme");
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
    if (!fields.has("format")) require(group, "format", {"int-quantized"});
    if (Error e = read_group(group, out)) return e;
  }
  // Notes of the tools.
  for (const char* name : {"global_compression_ratio", "version", "run_compressed"}) fields.find(name);
  return refuse_unread(fields);
}

Error has_codes(const Quantization& quantization, const std::string& module, bool* out) {
  bool is_ignored = false;
  if (Error e = matches(quantization.targets, module, out)) return e;
  if (Error e = matches(quantization.ignore, module, &is_ignored)) return e;
  *out = *out && !is_ignored;
  return {};
}

Error bind_linear(const Checkpoint& checkpoint, const std::optional<Quantization>& quantization,
                  const std::string& module, int64_t n, int64_t k, LinearWeight* out) {
  const std::string name = module + ".weight";
  bool coded = false;
  if (quantization) {
    if (Error e = has_codes(*quantization, module, &coded)) return e;
  }
  if (!coded) return checkpoint.bind(name, {n, k}, &out->weight);
  if (Error e = checkpoint.bind(name, {n, k}, {DType::i8}, &out->weight)) return e;
  return bind_scale(checkpoint, name + "_scale", n, &out->scale);
}

}  // namespace pinion
