#include "loader/quant/stored_weights.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "configs/families.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/gguf/gguf.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

const std::string kPrefix = "base_model.model.", kEnding = ".weight", kA = ".lora_A", kB = ".lora_B";

struct AdapterConfig {
  double alpha = 0.0;
  std::vector<std::pair<std::vector<ModulePattern>, double>> alphas;  // for modules whose names end in a pattern
  bool divides_by_root = false;                                       // use_rslora
};

// Fails for every setting that is not supported. configs/quantization.json lists the fields and their supported values;
// []: any value. Ranks are those of the tensors. Initialisations other than these change the base model's weights, too.
Error read_adapter_config(const std::filesystem::path& path, AdapterConfig* out) {
  Json json, rules;
  if (Error e = parse_json(quantization_text(), "configs/quantization.json", &rules)) return e;
  if (Error e = read_json_file(path, &json)) return e;
  JsonFields file{json, path.string()};
  file.text("peft_type");
  out->alpha = file.number("lora_alpha", {}, 0.0, 1e6);
  out->divides_by_root = file.boolean("use_rslora", false);
  JsonFields alphas = file.fields("alpha_pattern");
  for (const auto& [key, value] : alphas.object.items()) {
    auto& [patterns, alpha] = out->alphas.emplace_back(1, alphas.number(key, {}, 0.0, 1e6));
    if (Error e = compile_pattern("re:(.*\\.)?(" + key + ")$", alphas.where, &patterns[0])) return e;
  }
  if (alphas.error) return alphas.error;
  for (const auto& [name, value] : json.items()) {
    const bool is_off = value.is_null() || value == false || (value.is_structured() && value.empty());
    const Json allowed = rules["adapter"].value(name, Json::array({nullptr}));
    if (is_off || allowed.empty() || std::ranges::find(allowed, value) != allowed.end()) continue;
    return error("not supported", file.where + ": " + name, {}, brief(value));
  }
  return {};
}

// Gives a GGUF adapter's tensors, "blk.0.attn_q.weight.lora_a", names as PEFT's.
Error read_gguf_adapter(const std::filesystem::path& path, std::vector<MappedFile>* files, AdapterConfig* config,
                        std::vector<TensorView>* tensors, std::string* architecture) {
  GgufFile gguf;
  if (Error e = open_gguf(path, files, &gguf)) return e;
  JsonFields fields{gguf.metadata, path.string()};
  if (const std::string type = fields.text("adapter.type"); type != "lora")
    fields.fail("adapter.type", "not supported", "lora", type);
  *architecture = fields.text("general.architecture");
  config->alpha = fields.number("adapter.lora.alpha", {}, 0.0, 1e6);
  constexpr const char* kActivated = "adapter.alora.invocation_tokens";
  if (fields.has(kActivated)) fields.fail(kActivated, "not supported");
  *tensors = std::move(gguf.tensors);
  for (TensorView& tensor : *tensors) {
    const std::string& name = tensor.name;
    const size_t at = name.rfind(".weight.lora_");
    if (at == name.npos || (!name.ends_with("_a") && !name.ends_with("_b"))) continue;
    tensor.name = kPrefix + name.substr(0, at) + (name.back() == 'a' ? kA : kB) + kEnding;
  }
  return fields.error;
}

// The factor of B A for a module.
Error find_scale(const AdapterConfig& config, const std::string& module, int64_t rank, double* out) {
  double found = config.alpha;
  for (const auto& [patterns, alpha] : config.alphas) {
    Match match = Match::none;
    if (Error e = match_patterns(patterns, {module}, &match)) return e;
    if (match != Match::none) found = alpha;
  }
  const auto divisor = static_cast<double>(rank);
  *out = found / (config.divides_by_root ? std::sqrt(divisor) : divisor);
  return {};
}

// Splits "DIR=FACTOR".
Error split_factor(const std::string& text, std::string* folder, double* factor) {
  const size_t at = text.rfind('=');
  *folder = text;
  if (at == text.npos || path_exists(text)) return {};
  const char *begin = text.data() + at + 1, *end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(begin, end, *factor);
  if (stop != end || begin == end) return {};
  *folder = text.substr(0, at);
  if (failure == std::errc() && std::abs(*factor) <= 1e6) return {};
  return error("adapter's factor out of range", *folder, "a number up to a million", std::string(begin, end));
}

}  // namespace

Error add_adapter(const std::string& text, int64_t index, Checkpoint* checkpoint, std::string* architecture) {
  constexpr std::string_view kBase = ".base_layer";
  std::string given;
  double factor = 1.0;
  AdapterConfig config;
  if (Error e = split_factor(text, &given, &factor)) return e;
  const std::filesystem::path folder = find_model_folder(given);
  const bool is_file = is_gguf(folder);
  const std::filesystem::path file = is_file ? folder : folder / "adapter_model.safetensors";
  Safetensors parsed;
  std::vector<MappedFile> files(1);
  if (is_file) {
    if (Error e = read_gguf_adapter(file, &files, &config, &parsed.tensors, architecture)) return e;
  } else {
    if (Error e = read_adapter_config(folder / "adapter_config.json", &config)) return e;
    if (Error e = map_file(file, &files[0])) return e;
    if (Error e = parse_safetensors(files[0].contents(), file.string(), &parsed)) return e;
  }
  std::ranges::move(files, std::back_inserter(checkpoint->files));
  for (TensorView& tensor : parsed.tensors) {
    std::string module = tensor.name;
    if (!module.starts_with(kPrefix) || !module.ends_with(kEnding) || tensor.bytes == 0) {
      return error("not a tensor of a LoRA adapter", file.string() + ": " + module,
                   is_file ? "NAME.weight.lora_a or lora_b" : "base_model.model.NAME.weight");
    }
    module = module.substr(kPrefix.size(), module.size() - kPrefix.size() - kEnding.size());
    if (module.ends_with(kBase)) module.erase(module.size() - kBase.size());
    double scale = 0.0;
    if (module.ends_with(kA) && !tensor.shape.empty()) {
      if (Error e = find_scale(config, module.substr(0, module.size() - kA.size()), tensor.shape[0], &scale)) return e;
    }
    if (is_file && config.alpha == 0.0) scale = 1.0;  // as in llama.cpp
    checkpoint->adapter_scales[tensor.data] = static_cast<float>(scale * factor);
    const bool is_pair = module.ends_with(kA) || module.ends_with(kB);
    tensor.name = module + (is_pair ? "." + std::to_string(index) : kEnding);
    std::erase_if(checkpoint->tensors, [&](const TensorView& replaced) { return replaced.name == tensor.name; });
    checkpoint->tensors.push_back(std::move(tensor));
  }
  std::ranges::sort(checkpoint->tensors, {}, &TensorView::name);
  return {};
}

Error bind_updates(const Checkpoint& checkpoint, const std::string& module, int64_t n, int64_t k,
                   std::vector<LowRankUpdate>* out, std::vector<std::string>* names) {
  const std::string prefix = module + kA + ".";
  for (auto a = std::ranges::lower_bound(checkpoint.tensors, prefix, {}, &TensorView::name);
       a != checkpoint.tensors.end() && a->name.starts_with(prefix); ++a) {
    const auto scale = checkpoint.adapter_scales.find(a->data);
    const bool is_own = a->name.ends_with(kOwnUpdate);
    if (!is_own && scale == checkpoint.adapter_scales.end()) continue;  // of the checkpoint: an unknown tensor
    const std::string b = module + kB + a->name.substr(prefix.size() - 1);
    const int64_t rank = a->shape.empty() ? 0 : a->shape[0];
    LowRankUpdate& update = out->emplace_back();
    update.scale = is_own ? 1.0f : scale->second;
    if (Error e = checkpoint.bind(a->name, {rank, k}, &update.a)) return e;
    if (Error e = checkpoint.bind(b, {n, rank}, &update.b)) return e;
    names->insert(names->end(), {a->name, b});
  }
  return {};
}

}  // namespace pinion
