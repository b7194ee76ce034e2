// Errors as values. A function that can fail returns an Error, and an empty Error means success:
//   if (Error e = open_file(path, &file)) return e;
// The library neither prints nor aborts; the caller decides.
#pragma once

#include <cstdint>
#include <string>
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

inline Error error(std::string what, std::string where, std::string expected = {}, std::string actual = {}) {
  return Error{std::move(what), std::move(where), std::move(expected), std::move(actual)};
}

}  // namespace pinion
