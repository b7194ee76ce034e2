// Converts folders of tests/data/families with small groups of 4-bit codes to groups of 32, which w4 keeps.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "loader/checkpoint/checkpoint.h"
#include "loader/files/json.h"
#include "tests/loader/make_files.h"

namespace pinion {

// Every step-th entry along one axis of a matrix.
inline TensorView every(const TensorView& tensor, size_t axis, int64_t step, std::string* bytes) {
  const int64_t element = tensor.bytes / tensor.elements(), columns = tensor.shape[1];
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const int64_t at = axis == 0 ? i / columns : i % columns;
    if (at % step == 0) {
      bytes->append(reinterpret_cast<const char*>(tensor.data + i * element), element);
    }
  }
  TensorView part = tensor;
  part.shape[axis] = (tensor.shape[axis] + step - 1) / step;
  return part;
}

// Keeps the codes. A group takes the scale and zero point of its first small group.
inline void write_wide_groups(const std::string& family, const TempFolder& folder) {
  const std::string from = PINION_TEST_DATA "/families/" + family;
  Json config;
  ASSERT_EQ(read_json_file(from + "/config.json", &config).message(), "");
  Json& stored = config["quantization_config"];
  Json& settings = stored.contains("config_groups") ? stored["config_groups"]["group_0"]["weights"] : stored;
  const int64_t step = 32 / settings["group_size"].get<int64_t>();
  ASSERT_GT(step, 1);
  settings["group_size"] = 32;
  Checkpoint checkpoint;
  ASSERT_EQ(open_checkpoint(from, &checkpoint).message(), "");
  Json header = Json::object();
  std::string data;
  for (const TensorView& tensor : checkpoint.tensors) {
    const auto ends_in = [&](const char* suffix) { return tensor.name.ends_with(suffix); };
    const size_t begin = data.size();
    TensorView part = tensor;
    if (ends_in(".scales") || ends_in(".qzeros")) {
      part = every(tensor, 0, step, &data);
    } else if (ends_in(".weight_scale") || ends_in(".weight_zero_point")) {
      part = every(tensor, 1, step, &data);
    } else {
      data.append(reinterpret_cast<const char*>(tensor.data), tensor.bytes);
    }
    header[part.name] = {
        {"dtype", dtype_name(part.dtype)}, {"shape", part.shape}, {"data_offsets", {begin, data.size()}}};
  }
  folder.write("config.json", config.dump());
  folder.write("model.safetensors", safetensors_text(header.dump(), data));
}

}  // namespace pinion
