#include "tokenizer/answers/json_scanner.h"

#include <nlohmann/json.hpp>

#include "kernels/base/text.h"

namespace pinion {
namespace {

constexpr size_t kMaxNesting = 128;  // deeper values may overflow the stack of a client's JSON parser

bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20; }

}  // namespace

size_t JsonScanner::put(std::string_view text, std::string* out) {
  size_t bytes = 0;
  while (bytes < text.size() && state_ == State::kIncomplete) {
    const char c = text[bytes];
    const bool in_string = expect_ == Expect::kString;
    if (!take(c)) continue;
    ++bytes;
    *out += in_string && is_control(c) ? json_escaped({&c, 1}) : std::string{c};
  }
  return bytes;
}

bool JsonScanner::reject() {
  state_ = State::kInvalid;
  return false;
}

bool JsonScanner::advance(Expect next) {
  expect_ = next;
  return true;
}

void JsonScanner::end_value() {
  if (open_.empty()) state_ = State::kComplete;
  expect_ = Expect::kComma;
}

bool JsonScanner::open(char c, Expect next) {
  if (open_.size() == kMaxNesting) return reject();
  open_ += c;
  return advance(next);
}

bool JsonScanner::close(char c) {
  if (open_.back() != (c == '}' ? '{' : '[')) return reject();
  open_.pop_back();
  end_value();
  return true;
}

bool JsonScanner::begin_value(char c) {
  in_key_ = false;
  if (c == '{') return open(c, Expect::kKeyOrEnd);
  if (c == '[') return open(c, Expect::kItemOrEnd);
  if (c == '"') return advance(Expect::kString);
  if (c == 't' || c == 'f' || c == 'n') {
    literal_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
    return advance(Expect::kLiteral);
  }
  number_ = c;
  return c == '-' || is_digit(c) ? advance(Expect::kNumber) : reject();
}

bool JsonScanner::take_escape(char c) {
  if (needs_low_half_ && c != 'u') return reject();
  if (c == 'u') {
    hex_digits_ = 0;
    hex_ = 0;
    return advance(Expect::kHex);
  }
  return std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos ? advance(Expect::kString) : reject();
}

// Rejects an escape of a lone surrogate, as JSON parsers do.
bool JsonScanner::take_hex(char c) {
  const std::optional<uint32_t> value = parse_hex({&c, 1}, 1);
  if (!value) return reject();
  hex_ = hex_ * 16 + *value;
  if (++hex_digits_ < 4) return true;
  const bool is_high_half = hex_ >= 0xD800 && hex_ < 0xDC00, is_low_half = hex_ >= 0xDC00 && hex_ < 0xE000;
  if (is_low_half != needs_low_half_) return reject();
  needs_low_half_ = is_high_half;
  return advance(Expect::kString);
}

bool JsonScanner::take_string(char c) {
  if (needs_low_half_ && c != '\\') return reject();
  if (c == '\\') return advance(Expect::kEscape);
  if (c != '"') return true;
  if (in_key_) return advance(Expect::kColon);
  end_value();
  return true;
}

bool JsonScanner::take_number(char c) {
  const bool had_digit = is_digit(number_.back()), is_e = c == 'e' || c == 'E';
  const auto has = [&](std::string_view bytes) { return number_.find_first_of(bytes) != number_.npos; };
  if (is_digit(c)) {
    if (number_ == "0" || number_ == "-0") return reject();
  } else if (!had_digit) {
    if ((c != '+' && c != '-') || (number_.back() | 0x20) != 'e') return reject();
  } else if ((c != '.' && !is_e) || has(is_e ? "eE" : ".eE")) {
    end_value();
    return false;
  }
  number_ += c;
  return true;
}

bool JsonScanner::take_between(char c) {
  using enum Expect;
  if (is_json_space(c)) return true;
  if ((expect_ == kItemOrEnd && c == ']') || (expect_ == kKeyOrEnd && c == '}')) return close(c);
  if (expect_ == kKeyOrEnd || expect_ == kKey) {
    in_key_ = true;
    return c == '"' ? advance(kString) : reject();
  }
  if (expect_ == kColon) return c == ':' ? advance(kValue) : reject();
  if (expect_ != kComma) return begin_value(c);
  if (c == '}' || c == ']') return close(c);
  return c == ',' ? advance(open_.back() == '{' ? kKey : kValue) : reject();
}

bool JsonScanner::take(char c) {
  if (expect_ < Expect::kString) return take_between(c);
  if (expect_ == Expect::kNumber) return take_number(c);
  if (expect_ == Expect::kString) return take_string(c);
  if (expect_ == Expect::kEscape) return take_escape(c);
  if (expect_ == Expect::kHex) return take_hex(c);
  if (c != literal_.front()) return reject();
  literal_.remove_prefix(1);
  if (literal_.empty()) end_value();
  return true;
}

std::string json_escaped(std::string_view text) {
  constexpr std::string_view kEscaped = "\"\\\n\t\r\f\b", kLetters = "\"\\ntrfb";
  std::string json;
  for (const char c : text) {
    const size_t escape = kEscaped.find(c);
    if (escape != kEscaped.npos) {
      json += {'\\', kLetters[escape]};
    } else {
      json += is_control(c) ? formatted("\\u%04x", c) : std::string{c};
    }
  }
  return json;
}

std::string json_string(const std::string& json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace pinion
