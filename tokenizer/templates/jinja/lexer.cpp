// Tokens of a template, by the rules of Jinja's lexer with trim_blocks and lstrip_blocks. See syntax.h.
#include <algorithm>
#include <utility>

#include "kernels/base/text.h"
#include "tokenizer/templates/jinja.h"
#include "tokenizer/templates/jinja/syntax.h"

namespace pinion::jinja {
namespace {

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_outside();
    add(Kind::kEnd, {}, source_.size());
    return std::move(tokens_);
  }

 private:
  using Kind = Token::Kind;

  void add(Kind kind, std::string text, size_t offset) { tokens_.push_back({kind, std::move(text), offset}); }
  bool starts_with(std::string_view what, size_t at) const {
    return std::string_view(source_).substr(at).starts_with(what);
  }
  char char_at(size_t at) const { return at < source_.size() ? source_[at] : '\0'; }
  // The strip sign of a tag, - or +; '\0': another character.
  char strip_sign_at(size_t at) const { return char_at(at) == '-' || char_at(at) == '+' ? char_at(at) : '\0'; }
  size_t after_spaces(size_t at) const {
    for (size_t next = at; next < source_.size() && is_python_space(next_char(source_, &next)); at = next) continue;
    return at;
  }

  // Moves past the end of a tag, if `at_` is there. With the strip sign - it also skips the spaces behind it; without
  // one it skips one line end, unless `keeps_line`.
  bool accept_end(std::string_view tag, bool keeps_line) {
    size_t end = at_;
    const bool has_strip_sign = !starts_with(tag, at_);
    const char strip_sign = has_strip_sign ? char_at(at_) : '\0';
    if (has_strip_sign) {
      if ((strip_sign != '-' && (strip_sign != '+' || keeps_line)) || !starts_with(tag, at_ + 1)) return false;
      ++end;
    }
    end += tag.size();
    if (strip_sign == '-') end = after_spaces(end);
    if (!has_strip_sign && !keeps_line && char_at(end) == '\n') ++end;
    at_ = end;
    return true;
  }

  // Adds the text before a tag at `end`. The tag's strip sign, - or +, decides about spaces at the end of the text.
  void add_data(size_t end, char strip_sign, bool is_variable) {
    size_t last = end;
    const auto before_space = [&](size_t at) {  // start of a space that ends at `at`, else `at`
      size_t begin = at - 1;
      while (begin > at_ && (source_[begin] & 0xC0) == 0x80) --begin;
      size_t next = begin;
      return is_python_space(next_char(source_, &next)) ? begin : at;
    };
    if (strip_sign == '-') {
      for (size_t begin = last; last > at_ && (begin = before_space(last)) != last;) last = begin;
    } else if (strip_sign != '+' && !is_variable) {
      const size_t line_end = end == at_ ? std::string::npos : source_.rfind('\n', end - 1);
      const bool has_line = line_end != std::string::npos && line_end >= at_;
      const size_t line = has_line ? line_end + 1 : at_;
      if ((line == 0 || source_[line - 1] == '\n') && after_spaces(line) >= end) last = line;
    }
    if (last > at_) add(Kind::kData, source_.substr(at_, last - at_), at_);
  }

  // Start of the text of the {% raw %} at `tag`; 0 for another tag.
  size_t raw_begin(size_t tag) const {
    size_t at = after_spaces(tag + (strip_sign_at(tag + 2) != '\0' ? 3 : 2));
    if (!starts_with("raw", at)) return 0;
    at = after_spaces(at + 3);
    return starts_with("%}", at) ? at + 2 : starts_with("-%}", at) ? after_spaces(at + 3) : 0;
  }

  void read_raw() {
    const size_t begin = at_;
    for (size_t tag = source_.find("{%", begin); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const char strip_sign = strip_sign_at(tag + 2);
      const size_t name = after_spaces(tag + (strip_sign != '\0' ? 3 : 2));
      if (!starts_with("endraw", name)) continue;
      at_ = after_spaces(name + 6);
      if (!accept_end("%}", false)) continue;
      const size_t end = std::exchange(at_, begin);
      add_data(tag, strip_sign, false);
      at_ = end;
      return;
    }
    throw SyntaxFailure("missing end of raw directive", begin);
  }

  void read_outside() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos) {
        add(Kind::kData, source_.substr(at_), at_);
        at_ = source_.size();
        return;
      }
      if (starts_with("{%", tag) || starts_with("{{", tag) || starts_with("{#", tag)) break;
    }
    const char kind = source_[tag + 1], strip_sign = strip_sign_at(tag + 2);
    add_data(tag, strip_sign, kind == '{');
    at_ = tag + (strip_sign != '\0' ? 3 : 2);
    if (kind == '#') return read_comment();
    if (const size_t raw = kind == '%' ? raw_begin(tag) : 0; raw != 0) {
      at_ = raw;
      return read_raw();
    }
    add(kind == '{' ? Kind::kVariableBegin : Kind::kBlockBegin, {}, tag);
    read_tag(kind == '{');
  }

  void read_comment() {
    const size_t close = source_.find("#}", at_);
    if (close == std::string::npos) throw SyntaxFailure("missing end of comment tag", at_);
    at_ = close - (close > at_ && strip_sign_at(close - 1) != '\0' ? 1 : 0);
    accept_end("#}", false);
  }

  void read_tag(bool is_variable) {
    brackets_.clear();
    while (at_ < source_.size()) {
      const size_t begin = at_;
      if (brackets_.empty() && accept_end(is_variable ? "}}" : "%}", is_variable)) {
        return add(is_variable ? Kind::kVariableEnd : Kind::kBlockEnd, {}, begin);
      }
      at_ = after_spaces(at_);
      if (at_ != begin) continue;
      if (is_ascii_digit(source_[at_])) {
        read_number();
      } else if (source_[at_] == '"' || source_[at_] == '\'') {
        read_string();
      } else if (!read_name()) {
        read_sign();
      }
    }
  }

  size_t after_digits(size_t at) const {
    while (is_ascii_digit(char_at(at))) ++at;
    return at;
  }

  // Decimal only. A number behind a point has no fraction: in "x.0.1" both are indices.
  void read_number() {
    const size_t begin = at_;
    size_t end = after_digits(begin);
    const size_t fraction = begin == 0 || source_[begin - 1] != '.' ? float_end(end) : end;
    if (fraction == end && source_[begin] == '0') {
      for (end = begin; char_at(end) == '0';) ++end;  // 007 is two numbers
    } else {
      end = fraction;
    }
    add(Kind::kNumber, source_.substr(begin, end - begin), begin);
    at_ = end;
  }

  // One past the fraction and exponent at `at`; `at` if there are none.
  size_t float_end(size_t at) const {
    size_t end = at;
    if (char_at(at) == '.' && is_ascii_digit(char_at(at + 1))) end = after_digits(at + 1);
    if ((char_at(end) | 0x20) != 'e') return end;
    const size_t digits = end + (char_at(end + 1) == '+' || char_at(end + 1) == '-' ? 2 : 1);
    return is_ascii_digit(char_at(digits)) ? after_digits(digits) : end;
  }

  bool read_name() {
    size_t end = at_;
    for (size_t next = at_; next < source_.size() && is_word(next_char(source_, &next)); end = next) continue;
    if (end == at_) return false;
    size_t first = at_;
    const char32_t c = next_char(source_, &first);
    if (c != '_' && !is_alpha(c)) throw SyntaxFailure("invalid character in identifier", at_);
    add(Kind::kName, source_.substr(at_, end - at_), at_);
    at_ = end;
    return true;
  }

  void read_sign() {
    const std::string_view rest = std::string_view(source_).substr(at_);
    static constexpr std::string_view kSigns[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*",
                                                  "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                  ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* sign = std::ranges::find_if(kSigns, [&](std::string_view known) { return rest.starts_with(known); });
    if (sign == std::end(kSigns)) {
      size_t end = at_;
      next_char(source_, &end);
      throw SyntaxFailure("unexpected char '" + source_.substr(at_, end - at_) + "'", at_);
    }
    const char c = sign->front();
    if (c == '(' || c == '[') brackets_ += c == '(' ? ')' : ']';
    if (c == '{') brackets_ += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (!brackets_.ends_with(c)) throw SyntaxFailure("unexpected '" + std::string(1, c) + "'", at_);
      brackets_.pop_back();
    }
    add(Kind::kSign, std::string(*sign), at_);
    at_ += sign->size();
  }

  void read_string() {
    const char quote = source_[at_];
    std::string text;
    size_t at = at_ + 1;
    while (at < source_.size() && source_[at] != quote) {
      if (source_[at] == '\\') {
        read_escape(&at, &text);
      } else {
        text += source_[at++];
      }
    }
    if (at >= source_.size()) throw SyntaxFailure("a string has no end", at_);
    add(Kind::kString, std::move(text), at_);
    at_ = at + 1;
  }

  void read_escape(size_t* at, std::string* text) const {
    static constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char letter = char_at(*at + 1);
    if (const size_t known = kLetters.find(letter); known != std::string_view::npos) {
      *text += kMeanings[known];
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      return read_code(at, letter == 'x' ? 2 : (letter == 'u' ? 4 : 8), text);
    } else if (letter == 'N' || is_ascii_digit(letter)) {
      throw SyntaxFailure("escapes by name or in octal are not supported", *at);
    } else if (letter != '\n') {  // an escaped line end gives nothing; an unknown escape stays as it is
      *text += '\\';
      *at += 1;
      return;
    }
    *at += 2;
  }

  void read_code(size_t* at, size_t digits, std::string* text) const {
    const std::string_view hex = std::string_view(source_).substr(std::min(*at + 2, source_.size()));
    const std::optional<uint32_t> code = parse_hex(hex, digits);
    if (!code) throw SyntaxFailure("truncated escape in a string", *at);
    if (!is_char(*code)) throw SyntaxFailure("no such character in a string", *at);
    append_utf8(*code, text);
    *at += digits + 2;
  }

  const std::string& source_;
  size_t at_ = 0;
  std::string brackets_;  // closing brackets that are expected, innermost last
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalized_source(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source.substr(i, 2) == "\r\n") continue;
    result += source[i] == '\r' ? '\n' : source[i];
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

std::vector<Token> tokenize(const std::string& source) { return Lexer(source).run(); }

}  // namespace pinion::jinja
