#include "loader/quant/quantization.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "kernels/base/text.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

constexpr size_t kMaxPatterns = 4096;  // enough for every module of a large model

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
  if (texts.size() > kMaxPatterns) fields.fail(name, "too many entries", "at most " + std::to_string(kMaxPatterns));
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

void refuse(JsonFields& fields, std::string_view name) {
  const Json* value = fields.find(name);
  if (value && !(value->is_structured() && value->empty())) fields.fail(name, "not supported", "null", brief(*value));
}

Error refuse_unread(JsonFields& fields) {
  for (const std::string& name : fields.unread()) refuse(fields, name);
  return fields.error;
}

void ignore(JsonFields& fields, std::initializer_list<const char*> names) {
  for (const char* name : names) fields.find(name);
}

// 0: all inputs, which files write as -1.
int64_t read_group_size(JsonFields& fields) {
  const int64_t size = fields.integer("group_size", {}, -1, kMaxK);
  if (size == 0) fields.fail("group_size", "out of range", "-1 or at least 1", "0");
  return std::max<int64_t>(size, 0);
}

void read_tile(JsonFields& fields, std::string_view name, CodeScheme* out) {
  const std::vector<int64_t> tile = fields.integers(name, 1, kMaxK);
  if (tile.size() != 2) {
    return fields.fail(name, "wrong length", "[rows, columns] of a block", std::to_string(tile.size()));
  }
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

// The QuantizationArgs of weights.
Error read_weight_arguments(JsonFields fields, CodeScheme* out) {
  if (fields.object.empty() && !fields.error) return error("not supported", fields.where, "8-bit weights", "none");
  const StoredAs format = out->stored_as;
  const bool are_numbers = format == StoredAs::fp8 || format == StoredAs::nvfp4;
  if (format == StoredAs::nvfp4) {
    require(fields, "strategy", {"tensor_group"});
    require(fields, "num_bits", {4});
    require(fields, "group_size", {kNvGroup});
    expect(fields, "symmetric", {true});
    out->group_size = kNvGroup;
  } else if (format == StoredAs::fp8) {
    require(fields, "strategy", {"channel", "tensor", "block"});
    expect(fields, "num_bits", {8});
    expect(fields, "symmetric", {true});
  } else {
    require(fields, "strategy", {"channel", "group"});
    if (format == StoredAs::packed) require(fields, "num_bits", {4, 8});
    expect(fields, "num_bits", {4, 8});
    out->bits = static_cast<int>(fields.integer("num_bits", 8));
    out->symmetric = fields.boolean("symmetric", true);
    expect(fields, "actorder", {"weight", "static", false, "group"});
    const Json* order = fields.find("actorder");
    out->has_order = order && *order == "group";
  }
  // These values only affected how GPTQ computed the codes.
  if (are_numbers) expect(fields, "actorder", {"weight", "static", false});
  const std::string strategy = fields.text("strategy", "");
  expect(fields, "type", {are_numbers ? "float" : "int"});
  expect(fields, "dynamic", {false});
  if (strategy == "group") {
    out->group_size = read_group_size(fields);
  } else if (format != StoredAs::nvfp4) {
    expect(fields, "group_size", {-1, 0});
  }
  if (strategy == "block") read_tile(fields, "block_structure", out);
  if (format == StoredAs::bytes && out->bits == 8 && out->symmetric && strategy == "channel") {
    out->stored_as = StoredAs::int8;
    expect(fields, "actorder", {"weight", "static", false});  // these codes have no tensor with an order
  }
  // Notes on the calibration, and types that the tensors themselves show.
  ignore(fields, {"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
  return refuse_unread(fields);
}

// The QuantizationArgs of activations. With int8 codes they must be those of w8a8, which uses the codes directly.
// Weights of other formats are quantised again, and activations by Pinion's rules, so most settings have no effect.
Error check_activations(JsonFields fields, StoredAs format) {
  const bool is_w8a8 = format == StoredAs::int8;
  if (fields.object.empty() && !fields.error) {
    return is_w8a8 ? error("not supported", fields.where, "8-bit dynamic activations", "none") : Error{};
  }
  std::vector<Json> bits = {8};
  if (format == StoredAs::nvfp4) bits.emplace_back(4);
  expect(fields, "num_bits", bits);
  if (is_w8a8) {
    expect(fields, "type", {"int"});
    expect(fields, "symmetric", {true});
    require(fields, "strategy", {"token"});
    require(fields, "dynamic", {true});
  } else {
    expect(fields, "type", {"int", "float"});
    ignore(fields, {"symmetric", "strategy", "dynamic", "group_size", "actorder", "block_structure"});
  }
  ignore(fields, {"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
  return refuse_unread(fields);
}

Error read_format(JsonFields& fields, StoredAs* out) {
  *out = require_row(fields, "format", kTensorsFormats).stored_as;
  return fields.error;
}

Error read_group(JsonFields group, StoredAs format, Quantization* out) {
  CodedModules& modules = out->groups.emplace_back();
  modules.scheme.stored_as = format;
  if (Error e = read_weight_arguments(group.fields("weights"), &modules.scheme)) return e;
  if (Error e = check_activations(group.fields("input_activations"), modules.scheme.stored_as)) return e;
  if (!group.has("targets")) group.fail("targets", "missing field");
  if (Error e = read_patterns(group, "targets", &modules.targets)) return e;
  return refuse_unread(group);  // output_activations, for one
}

Error read_compressed_tensors(JsonFields& fields, Quantization* out) {
  // A file with several formats has one in each group.
  const bool several = fields.has("format") && *fields.find("format") == "mixed-precision";
  const bool for_all = fields.has("format") && !several;
  StoredAs format = StoredAs::bytes;
  if (for_all) {
    if (Error e = read_format(fields, &format)) return e;
  }
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
    StoredAs group_format = format;
    if (!for_all || group.has("format")) {
      if (Error e = read_format(group, &group_format)) return e;
    }
    if (for_all && group_format != format) {
      group.fail("format", "not supported", brief(*fields.find("format")), brief(*group.find("format")));
    }
    if (group.error) return group.error;
    if (Error e = read_group(std::move(group), group_format, out)) return e;
  }
  ignore(fields, {"global_compression_ratio", "version", "run_compressed"});
  return refuse_unread(fields);
}

// Notes of the tools on their work and options for their kernels. Tensors show which modules have codes.
constexpr const char* kNotes =
    "act_bits act_data_type act_dynamic act_group_aware act_group_size act_sym amp autoround_version backend "
    "batch_size block_name_to_quantize cache_block_outputs damp_auto_increment "
    "enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input gradient_accumulate_steps iters lr "
    "low_cpu_mem_usage low_gpu_mem_usage minmax_lr model_free nsamples not_use_best_mse provider quant_lm_head "
    "quant_block_list sampler scale_dtype seqlen super_bits super_group_size to_quant_block_names "
    "damp_percent dataset disable_exllama do_fuse exllama_config fuse_max_seq_len ignored_layers lm_head "
    "max_input_length meta model_file_base_name model_name_or_path model_seqlen "
    "module_name_preceding_first_block modules_in_block_to_quantize modules_to_fuse modules_to_not_convert "
    "pad_token_id static_groups sym tokenizer true_sequential use_cuda_fp16 use_exllama";

Error ignore_notes(JsonFields& fields) {
  for (const std::string_view name : split(kNotes, ' ')) fields.find(name);
  return refuse_unread(fields);
}

CodeScheme& add_scheme(StoredAs stored_as, Quantization* out) {
  CodeScheme& scheme = out->groups.emplace_back().scheme;
  scheme.stored_as = stored_as;
  return scheme;
}

// Modules with other settings than the rest are errors. "-:" only excludes modules, as their tensors show too.
void refuse_exceptions(JsonFields& fields) {
  const JsonFields exceptions = fields.fields("dynamic");
  fields.error = exceptions.error;
  for (const auto& [pattern, settings] : exceptions.object.items()) {
    if (!pattern.starts_with("-:")) {
      fields.fail("dynamic", "not supported", "modules left out (\"-:\")", brief(pattern));
    }
  }
}

// The layout, under the old name or the new ones. Tools write some or all of them, in lower or upper case.
std::string read_layout(JsonFields& fields, const char* old_name, std::string absent, const std::vector<Json>& values) {
  std::string layout;
  for (const char* name : {old_name, "format", "checkpoint_format"}) {
    if (!fields.has(name)) continue;
    std::string text = fields.text(name);
    std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
    if (std::ranges::find(values, Json(text)) == values.end()) expect(fields, name, values);
    if (!layout.empty() && text != layout) {
      fields.fail(name, "contradicts another layout field", layout, text);
    }
    layout = text;
  }
  return layout.empty() ? absent : layout;
}

// Exceptions of AutoRound: modules that it left in floats, as their tensors show too.
void refuse_extra_config(JsonFields& fields) {
  const JsonFields exceptions = fields.fields("extra_config");
  fields.error = exceptions.error;
  for (const auto& [pattern, settings] : exceptions.object.items()) {
    if (!settings.is_object()) {
      fields.fail("extra_config", "wrong type", "an object for each module", brief(settings));
      continue;
    }
    JsonFields exception{settings, fields.where + ": extra_config: " + pattern};
    const int64_t bits = exception.integer("bits", 16, 1, 32);
    if (bits < 16 && !fields.error) {
      fields.error =
          error("not supported", exception.where + ": bits", "16 or more: a module in floats", std::to_string(bits));
    }
    if (!fields.error) fields.error = exception.error;
  }
}

// The fields that GPTQ and AWQ share.
Error finish_columns(JsonFields& fields) {
  expect(fields, "pack_dtype", {"int32"});
  expect(fields, "data_type", {"int"});
  refuse_exceptions(fields);
  refuse_extra_config(fields);
  return ignore_notes(fields);
}

Error read_gptq(JsonFields& fields, Quantization* out) {
  CodeScheme& scheme = add_scheme(StoredAs::gptq, out);
  require(fields, "bits", {4, 8});
  scheme.bits = static_cast<int>(fields.integer("bits", 4));
  scheme.group_size = read_group_size(fields);
  scheme.zeros_less_one = read_layout(fields, "checkpoint_format", "gptq", {"gptq", "gptq_v2"}) == "gptq";
  expect(fields, "is_marlin_format", {false});
  scheme.has_order = fields.boolean("desc_act", false);
  return finish_columns(fields);
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

Error read_awq(JsonFields& given, Quantization* out) {
  CodeScheme& scheme = add_scheme(StoredAs::awq, out);
  Json current = given.object;
  use_old_name(given, "bits", "w_bit", &current);
  use_old_name(given, "group_size", "q_group_size", &current);
  if (given.error) return given.error;
  JsonFields fields{current, given.where};
  ignore(fields, {"quant_method", "w_bit", "q_group_size"});
  require(fields, "bits", {4});
  scheme.bits = 4;
  scheme.group_size = read_group_size(fields);
  read_layout(fields, "version", "gemm", {"gemm"});
  expect(fields, "backend", {"autoawq", "auto"});  // llm-awq has another layout
  expect(fields, "zero_point", {true});
  expect(fields, "desc_act", {false});
  return finish_columns(fields);
}

Error read_fp8(JsonFields& fields, Quantization* out) {
  CodeScheme& scheme = add_scheme(StoredAs::fp8, out);
  if (fields.has("weight_block_size")) read_tile(fields, "weight_block_size", &scheme);
  expect(fields, "fmt", {"e4m3"});
  expect(fields, "activation_scheme", {"dynamic", "static"});
  refuse(fields, "kv_cache_scheme");
  ignore(fields, {"dequantize", "scale_fmt"});
  return ignore_notes(fields);
}

// Ternary weights as in microsoft/bitnet-b1.58-2B-4T. Mode online, which stores floats and makes them ternary in each
// pass, is not supported.
Error read_bitnet(JsonFields& fields, Quantization* out) {
  CodeScheme& scheme = add_scheme(StoredAs::bitnet, out);
  scheme.bits = 2;
  expect(fields, "linear_class", {"bitlinear", "autobitlinear"});
  expect(fields, "quantization_mode", {"offline"});
  expect(fields, "use_rms_norm", {false});  // one more norm, without weights
  scheme.divides = fields.text("linear_class", "bitlinear") == "bitlinear";
  ignore(fields, {"rms_norm_eps"});
  return ignore_notes(fields);
}

// AutoRound's own name for the layouts of GPTQ and AWQ.
Error read_auto_round(JsonFields& given, Quantization* out) {
  const char* kField = "packing_format";
  require(given, kField, {"auto_round:auto_gptq", "auto_round:auto_awq"});
  if (given.error) return given.error;
  Json layout = given.object;
  layout.erase("packing_format");
  layout.erase("backend");  // of its kernels; AWQ's reader takes it for a layout
  JsonFields fields{layout, given.where};
  ignore(fields, {"quant_method"});
  return given.text(kField) == "auto_round:auto_gptq" ? read_gptq(fields, out) : read_awq(fields, out);
}

struct Method {
  std::string_view name;
  Error (*read)(JsonFields& fields, Quantization* out);
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

Error read_quantization(JsonFields& fields, Quantization* out) {
  const Method& method = require_row(fields, "quant_method", kMethods);
  if (fields.error) return fields.error;
  out->by_tensors = method.read != read_compressed_tensors;
  return method.read(fields, out);
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
