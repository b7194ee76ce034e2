#include <nlohmann/json.hpp>

#include "loader/config/config_parts.h"

namespace pinion {
namespace {

constexpr double kLargest = 1e9;

float read_number(JsonFields& rules, std::string_view name, JsonFields& file) {
  const std::string field = rules.text(name, "");
  return field.empty() ? 1.0f : static_cast<float>(file.number(field, {}, -kLargest, kLargest));
}

// As many numbers as there are places; ones where the field is absent.
void read_numbers(JsonFields& rules, std::string_view name, JsonFields& file, std::initializer_list<float*> places) {
  const std::string field = rules.text(name, "");
  if (field.empty() || !file.has(field)) return;
  const std::vector<double> values = file.numbers(field, -kLargest, kLargest);
  if (values.size() != places.size()) {
    return file.fail(field, "wrong length", std::to_string(places.size()), std::to_string(values.size()));
  }
  size_t i = 0;
  for (float* place : places) *place = static_cast<float>(values[i++]);
}

}  // namespace

void read_output_scales(JsonFields& family, JsonFields& file, ModelConfig* out) {
  JsonFields rules = family.fields("output_scales");
  if (rules.object.empty()) return;
  OutputScales& scales = out->output_scales;
  Recurrence& state = out->recurrence;
  scales.qkv = read_number(rules, "qkv", file);
  scales.key = read_number(rules, "key", file);
  scales.o = read_number(rules, "o", file);
  read_numbers(rules, "gate_down", file, {&scales.gate, &scales.down});
  read_numbers(rules, "state_parts", file,
               {&scales.state_z, &state.value_scale, &state.key_scale, &state.query_scale, &scales.state_a});
  const float in = read_number(rules, "state_in", file);
  for (float* part : {&scales.state_z, &state.value_scale, &state.key_scale, &state.query_scale, &scales.state_a}) {
    *part *= in;
  }
  scales.state_out = read_number(rules, "state_out", file);
  if (!family.error) family.error = rules.error;
}

}  // namespace pinion
