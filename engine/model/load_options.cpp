#include "engine/model/load_options.h"

#include "loader/config/layer_tensors.h"
#include "loader/quant/stored_weights.h"

namespace pinion {
namespace {

bool matches(const std::string& pattern, const std::string& name) { return name.find(pattern) != std::string::npos; }

// The pattern of `keep` that matches a matrix, or null.
const std::string* kept_by(const LoadOptions& options, const std::string& name) {
  const auto found = std::ranges::find_if(options.keep, [&](const auto& each) { return matches(each, name); });
  return found == options.keep.end() ? nullptr : &*found;
}

// GGUF tensors with more bits a weight, such as Q5_K and Q6_K, lose too much as w4.
constexpr double kMaxW4Bits = 5.0;

Format format_of_mode(const LoadOptions& options, const std::string& name, bool is_head) {
  if (kept_by(options, name)) return Format::bf16;
  if (is_head && options.head) return *options.head;
  if (is_head && options.quant != Quant::none) return Format::w8;
  constexpr Format kFormatOf[] = {Format::bf16, Format::w8, Format::w4n, Format::w4n};  // by Quant
  return kFormatOf[static_cast<size_t>(options.quant)];
}

// Int8 heads are packed by halves unless the options name a format: most tokens are drawn from few rows.
Format head_format(const LoadOptions& options, Format format, int64_t k) {
  return format == Format::w8 && !options.head && padded_k(k) <= kMaxHalvedK ? Format::w8h : format;
}

}  // namespace

Format weight_format(const LoadOptions& options, const ModelConfig& config, const std::string& name, MatrixRole role,
                     bool is_expert) {
  const Format format = format_of_mode(options, name, role == MatrixRole::head);
  if (role == MatrixRole::head) return head_format(options, format, config.hidden_size);
  if (traits_of(format).bits == 4 && config.experts.mxfp4) return is_expert ? Format::mxfp4 : Format::w8;
  return format;
}

LayerMatrices int8_matrices(Quant quant, const ModelConfig& config) {
  if (!has_4_bits(quant)) return {};
  std::map<std::pair<int64_t, MatrixRole>, int64_t> weights;
  int64_t all = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (const MatrixTensor& tensor : layer_matrices(config, layer)) {
      weights[{layer, tensor.role}] += tensor.n * tensor.k;
      all += tensor.n * tensor.k;
    }
  }
  LayerMatrices chosen;
  int64_t left = all / (quant == Quant::w4a8 ? 70 : 7);  // 3.5 bits more for each: 0.05 and 0.5 on average
  for (const MatrixRole role : {MatrixRole::v, MatrixRole::down}) {
    for (int64_t i = 0; i < config.layers; ++i) {  // the outer layers first
      const auto found = weights.find({i % 2 == 0 ? i / 2 : config.layers - 1 - i / 2, role});
      if (found == weights.end() || found->second > left) continue;
      left -= found->second;
      chosen.insert(found->first);
    }
  }
  return chosen;
}

Format with_int8(const LayerMatrices& int8, const MatrixTensor& tensor, Format format) {
  return format == Format::w4n && int8.contains({tensor.layer, tensor.role}) ? Format::w8 : format;
}

int64_t weight_rotation(const LoadOptions& options, Format format, int64_t k) {
  return options.rotate && traits_of(format).has_scales && format != Format::w2 ? rotation_of(k) : 1;
}

Error check_keep(const LoadOptions& options, const std::set<std::string>& matrices, const std::string& folder) {
  for (const std::string& pattern : options.keep) {
    if (std::ranges::any_of(matrices, [&](const std::string& name) { return matches(pattern, name); })) continue;
    return error("no matrix name contains this pattern", folder,
                 matrices.empty() ? "" : "a substring of a name such as " + *matrices.begin(), pattern);
  }
  return {};
}

Error check_head_format(const LoadOptions& options, const ModelConfig& config) {
  const std::string name = config.name("head") + ".weight";
  const std::string* pattern = kept_by(options, name);
  if (!pattern || !options.head || *options.head == Format::bf16) return {};
  return error("kept by the pattern \"" + *pattern + "\", but given another format", name, traits_of(Format::bf16).name,
               traits_of(*options.head).name);
}

Packing packing_of(const LoadOptions& options, const ModelConfig& config, MatrixRole role, const std::string& module,
                   const LinearWeight& weight) {
  const bool is_head = role == MatrixRole::head;
  Packing packing = {.format = format_of_mode(options, module + ".weight", is_head)};
  const bool is_requested = packing.format == Format::bf16 || (is_head && options.head);
  const bool is_updated = !weight.updates.empty();
  if (options.ternary && !is_requested && !is_updated) {
    const bool has_bitnet_codes = weight.coded.format && weight.coded.scheme.stored_as == StoredAs::bitnet;
    if (has_bitnet_codes && weight.coded.k % kW2GroupK == 0) return {.format = Format::w2, .as_stored = true};
    const bool is_coded = weight.reader.read || (!weight.stored_as.empty() && !is_block(weight.weight.dtype));
    if (!is_coded && looks_ternary(weight.weight)) return {.format = Format::w2};
  }
  if (traits_of(packing.format).bits == 4) {
    const TensorView& stored = weight.weight;
    const double bits = 8.0 * static_cast<double>(stored.bytes) / static_cast<double>(stored.elements());
    if (weight.coded.format && weight.coded.scheme.bits == 4) {
      packing.requantised_because =
          is_updated ? "changed by an adapter" : find_w4_format(weight.coded, &packing.format);
      packing.as_stored = packing.requantised_because.empty();
    } else if (const auto kept = kept_format(weight.weight.dtype); kept && !is_updated) {
      packing.format = *kept;
      packing.as_stored = true;
    } else if (weight.stored_as == kMxfp4 && !is_updated) {
      packing.format = Format::mxfp4;
      packing.as_stored = true;
    } else if (is_block(weight.weight.dtype) && bits > kMaxW4Bits) {
      packing.format = Format::w8;
    } else if (!is_head && config.quantization && has_w4_codes(*config.quantization)) {
      packing.format = Format::w8;
    } else {
      packing.format = weight_format(options, config, module + ".weight", role, false);
    }
  }
  if (packing.format == Format::w8) packing.as_stored = weight.scale.data != nullptr && !is_updated;
  if (is_head) packing.format = head_format(options, packing.format, weight.weight.shape[1]);
  if (!packing.as_stored) packing.rotation = weight_rotation(options, packing.format, weight.weight.shape[1]);
  return packing;
}

}  // namespace pinion
