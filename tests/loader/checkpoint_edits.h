// Copies of a model folder whose tensors or config.json a test changes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "loader/checkpoint/safetensors.h"
#include "loader/files/json.h"
#include "tests/loader/coded_checkpoint.h"

namespace pinion {

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<Tensor> tensors_in(const std::filesystem::path& path) {
  const std::string file = read_bytes(path);
  Safetensors parsed;
  EXPECT_EQ(parse_safetensors(as_bytes(file), path.string(), &parsed).message(), "");
  std::vector<Tensor> tensors;
  for (const TensorView& t : parsed.tensors) {
    tensors.push_back({t.name, std::string(dtype_name(t.dtype)), shape_text(t.shape),
                       std::string(reinterpret_cast<const char*>(t.data), static_cast<size_t>(t.bytes))});
  }
  return tensors;
}

// A writable copy of a folder of tests/data.
struct EditableFolder : TempFolder {
  explicit EditableFolder(const std::string& name) {
    std::filesystem::copy(PINION_TEST_DATA "/" + name, path, std::filesystem::copy_options::recursive);
  }

  void replace_file(const std::string& name, const std::string& contents) const {
    std::filesystem::remove(path / name);
    write(name, contents);
  }
  void edit_config(const std::function<void(Json& config)>& change) const {
    Json config = Json::parse(read_bytes(path / "config.json"));
    change(config);
    replace_file("config.json", config.dump());
  }
  void edit_tensors(const std::function<void(std::vector<Tensor>& tensors)>& change) const {
    std::vector<Tensor> tensors = tensors_in(path / "model.safetensors");
    change(tensors);
    replace_file("model.safetensors", file_of(tensors));
  }
  void rename_tensors(const std::function<std::string(const std::string& name)>& renamed) const {
    edit_tensors([&](std::vector<Tensor>& tensors) {
      for (Tensor& tensor : tensors) tensor.name = renamed(tensor.name);
    });
  }
};

inline Tensor& tensor_named(std::vector<Tensor>& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &Tensor::name);
  EXPECT_NE(found, tensors.end()) << name;
  return found != tensors.end() ? *found : tensors.front();
}

}  // namespace pinion
