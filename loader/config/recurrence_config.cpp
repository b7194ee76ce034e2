#include "loader/config/config_parts.h"

#include <numeric>

#include "kernels/layout.h"

namespace pinion {
namespace {

// The convolution must fit the input of a matrix.
void check_channels(JsonFields& file, std::string_view field, const Recurrence& r) {
  check_width(file, field, r.channels(), "linear attention too wide", "queries, keys and values");
}

void read_heads(JsonFields& file, ModelConfig* out) {
  Recurrence& r = out->recurrence;
  r.key_heads = file.integer("linear_num_key_heads", {}, 1, kMaxK);
  r.value_heads = file.integer("linear_num_value_heads", {}, 1, kMaxK);
  r.key_dim = file.integer("linear_key_head_dim", {}, 1, kMaxHeadDim);
  r.value_dim = file.integer("linear_value_head_dim", {}, 1, kMaxHeadDim);
  r.taps = file.integer("linear_conv_kernel_dim", {}, 1, kMaxConvTaps);
  if (file.boolean("linear_allow_neg_eigval", false)) r.write_scale = 2.0f;
  check_divides(file, "linear_num_key_heads", r.key_heads, "linear_num_value_heads", r.value_heads);
  check_channels(file, "linear_num_value_heads", r);
}

// Kimi's heads are alike; in some models they are as many as those of attention.
void read_kimi_heads(JsonFields& file, ModelConfig* out) {
  Recurrence& r = out->recurrence;
  r.key_heads = r.value_heads = file.integer("num_heads", out->layer[0].heads, 1, kMaxK);
  r.key_dim = r.value_dim = file.integer("head_dim", {}, 1, kMaxHeadDim);
  r.taps = file.integer("short_conv_kernel_size", {}, 1, kMaxConvTaps);
  const double bound = file.number("kda_lower_bound", 0.0, -100.0, -1e-3);
  if (file.boolean("kda_safe_gate", false)) r.decay_bound = static_cast<float>(bound);
  check_channels(file, "num_heads", r);
}

void read_short_conv(JsonFields& file, ModelConfig* out) {
  Recurrence& r = out->recurrence;
  r.value_heads = 1;
  r.value_dim = out->hidden_size;
  r.taps = file.integer("conv_L_cache", {}, 1, kMaxConvTaps);
  r.conv_bias = r.proj_bias = r.out_bias = file.boolean("conv_bias");
}

// The width of all heads, if the file gives it.
std::optional<int64_t> mamba_width(JsonFields& file, int64_t hidden_size) {
  const int64_t expand = file.integer("mamba_expand", 0, 0, 64);
  const int64_t width = file.integer("mamba_d_ssm", expand * hidden_size, 0, kMaxK);
  return width > 0 ? std::optional(width) : std::nullopt;
}

int64_t mamba_head_dim(JsonFields& file, const ModelConfig& config) {
  const Json* given = file.find("mamba_d_head");
  const std::optional<int64_t> width = mamba_width(file, config.hidden_size);
  if (given && *given == "auto" && width && !file.error) {
    return std::clamp<int64_t>(*width / config.recurrence.value_heads, 1, kMaxHeadDim);
  }
  return file.integer("mamba_d_head", {}, 1, kMaxHeadDim);
}

// Only an unbounded step is supported: 0 to infinity, or a number large enough, or transformers' spelling of infinity.
void check_step_limit(JsonFields& file) {
  constexpr const char* kField = "time_step_limit";
  const Json* limit = file.find(kField);
  if (!limit) return;
  const bool is_pair = limit->is_array() && limit->size() == 2;
  const auto is_infinite = [](const Json& value) {
    return value == Json{{"__float__", "Infinity"}} || (value.is_number() && value >= 1e30);
  };
  if (is_pair && (*limit)[0] == 0 && is_infinite((*limit)[1])) return;
  file.fail(kField, "not supported", "0 to infinity");
}

// Mamba 1 has no heads: runs of up to 64 channels are processed as such.
void read_channels(JsonFields& file, ModelConfig* out) {
  Recurrence& r = out->recurrence;
  const Json* rank = file.find("mamba_dt_rank");
  const bool is_auto = rank && *rank == "auto";
  r.step_rank = is_auto ? (out->hidden_size + 15) / 16 : file.integer("mamba_dt_rank", {}, 1, kMaxK);
  r.norm_eps = static_cast<float>(file.number("mixer_rms_eps", double{out->norm_eps}, 0.0, 1.0));
  const int64_t width = mamba_width(file, out->hidden_size).value_or(0);
  if (width == 0 || width % 16 != 0) {
    return file.fail("mamba_expand", "width out of range", "a multiple of 16", std::to_string(width));
  }
  r.key_heads = 1;
  r.value_dim = std::gcd(width, 64);
  r.value_heads = width / r.value_dim;
  check_channels(file, "mamba_expand", r);
}

void read_mamba(JsonFields& file, ModelConfig* out) {
  Recurrence& r = out->recurrence;
  r.key_dim = file.integer("mamba_d_state", {}, 1, kMaxHeadDim);
  r.taps = file.integer("mamba_d_conv", {}, 1, kMaxConvTaps);
  r.conv_bias = file.boolean("mamba_conv_bias");
  r.proj_bias = file.boolean("mamba_proj_bias");
  r.out_bias = file.boolean("projectors_bias", r.proj_bias);
  if (r.by_channel()) return read_channels(file, out);
  r.value_heads = file.integer("mamba_n_heads", {}, 1, kMaxK);
  r.key_heads = file.integer("mamba_n_groups", {}, 1, kMaxK);
  r.value_dim = mamba_head_dim(file, *out);
  check_step_limit(file);
  r.norm_groups = file.boolean("mamba_rms_norm", true) ? r.key_heads : 0;
  r.norm_before_gate = file.boolean("mamba_norm_before_gate", false) && r.norm_groups > 0;
  if (file.error) return;
  check_divides(file, "mamba_n_groups", r.key_heads, "mamba_n_heads", r.value_heads);
  const std::optional<int64_t> width = mamba_width(file, out->hidden_size);
  if (!file.error && width.value_or(r.value_width()) != r.value_width()) {
    file.fail("mamba_d_head", "contradicts the width of all heads", std::to_string(*width),
              std::to_string(r.value_heads) + " times " + std::to_string(r.value_dim));
  }
  check_channels(file, "mamba_n_heads", r);
}

// The gates of RG-LRU read as many blocks of channels as attention has heads.
void read_lru(JsonFields& file, ModelConfig* out) {
  Recurrence& r = out->recurrence;
  const int64_t width = file.integer("lru_width", out->hidden_size, 1, kMaxK);
  r.key_heads = r.value_heads = out->layer[0].heads;
  check_divides(file, "num_attention_heads", r.value_heads, "lru_width", width);
  r.key_dim = 1;
  r.value_dim = width / r.value_heads;
  r.taps = file.integer("conv1d_width", {}, 1, kMaxConvTaps);
  r.conv_bias = r.proj_bias = r.out_bias = true;
}

struct KindTraits {
  std::string_view name;  // in a family's description
  RecurrenceKind kind;
  void (*read)(JsonFields& file, ModelConfig* out);
};
constexpr KindTraits kKinds[] = {
    {"gated_delta", RecurrenceKind::gated_delta, read_heads},
    {"kimi_delta", RecurrenceKind::gated_delta, read_kimi_heads},
    {"short_conv", RecurrenceKind::short_conv, read_short_conv},
    {"mamba2", RecurrenceKind::mamba2, read_mamba},
    {"mamba1", RecurrenceKind::mamba1, read_mamba},
    {"rg_lru", RecurrenceKind::rg_lru, read_lru},
};

// Entries of layer_types, and letters of a layer pattern.
struct LayerType {
  std::string_view name;
  char letter;
  bool attends, recurs, has_experts;
};
constexpr LayerType kLayerTypes[] = {
    {"full_attention", '*', true, false, false},
    {"attention", 0, true, false, false},
    {"sliding_attention", 0, true, false, false},
    {"linear_attention", 0, false, true, false},
    {"conv", 0, false, true, false},
    {"recurrent", 0, false, true, false},
    {"mamba", 'M', false, true, false},
    {"hybrid", 0, true, true, false},
    {"mlp", '-', false, false, false},
    {"moe", 'E', false, false, true},
};

// Entries of layer_types, or of a pattern of letters (Nemotron-H); empty if the file has neither.
std::vector<std::string> layer_types(JsonFields& file) {
  std::vector<std::string> types = file.texts("layer_types");
  const std::string pattern = file.text("layer_pattern", "");
  if (!types.empty()) return types;
  for (const char letter : pattern) {
    const auto type = std::ranges::find(kLayerTypes, letter, &LayerType::letter);
    if (letter == 0 || type == std::end(kLayerTypes)) {
      file.fail("layer_pattern", "not supported", "layers M, *, - and E", brief(std::string(1, letter)));
      break;
    }
    types.emplace_back(type->name);
  }
  return types;
}

// `known` lists the layer types of the family.
void read_layer_types(const std::vector<std::string>& known, const std::vector<std::string>& types, JsonFields& file,
                      ModelConfig* out) {
  if (!has_length(file, "layer_types", out->layers, std::ssize(types))) return;
  for (size_t i = 0; i < types.size(); ++i) {
    const auto type = std::ranges::find(kLayerTypes, types[i], &LayerType::name);
    if (type == std::end(kLayerTypes) || std::ranges::find(known, types[i]) == known.end()) {
      return file.fail("layer_types", "unknown layer type", joined(known, " or "), brief(types[i]));
    }
    out->layer[i].attends = type->attends;
    out->layer[i].recurrent = type->recurs;
    out->layer[i].has_experts = type->has_experts;
  }
}

// Without layer_types: full_attn_idxs (or full_attn_layers, from 1 on) lists the attention layers, or every
// full_attention_interval-th layer is one, by default the last of each interval.
void read_layer_rule(const std::vector<int64_t>& attending, int64_t interval, int64_t offset, JsonFields& file,
                     ModelConfig* out) {
  const Recurrence& r = out->recurrence;
  const bool needs_list = r.kind == RecurrenceKind::mamba2 || (r.key_decays && !file.has("full_attention_interval"));
  if (attending.empty() && needs_list) return file.fail("layer_types", "missing field");
  for (int64_t i = 0; i < out->layers; ++i) {
    const bool is_listed = std::ranges::find(attending, i) != attending.end();
    out->layer[i].attends = attending.empty() ? i % interval == offset : is_listed;
    out->layer[i].recurrent = !out->layer[i].attends;
  }
}

}  // namespace

int64_t listed_layers(JsonFields& file) { return std::ssize(layer_types(file)); }

void read_recurrence(JsonFields& family, JsonFields& file, ModelConfig* out) {
  JsonFields rule = family.fields("recurrence");
  if (rule.object.empty()) return;
  const std::string name = rule.text("kind");
  const auto traits = std::ranges::find(kKinds, name, &KindTraits::name);
  if (traits == std::end(kKinds)) return family.fail("recurrence", "unknown kind", {}, brief(name));
  out->recurrence.kind = traits->kind;
  out->recurrence.key_decays = name == "kimi_delta";
  out->recurrence.by_key_head = rule.boolean("by_key_head", false);
  out->recurrence.tiled_heads = rule.boolean("tiled_heads", false);
  out->recurrence.negative_rates = rule.boolean("negative_rates", false);
  out->recurrence.unit_norms = rule.boolean("unit_norms", false);
  out->recurrence.norm_eps = static_cast<float>(rule.number("norm_eps", double{out->norm_eps}));
  const std::vector<std::string> known = rule.texts("layer_types");
  std::vector<std::string> types = layer_types(file);
  const size_t listed = types.size(), all = rule.boolean("repeats", false) && listed > 0 ? out->layers : listed;
  types.resize(all);
  for (size_t i = listed; i < all; ++i) types[i] = types[i - listed];
  std::vector<int64_t> attending = file.integers("full_attn_idxs", 0, kMaxLayers);
  for (const int64_t i : file.integers("full_attn_layers", 1, kMaxLayers)) attending.push_back(i - 1);
  const int64_t others = std::ssize(file.integers("kda_layers", 1, kMaxLayers));
  if (others > 0) has_length(file, "kda_layers", out->layers - std::ssize(attending), others);
  const int64_t interval = file.integer("full_attention_interval", 1, 1, kMaxLayers);
  const int64_t offset = file.integer("attn_layer_offset", interval - 1, 0, interval - 1);
  const bool is_alone = rule.boolean("alone", false);
  if (is_alone || rule.boolean("beside_attention", false)) {
    for (LayerConfig& layer : out->layer) layer.recurrent = true, layer.attends = !is_alone;
  } else if (types.empty()) {
    read_layer_rule(attending, interval, offset, file, out);
  } else {
    read_layer_types(known, types, file, out);
  }
  if (rule.boolean("one_branch", false)) {
    for (LayerConfig& layer : out->layer) layer.has_mlp = !layer.attends && !layer.recurrent;
  }
  if (!family.error) family.error = rule.error;
  // Granite's files without Mamba layers still contain its fields, with arbitrary numbers.
  const bool unused = recurrent_layers(*out) == 0 && traits->kind == RecurrenceKind::mamba2;
  if (file.error || unused) return;
  if (attention_layers(*out) == 0 && !is_alone) return file.fail("layer_types", "no attention layer");
  traits->read(file, out);
  if (rule.boolean("low_rank", false)) out->recurrence.step_rank = out->recurrence.key_dim;
}

}  // namespace pinion
