// Small operations on text that several folders need.
#pragma once

#include <charconv>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pinion {

// The text that printf writes.
[[gnu::format(printf, 1, 2)]] inline std::string formatted(const char* layout, ...) {
  std::va_list arguments, again;
  va_start(arguments, layout);
  va_copy(again, arguments);
  std::string text(std::vsnprintf(nullptr, 0, layout, arguments), '\0');
  std::vsnprintf(text.data(), text.size() + 1, layout, again);
  va_end(again);
  va_end(arguments);
  return text;
}

// Replaces each `what`, which is not empty.
inline std::string replaced(std::string_view text, std::string_view what, std::string_view with) {
  std::string result;
  for (size_t at; (at = text.find(what)) != text.npos; text.remove_prefix(at + what.size())) {
    result.append(text.substr(0, at)).append(with);
  }
  return result.append(text);
}

// The parts of a short text around the separators: one more than there are separators.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

inline bool is_hexadecimal(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// The number in the first `digits` bytes of a text.
inline std::optional<uint32_t> parse_hex(std::string_view text, size_t digits) {
  uint32_t value = 0;
  if (text.size() < digits) return {};
  const auto [end, code] = std::from_chars(text.data(), text.data() + digits, value, 16);
  return code == std::errc() && end == text.data() + digits ? std::optional(value) : std::nullopt;
}

}  // namespace pinion
