// A copy of a model whose norm weights in one layer are so large that the products overflow.
#pragma once

#include <cstdint>
#include <cstring>

#include "tests/apps/program.h"

namespace pinion {

struct Overflowing : Folder {
  explicit Overflowing(const std::string& from) {
    fs::copy(from, path);
    std::string file = read_file(path / "model.safetensors");
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
    const json header = json::parse(file.substr(8, header_bytes));
    const json& norm = header["model.layers.1.input_layernorm.weight"];
    const auto begin = norm["data_offsets"][0].get<size_t>(), end = norm["data_offsets"][1].get<size_t>();
    const std::string large = norm["dtype"] == "F32" ? std::string("\xff\xff\x7f\x7f", 4) : "\x7f\x7f";
    for (size_t at = begin; at < end; at += large.size()) file.replace(8 + header_bytes + at, large.size(), large);
    write_file(path / "model.safetensors", file);
  }
};

}  // namespace pinion
