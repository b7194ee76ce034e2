// Arbitrary bytes as a quantised matrix: a line of JSON with its shape and the quantization_config, then the
// safetensors file. Refused with an error, or all rows are readable, with the same numbers in any split.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/files/json.h"
#include "loader/quant/stored_weights.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"

namespace {

using pinion::failed;

bool read_shape(std::string_view line, pinion::Quantization* quantization, int64_t* n, int64_t* k) {
  pinion::Json json;
  if (failed(pinion::parse_json(line, "config.json", &json))) return false;
  pinion::JsonFields fields{json, "config.json"};
  *n = fields.integer("n", {}, 1, 1 << 20);
  *k = fields.integer("k", {}, 1, pinion::kMaxK);
  pinion::JsonFields config = fields.fields("quantization_config");
  return !failed(config.error) && !failed(pinion::read_quantization(config, quantization));
}

// Rows [0, n), `step` of them at a time.
std::vector<float> read_by(const pinion::LinearWeight& weight, int64_t step) {
  const int64_t n = weight.coded.n, k = weight.coded.k;
  std::vector<float> values(static_cast<size_t>(n * k));
  for (int64_t row = 0; row < n; row += step) {
    const int64_t count = std::min(step, n - row);
    const pinion::CodedMatrix piece = pinion::rows_of(weight, row, count).coded;
    pinion::read_rows(piece, 0, count, values.data() + row * k);
    (void)failed(pinion::explain_nan(piece, count - 1));
  }
  return values;
}

}  // namespace

FUZZ_TARGET(stored_weights) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const size_t line = std::min(text.find('\n'), size);
  std::optional<pinion::Quantization> quantization(std::in_place);
  int64_t n = 0, k = 0;
  if (line == size || !read_shape(text.substr(0, line), &*quantization, &n, &k)) return 0;
  pinion::Safetensors parsed;
  const std::span<const std::byte> file{reinterpret_cast<const std::byte*>(data), size};
  if (failed(pinion::parse_safetensors(file.subspan(line + 1), "file", &parsed))) return 0;
  pinion::Checkpoint checkpoint;
  checkpoint.folder = "folder";
  checkpoint.tensors = parsed.tensors;
  if (failed(pinion::select_tensors({}, &checkpoint))) return 0;
  pinion::LinearWeight weight;
  if (failed(pinion::bind_linear(checkpoint, quantization, "m", n, k, &weight)) || !weight.coded.format) return 0;
  const std::vector<float> whole = read_by(weight, n), pieces = read_by(weight, 3);
  pinion::require(std::memcmp(whole.data(), pieces.data(), whole.size() * sizeof(float)) == 0);
  return 0;
}
