// Checkpoints with one matrix "m" of codes, written tensor by tensor.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "kernels/layout.h"
#include "loader/files/mapped_file.h"
#include "loader/pack/pack.h"
#include "loader/quant/stored_weights.h"
#include "tests/crew.h"
#include "tests/loader/make_files.h"

namespace pinion {

struct Tensor {
  std::string name, dtype, shape, data;
};

template <class T>
std::string bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline Tensor words(const std::string& name, const std::string& shape, const std::vector<uint32_t>& values) {
  return {name, "I32", shape, bytes(values)};
}

inline Tensor integers(const std::string& name, const std::string& shape, const std::vector<int8_t>& values) {
  return {name, "I8", shape, bytes(values)};
}

inline Tensor floats(const std::string& name, const std::string& shape, const std::vector<float>& values) {
  return {name, "F32", shape, bytes(values)};
}

inline std::string file_of(const std::vector<Tensor>& tensors) {
  std::string header, data;
  for (const Tensor& tensor : tensors) {
    header += (header.empty() ? "{\"" : ", \"") + tensor.name + R"(": {"dtype": ")" + tensor.dtype + R"(", "shape": )" +
              tensor.shape + ", \"data_offsets\": [" + std::to_string(data.size()) + ", ";
    data += tensor.data;
    header += std::to_string(data.size()) + "]}";
  }
  return safetensors_text(header + "}", data);
}

// A checkpoint of these tensors and its weight "m" [n, k], bound with a quantization_config.
struct Bound {
  TempFolder folder;
  Checkpoint checkpoint;
  std::optional<Quantization> quantization;
  LinearWeight weight;
  std::string failure;

  Bound(const std::string& config, int64_t n, int64_t k, const std::vector<Tensor>& tensors) {
    folder.write("model.safetensors", file_of(tensors));
    EXPECT_EQ(open_checkpoint(folder.path, &checkpoint).message(), "");
    const Json json = Json::parse(config);
    JsonFields fields{json, "config"};
    Error e = read_quantization(fields, &quantization.emplace());
    if (!e) e = bind_linear(checkpoint, quantization, "m", n, k, &weight);
    failure = e.message();
    const std::string file = checkpoint.folder + "/model.safetensors: ";
    if (failure.starts_with(file)) failure.erase(0, file.size());
  }

  std::vector<float> rows(int64_t first, int64_t count) const {
    std::vector<float> values(count * weight.coded.k);
    read_rows(weight.coded, first, count, values.data());
    return values;
  }
};

using Values = std::vector<float>;

inline constexpr const char* kGptq = R"({"quant_method": "gptq", "bits": 4, "group_size": 4, "desc_act": false})";
inline constexpr const char* kAwq = R"({"quant_method": "awq", "bits": 4, "group_size": 2, "version": "GEMM"})";

// A config of compressed-tensors; group_size 0 becomes null.
inline std::string config_of(const std::string& format, int bits, const std::string& strategy, int group_size,
                             bool symmetric) {
  return R"({"quant_method": "compressed-tensors", "format": ")" + format + R"(", "config_groups": {"group_0": {
      "targets": ["Linear"], "weights": {"type": "int", "dynamic": false, "num_bits": )" +
         std::to_string(bits) + R"(, "strategy": ")" + strategy + R"(", "group_size": )" +
         (group_size ? std::to_string(group_size) : "null") + R"(, "symmetric": )" + (symmetric ? "true" : "false") +
         "}}}}";
}

inline std::string packed_config(int bits, const std::string& strategy, int group_size, bool symmetric) {
  return config_of("pack-quantized", bits, strategy, group_size, symmetric);
}

inline std::string bytes_config(int bits, const std::string& strategy, int group_size, bool symmetric) {
  return config_of("int-quantized", bits, strategy, group_size, symmetric);
}

// Every column has the codes 0 to 7 along k; zero points are stored as 6, scales are 1 and 10.
inline std::vector<Tensor> gptq_tensors() {
  return {words("m.qweight", "[1, 8]", std::vector<uint32_t>(8, 0x76543210)),
          words("m.qzeros", "[2, 1]", {0x66666666, 0x66666666}),
          floats("m.scales", "[2, 8]", {1, 1, 1, 1, 1, 1, 1, 1, 10, 10, 10, 10, 10, 10, 10, 10}),
          words("m.g_idx", "[8]", {0, 0, 0, 0, 1, 1, 1, 1})};
}

inline const std::string kFp8Codes("\x38\xc0\x7e\x01\x08\x38", 6);  // 1, -2, 448, 2^-9, 2^-6, 1

inline std::string pack(const LinearWeight& weight, Format format, int threads, Arena* out) {
  Matrix matrix;
  const PackJob job{weight.weight, format, &matrix, weight.scale, reader_of(weight, false)};
  EXPECT_EQ(allocate_arena(packed_bytes({&job, 1}), out).message(), "");
  std::memset(out->data, 0x55, out->bytes);  // padding must be written
  return pack_all(crew(threads), {&job, 1}, out->data).message();
}

inline std::string pack_message(const Bound& bound) {
  Arena arena;
  return pack(bound.weight, Format::w8, 2, &arena);
}

}  // namespace pinion
