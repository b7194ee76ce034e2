// Reads one JSON value as it comes, piece by piece, and finds its end: what it accepts is valid JSON at any time.
#pragma once

#include <string>
#include <string_view>

namespace pinion {

class JsonScanner {
 public:
  enum class State { kGoing, kDone, kWrong };

  // Reads up to the value's end or the first wrong byte and returns how many bytes it took. Appends them to `*out`, but
  // for control characters in strings: models write newlines there, JSON has escapes for them.
  // A number outside of all brackets ends with the byte behind it.
  size_t put(std::string_view text, std::string* out);
  State state() const { return state_; }

 private:
  enum class Expect {
    kValue,
    kElementOrEnd,
    kKeyOrEnd,
    kKey,
    kColon,
    kCommaOrEnd,
    kString,
    kEscape,
    kHex,
    kLiteral,
    // Parts of a number, by what was read last.
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
  };

  // Whether the byte is part of the value. False while the value goes on: a number ended before it.
  bool take(char c);
  bool take_between(char c);
  bool begin_value(char c);
  bool take_string(char c);
  bool take_escape(char c);
  bool take_hex(char c);
  bool take_number(char c);
  bool open(char c, Expect next);
  bool close(char c);
  bool go_on(Expect next);
  bool wrong();
  void end_value();

  State state_ = State::kGoing;
  Expect expect_ = Expect::kValue;
  std::string open_;               // the brackets around, '{' and '['
  bool in_key_ = false;            // the string is a key
  bool needs_low_half_ = false;    // a \uD83D was read, of two that make one character
  int hex_digits_ = 0;             // of \u00e9
  unsigned hex_ = 0;               // their value
  std::string_view literal_ = {};  // the rest of true, false or null
};

// Appends bytes of a JSON string, without the quotes around it.
void append_json_escaped(std::string_view text, std::string* out);

// The string of a valid JSON string; empty also where it is none.
std::string json_string(const std::string& json);

}  // namespace pinion
