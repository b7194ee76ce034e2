// Writes GGUF files for tests, byte by byte: valid ones, and malformed ones from raw values.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace pinion {

// The bytes of a number, little-endian.
template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string gguf_text(std::string_view text) { return raw(uint64_t{text.size()}).append(text); }

// Types of values in the metadata.
enum GgufValue : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

inline std::string gguf_array(uint32_t type, uint64_t count, std::string_view items) {
  return raw(type) + raw(count).append(items);
}

struct GgufWriter {
  uint32_t version = 3;
  uint64_t alignment = 32;  // a test that changes it also adds the key
  uint64_t keys = 0, tensors = 0;
  std::string metadata = {}, infos = {}, data = {};

  void add(std::string_view key, uint32_t type, std::string_view value) {
    metadata += gguf_text(key) + raw(type).append(value);
    ++keys;
  }

  void add(std::string_view key, uint32_t value) { add(key, kU32, raw(value)); }
  void add(std::string_view key, float value) { add(key, kF32, raw(value)); }
  void add(std::string_view key, std::same_as<bool> auto value) { add(key, kBool, std::string(1, value ? 1 : 0)); }
  void add(std::string_view key, std::string_view value) { add(key, kString, gguf_text(value)); }
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }

  void add(std::string_view key, const std::vector<std::string>& values) {
    std::string items;
    for (const std::string& value : values) items += gguf_text(value);
    add(key, kArray, gguf_array(kString, values.size(), items));
  }

  void add(std::string_view key, const std::vector<int32_t>& values) { add_numbers(key, kI32, values); }
  void add(std::string_view key, const std::vector<float>& values) { add_numbers(key, kF32, values); }

  template <class T>
  void add_numbers(std::string_view key, uint32_t type, const std::vector<T>& values) {
    std::string items;
    for (const T value : values) items += raw(value);
    add(key, kArray, gguf_array(type, values.size(), items));
  }

  // The description alone. Sizes as in the file, innermost first.
  void add_info(std::string_view name, const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset) {
    infos += gguf_text(name) + raw(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t size : sizes) infos += raw(size);
    infos += raw(type) + raw(offset);
    ++tensors;
  }

  void add_tensor(std::string_view name, const std::vector<uint64_t>& sizes, uint32_t type, std::string_view bytes) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    add_info(name, sizes, type, data.size());
    data += bytes;
  }

  std::string header() const { return "GGUF" + raw(version) + raw(tensors) + raw(keys) + metadata + infos; }

  std::string file() const {
    std::string text = header();
    text.resize((text.size() + alignment - 1) / alignment * alignment);
    return text + data;
  }
};

}  // namespace pinion
