// Errors as values. A function that can fail returns an Error, and an empty Error means success:
//   if (Error e = open_file(path, &file)) return e;
// The library neither prints nor aborts; the caller decides.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace pinion {

struct [[nodiscard]] Error {
  std::string what;      // the cause: "shape differs", "no such file"
  std::string where;     // the file, tensor, field or argument concerned
  std::string expected;  // empty if the cause needs no more detail
  std::string actual;
  int64_t needed_bytes = 0;  // of memory, if the failure is a lack of it

  explicit operator bool() const { return !what.empty(); }

  // "WHERE: WHAT: want EXPECTED, have ACTUAL", without the fields that are empty.
  std::string message() const {
    std::string text = where.empty() ? what : where + ": " + what;
    if (!expected.empty()) text += ": want " + expected;
    if (!actual.empty()) text += (expected.empty() ? ": " : ", have ") + actual;
    return text;
  }
};

// A text, or a number as text.
struct Shown : std::string {
  using std::string::string;
  Shown(std::string text) : std::string(std::move(text)) {}
  Shown(std::string_view text) : std::string(text) {}
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Shown(T number) : std::string(std::to_string(number)) {}
};

std::string at_most(auto number) { return "at most " + std::to_string(number); }
std::string at_least(auto number) { return "at least " + std::to_string(number); }

inline Error error(std::string what, std::string where, Shown expected = {}, Shown actual = {}) {
  return Error{std::move(what), std::move(where), std::move(expected), std::move(actual)};
}

}  // namespace pinion
