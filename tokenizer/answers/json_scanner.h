// Finds the end of one JSON value that comes in chunks. The accepted bytes are always a prefix of valid JSON.
#pragma once

#include <string>
#include <string_view>

namespace pinion {

class JsonScanner {
 public:
  enum class State { kIncomplete, kComplete, kInvalid };

  // Reads up to the end of the value or the first invalid byte, appends the bytes to `*out` and returns their count.
  // Control characters in strings become escapes. A number that is the whole value is complete once a byte follows.
  size_t put(std::string_view text, std::string* out);
  State state() const { return state_; }

 private:
  enum class Expect { kValue, kItemOrEnd, kKeyOrEnd, kKey, kColon, kComma, kString, kEscape, kHex, kLiteral, kNumber };

  // Each returns whether it consumed the byte. A number ends without consuming the byte behind it.
  bool take(char c);
  bool take_between(char c);
  bool begin_value(char c);
  bool take_string(char c);
  bool take_escape(char c);
  bool take_hex(char c);
  bool take_number(char c);
  bool open(char c, Expect next);
  bool close(char c);
  bool advance(Expect next);
  bool reject();
  void end_value();

  State state_ = State::kIncomplete;
  Expect expect_ = Expect::kValue;
  std::string open_;               // enclosing brackets, '{' and '['
  bool in_key_ = false;            // the current string is a key
  bool needs_low_half_ = false;    // the first half of a surrogate pair was read
  int hex_digits_ = 0;             // of \uXXXX
  unsigned hex_ = 0;               // their value
  std::string_view literal_ = {};  // the rest of true, false or null
  std::string number_;             // the bytes of the current number
};

// `text` as the content of a JSON string, without quotes.
std::string json_escaped(std::string_view text);

// Decodes a JSON string; empty if `json` is not a string.
std::string json_string(const std::string& json);

}  // namespace pinion
