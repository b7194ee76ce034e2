// What C hands in and out: options that begin with their size, lists, and memory that free() takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"

namespace pinion {

// The caller's options, of this version or another one: fields that it does not know are 0, fields that are not known
// here must be. Null: all defaults.
template <class Options>
Error read_options(const Options* given, const char* name, Options* out) {
  *out = {};
  if (!given) return {};
  constexpr size_t kMostBytes = 1 << 16;  // no later version's are that long
  if (given->size < sizeof given->size || given->size > kMostBytes) {
    return error("size is not set", name, "sizeof the options", std::to_string(given->size));
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  const size_t known = std::min(given->size, sizeof *out);
  std::memcpy(static_cast<void*>(out), bytes, known);
  if (std::any_of(bytes + known, bytes + given->size, [](std::byte b) { return b != std::byte{0}; })) {
    return error("has fields that this version of the library does not know", name,
                 std::to_string(sizeof *out) + " bytes", std::to_string(given->size));
  }
  return {};
}

inline std::string_view text_or_empty(const char* text) { return text ? text : ""; }

// A list of C strings, none of which may be null.
inline Error read_texts(const char* const* texts, size_t count, const char* name, std::vector<std::string>* out) {
  if (count > 0 && !texts) return error("NULL", name, std::to_string(count) + " texts");
  for (const char* text : std::span(texts, count)) {
    if (!text) return error("NULL", name, "texts");
    out->emplace_back(text);
  }
  return {};
}

// For pinion_free(). Throws where memory runs out.
template <class T>
T* allocate(size_t count) {
  void* memory = std::malloc(std::max<size_t>(1, count * sizeof(T)));
  if (!memory) throw std::bad_alloc();
  return static_cast<T*>(memory);
}

inline int32_t* copy_of(std::span<const int32_t> ids) {
  auto* copy = allocate<int32_t>(ids.size());
  std::ranges::copy(ids, copy);
  return copy;
}

// With a zero behind it.
inline char* copy_of(std::string_view text) {
  auto* copy = allocate<char>(text.size() + 1);
  std::ranges::copy(text, copy);
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace pinion
