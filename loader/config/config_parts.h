// The parts of reading a config.json, one file each. Only model_config.cpp calls them. `family` is the family's
// description (configs/models), `file` the config.json with the family's defaults.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "loader/config/model_config.h"
#include "loader/files/json.h"

namespace pinion {

// --- families.cpp: which description a config.json belongs to. What stands in one: configs/families.h.

// A description with the program's own name for it.
struct Family {
  std::string name;
  Json description;
};

Error read_families(std::vector<Family>* out);

// The family that lists one of the file's architectures and its model_type, or, in a file without any architecture,
// the latter alone. The error for one that no family lists names those that are spelt most like it.
Error find_family(const std::vector<Family>& families, JsonFields& file, const Family** out, std::string* architecture);

// A switch of the description: true, false, or the name of the field of config.json that says it.
bool read_switch(JsonFields& family, std::string_view name, JsonFields& file);

// --- latent_config.cpp: attention whose keys and values are made of a narrow vector.

// Fills out->latent and head_dim, in a family with such attention.
void read_latent(JsonFields& file, ModelConfig* out);

// Where a rope stretches the context, scores grow with the square of its mscale_all_dim's magnitude. After read_ropes.
void stretch_scores(ModelConfig* out);

// --- rope_config.cpp: rope_theta beside rope_scaling, or all of it in rope_parameters, both as published.

// Fills out->ropes; the head's and the context's sizes are there already. An unknown kind and an unknown field are
// errors in `file`. The family's description says what else it has: partial_rotary, ntk_alpha, query_scaling,
// ropes_by_layer_type.
void read_ropes(JsonFields& family, JsonFields& file, ModelConfig* out);

// --- recurrence_config.cpp: which layers are recurrent instead of attending, and their shape.

void read_recurrence(JsonFields& family, JsonFields& file, ModelConfig* out);

// How many layers the file says what they are of.
int64_t listed_layers(JsonFields& file);

// --- scales_config.cpp: numbers that matrices' outputs are multiplied by.

// When the recurrence is known: the convolution's inputs have some, too.
void read_output_scales(JsonFields& family, JsonFields& file, ModelConfig* out);

// --- altup_config.cpp: several residual streams, embeddings of each layer, and what else came with them (Gemma 3n).

// When the windows are known: whose keys and values a layer reads, whose gates are sparse, sizes of the rest.
void read_altup(JsonFields& family, JsonFields& file, ModelConfig* out);

// --- experts_config.cpp: a mixture of experts.

// out's layers are known already. A family without experts has nothing to read.
void read_experts(JsonFields& family, JsonFields& file, ModelConfig* out);

// Whether a quantization_config is one of experts in 4 bits, in a family where these are read.
bool has_mxfp4_experts(JsonFields& family, JsonFields& quantization);

// That quantization_config. What it leaves as it is must not be experts.
Error read_mxfp4_experts(JsonFields& quantization, ExpertsConfig* out);

// --- module_names.cpp: what tensors are called, and which are not read.

// When everything but the MTP layer is known. An error of the description.
Error read_modules(JsonFields& family, JsonFields& file, ModelConfig* out);

// --- mtp_config.cpp: a layer that predicts one token more, where the family may have one.

void read_mtp(JsonFields& file, ModelConfig* out);

// --- other_fields.cpp: fields that nothing reads. Those that the reference reads are refused, all others ignored.

// To be called when everything else has read the file. Also checks the fields that must have one value. Gives
// ignored_fields.
Error check_other_fields(JsonFields& file, JsonFields& family, ModelConfig* out);

}  // namespace pinion
