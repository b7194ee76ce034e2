// Errors as values. A function that can fail returns an Error; an empty one means success:
//   if (Error e = open_file(path, &file)) return e;
#pragma once

#include <string>
#include <utility>

namespace pinion {

struct [[nodiscard]] Error {
  std::string what;      // what is wrong: "shape differs", "no such file"
  std::string where;     // the file, tensor, field or argument concerned
  std::string expected;  // empty where the cause says it all
  std::string actual;

  explicit operator bool() const { return !what.empty(); }

  // One line: "WHERE: WHAT: want EXPECTED, have ACTUAL".
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
