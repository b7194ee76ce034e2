#include "loader/config/config_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/base/math.h"

namespace pinion {
namespace {

struct RopeKindRow {
  std::string_view name;
  RopeKind kind;
};

constexpr RopeKindRow kRopeKinds[] = {
    {"default", RopeKind::none}, {"linear", RopeKind::linear}, {"dynamic", RopeKind::dynamic},
    {"yarn", RopeKind::yarn},    {"llama3", RopeKind::llama3}, {"longrope", RopeKind::longrope},
    {"su", RopeKind::longrope},  // its first name
};

// What stands outside the object that describes a rotation, and what the family allows inside.
struct Surroundings {
  double theta;
  double partial;
  std::optional<int64_t> original_max_positions;  // rules over the one inside
  bool may_be_partial;
  bool has_alpha;
  bool scales_queries;
  bool has_sections;
};

// The share of a head that is rotated.
void read_rotated_part(JsonFields& rope, const Surroundings& around, int64_t head_dim, Rope* r) {
  const double part = rope.number("partial_rotary_factor", around.partial, 0.0, 1.0);
  if (part != 1.0 && !around.may_be_partial) rope.fail("partial_rotary_factor", "not supported", "1");
  r->dims = static_cast<int64_t>(static_cast<double>(head_dim) * part);
  if (r->dims < 2 || r->dims % 2 != 0) {
    rope.fail("partial_rotary_factor", "out of range", "an even number of rotated elements", std::to_string(r->dims));
    r->dims = 2;
  }
}

// Hunyuan: with alpha a "dynamic" rotation is a plain one whose base is stretched once and for all.
void read_alpha(JsonFields& rope, Rope* r) {
  const double alpha = rope.number("alpha", 0.0, 0.0, 1e9);
  if (r->kind != RopeKind::dynamic || alpha == 0.0) return;
  if (alpha < 1.0) return rope.fail("alpha", "out of range", "0 or at least 1");
  if (r->dims < 4) return rope.fail("alpha", "needs a wider head", "at least 4 rotated elements");
  const auto d = static_cast<double>(r->dims);
  r->kind = RopeKind::none;
  r->theta *= portable_pow(alpha, d / (d - 2.0));
}

void read_longrope(JsonFields& rope, Rope* r) {
  r->short_factor = rope.numbers("short_factor", 1e-3, 1e6);
  r->long_factor = rope.numbers("long_factor", 1e-3, 1e6);
  if (r->kind != RopeKind::longrope) return;
  const auto wanted = static_cast<size_t>(r->dims / 2);
  if (r->short_factor.size() == wanted && r->long_factor.size() == wanted) return;
  rope.fail("short_factor, long_factor", "wrong length", std::to_string(wanted),
            std::to_string(r->short_factor.size()) + " and " + std::to_string(r->long_factor.size()));
}

// Factors that stretch: `factor` itself and llama3's borders.
void read_factors(JsonFields& rope, int64_t max_positions, Rope* r) {
  std::optional<double> factor;
  if (r->kind == RopeKind::none) factor = 1.0;
  if (r->kind == RopeKind::yarn || r->kind == RopeKind::longrope) {
    factor = static_cast<double>(max_positions) / static_cast<double>(r->original_max_positions);
  }
  r->factor = rope.number("factor", factor, 1e-3, 1e6);
  const bool llama3 = r->kind == RopeKind::llama3;
  const std::optional<double> optional_here = llama3 ? std::nullopt : std::optional(0.0);
  r->low_freq_factor = rope.number("low_freq_factor", optional_here, 0.0, 1e6);
  r->high_freq_factor = rope.number("high_freq_factor", optional_here, 0.0, 1e6);
  if (llama3 && !(r->low_freq_factor > 0.0 && r->high_freq_factor > r->low_freq_factor)) {
    rope.fail("high_freq_factor", "out of range", "more than low_freq_factor, which is more than 0");
  }
}

// Where a rule would divide by zero.
void check_defined(JsonFields& rope, const Rope& r) {
  if (r.kind == RopeKind::longrope && r.original_max_positions < 2) {
    rope.fail("original_max_position_embeddings", "out of range for longrope", "at least 2",
              std::to_string(r.original_max_positions));
  }
  if (r.kind == RopeKind::yarn && !(r.theta > 1.0)) {
    rope.fail("rope_theta", "out of range for yarn", "more than 1", "1");
  }
  if (r.kind == RopeKind::dynamic && r.dims < 4) {
    rope.fail("rope_type", "dynamic rotates at least 4 of a head's numbers", {}, std::to_string(r.dims));
  }
}

// Fields of every kind are read whatever the kind is: those of another kind do nothing, as in transformers.
Rope read_rope(JsonFields& rope, const Surroundings& around, const ModelConfig& config) {
  Rope r;
  const std::string old_name = rope.text("type", "default");
  std::string name = rope.text("rope_type", old_name);
  if (around.has_sections && name == "mrope") name = "default";
  const auto row = std::ranges::find(kRopeKinds, name, &RopeKindRow::name);
  if (row == std::end(kRopeKinds)) {
    rope.fail("rope_type", "unknown kind", "default, linear, dynamic, yarn, llama3 or longrope", brief(name));
    return r;
  }
  r.kind = row->kind;
  r.theta = rope.number("rope_theta", around.theta, 1.0, 1e15);
  r.original_max_positions = rope.integer("original_max_position_embeddings", config.max_positions, 1, kMaxPositions);
  r.original_max_positions = around.original_max_positions.value_or(r.original_max_positions);
  read_rotated_part(rope, around, config.latent.rank > 0 ? config.latent.rope_dims : config.head_dim, &r);
  read_factors(rope, config.max_positions, &r);
  check_defined(rope, r);
  if (rope.has("attention_factor")) r.attention_factor = rope.number("attention_factor", {}, 0.0, 1e6);
  r.mscale = rope.number("mscale", r.mscale, 0.0, 1e6);
  r.mscale_all_dim = rope.number("mscale_all_dim", r.mscale_all_dim, 0.0, 1e6);
  r.beta_fast = rope.number("beta_fast", r.beta_fast, 1e-3, 1e6);
  r.beta_slow = rope.number("beta_slow", r.beta_slow, 1e-3, 1e6);
  r.truncate = rope.boolean("truncate", r.truncate);
  read_longrope(rope, &r);
  if (around.has_alpha) read_alpha(rope, &r);
  if (around.scales_queries) {
    r.query_beta = rope.number("llama_4_scaling_beta", 0.0, 0.0, 1e3);
    rope.integer("max_position_embeddings", config.max_positions);  // a copy
  }
  if (around.has_sections) {  // which angles follow an image's rows and columns: in a text all positions are one
    rope.integers("mrope_section");
    rope.boolean("mrope_interleaved", false);
  }
  rope.boolean("finetuned", false);  // a note of some authors
  std::string unknown;
  for (const std::string& field : rope.unread()) unknown += (unknown.empty() ? "" : ", ") + field;
  if (!unknown.empty()) rope.fail(brief(unknown), "unknown field");
  return r;
}

}  // namespace

void read_ropes(JsonFields& family, JsonFields& file, ModelConfig* out) {
  out->rope_of_neighbours = family.has("rope_of_neighbours") && read_switch(family, "rope_of_neighbours", file);
  Surroundings around = {file.number(family.text("rope_theta", "rope_theta"), 10000.0, 1.0, 1e15),
                         file.number(family.text("partial_rotary_factor", "partial_rotary_factor"), 1.0, 0.0, 1.0),
                         {},
                         family.boolean("partial_rotary", false),
                         family.boolean("ntk_alpha", false),
                         family.boolean("query_scaling", false),
                         family.boolean("mrope", false)};
  if (file.has("original_max_position_embeddings")) {
    around.original_max_positions = file.integer("original_max_position_embeddings", {}, 1, kMaxPositions);
  }
  JsonFields parameters = file.fields("rope_parameters");
  JsonFields scaling = file.fields("rope_scaling");
  const auto add = [&](const JsonFields& fields) {
    JsonFields rope{fields.object, fields.where, file.error};
    out->ropes.push_back(read_rope(rope, around, *out));
    file.error = rope.error;
  };
  if (!family.boolean("ropes_by_layer_type", false)) return add(scaling.object.empty() ? parameters : scaling);

  const JsonFields full = parameters.fields("full_attention"), sliding = parameters.fields("sliding_attention");
  if (const auto unknown = parameters.unread(); !unknown.empty()) parameters.fail(unknown[0], "unknown layer type");
  if (!file.error) file.error = parameters.error;
  // The older spelling's rope_scaling is for the layers that see everything.
  add(scaling.object.empty() ? full : scaling);
  around.theta = file.number("rope_local_base_freq", 10000.0, 1.0, 1e15);
  add(sliding);
}

}  // namespace pinion
