// The steps of reading a config.json, which model_config.cpp calls in order. `family` is the family's description
// (configs/models, documented in configs/families.h), `file` the config.json on top of the family's defaults. Failures
// are kept in the `error` of the two.
#pragma once

#include <nlohmann/json.hpp>

#include "configs/families.h"
#include "loader/config/model_config.h"

namespace pinion {

// --- families.cpp: the choice of a description, and fields of config.json that nothing reads.
struct Family {
  std::string name;  // of the file in configs/models
  Json description;

  std::string path() const { return "configs/models/" + name + ".json"; }
};
// The descriptions, each with what it inherits.
Error read_families(std::span<const FamilyText> texts, std::vector<Family>* out);
// The family that lists one of the file's architectures and its model_type; in a file without architectures, the
// model_type alone. The error for an unknown architecture suggests similar names.
Error find_family(const std::vector<Family>& families, JsonFields& file, const Family** out, std::string* architecture);
// "Qwen3ForCausalLM" for "Qwen3Model" and "Qwen3ForSequenceClassification", which have no head; else the name itself.
std::string with_head(const std::string& architecture);
// A switch of the description: true, false, or the name of the field of config.json with the value.
bool read_switch(JsonFields& family, std::string_view name, JsonFields& file);
// Call last. Checks fields that must have one value; refuses unread fields that transformers reads for the family and
// lists all others in ignored_fields.
Error check_other_fields(JsonFields& file, JsonFields& family, ModelConfig* out);

// --- model_config.cpp: checks, which fail in `file`.
void check_heads(JsonFields& file, const LayerConfig& layer);  // the heads have a supported shape
bool has_length(JsonFields& file, std::string_view field, int64_t expected, int64_t actual);
// `field` has the value `part`, which must divide `whole`, the value of the field `of`.
void check_divides(JsonFields& file, std::string_view field, int64_t part, const std::string& of, int64_t whole);
// At most kMaxK, the most inputs of a matrix. `what`: the failure; `parts` together have the width.
void check_width(JsonFields& file, std::string_view field, int64_t width, const char* what, const std::string& parts);

// --- attention_config.cpp: latent attention, rotary embeddings, windows, shared keys and values.
// Fills latent, and the dimensions of heads in `layer`, in a family with latent attention.
void read_latent(JsonFields& file, ModelConfig* out, LayerConfig* layer);
// Fills the layers' windows, heads, and indices of ropes; after read_recurrence.
void read_layers(JsonFields& family, JsonFields& file, ModelConfig* out);
// Fills ropes, from rope_theta and rope_scaling or from rope_parameters; after read_layers.
void read_ropes(JsonFields& family, JsonFields& file, ModelConfig* out);
// Fills kv_layer, after read_layers.
void read_shared_kv(JsonFields& family, JsonFields& file, ModelConfig* out);

// --- arithmetic_config.cpp: biases, norms, activations, scales, and what Gemma 3n adds to a layer.
// Sizes must be known.
void read_arithmetic(JsonFields& family, JsonFields& file, ModelConfig* out);
// Fills output_scales, and the input scales of the recurrence; after read_recurrence.
void read_output_scales(JsonFields& family, JsonFields& file, ModelConfig* out);
// Fills gate_sparsity, laurel_rank, altup and layer_input.
void read_altup(JsonFields& family, JsonFields& file, ModelConfig* out);

// --- recurrence_config.cpp: the layers with attention, the recurrent layers, and their shape.
void read_recurrence(JsonFields& family, JsonFields& file, ModelConfig* out);
int64_t listed_layers(JsonFields& file);  // the number of layers that the file lists by type; 0 if it lists none

// --- experts_config.cpp: mixtures of experts.
// After read_recurrence, which knows the layers of a family with experts by layer type.
void read_experts(JsonFields& family, JsonFields& file, ModelConfig* out);
// True if the quantization_config describes MXFP4 experts in a family that has these.
bool has_mxfp4_experts(JsonFields& family, JsonFields& quantization);
// Reads such a quantization_config. It must not exclude experts.
Error read_mxfp4_experts(JsonFields& quantization, ExpertsConfig* out);

// --- module_names.cpp: names of modules, and tensors to skip. Call when everything but the MTP layer is known.
Error read_modules(JsonFields& family, JsonFields& file, ModelConfig* out);

}  // namespace pinion
