#include "tokenizer/grammar/pattern.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "loader/files/json.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

constexpr char32_t kQuote = '"', kBackslash = '\\', kFirstPlain = 0x20;
constexpr const char* kEscaped = R"("\\\x00-\x1F)";  // what JSON escapes, within [ ]
// What it writes as a backslash and a letter, and the letter.
constexpr std::u32string_view kShort = U"\"\\\n\t\r\f\b";
constexpr std::string_view kLetters = "\"\\ntrfb";
// What \s means beside ASCII's blanks (ECMA-262), which the library does not know.
constexpr const char* kBlanks = "\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000\uFEFF";

bool is_escaped(char32_t c) { return c == kQuote || c == kBackslash || c < kFirstPlain; }

// Some of kShort, one bit each.
using Escapes = unsigned;
constexpr Escapes kAllEscapes = (1u << kShort.size()) - 1;

constexpr Escapes escapes_between(char32_t first, char32_t last) {
  Escapes found = 0;
  for (size_t i = 0; i < kShort.size(); ++i) found |= Escapes{kShort[i] >= first && kShort[i] <= last} << i;
  return found;
}

constexpr Escapes kBlankEscapes = escapes_between('\t', '\t') | escapes_between('\n', '\r');

Escapes escapes_of_many(char kind) {
  const Escapes small = kind == 's' || kind == 'S' ? kBlankEscapes : 0;
  return kind >= 'a' ? small : kAllEscapes & ~small;
}

// A character as JSON writes it: one of a class, or one of some escapes. Empty: there is none.
std::string one_of(const std::string& plain, Escapes escapes) {
  std::string letters;
  for (size_t i = 0; i < kShort.size(); ++i) {
    if (escapes >> i & 1) letters += kLetters[i] == '\\' ? "\\\\" : std::string{kLetters[i]};
  }
  if (letters.empty()) return plain;
  return "(" + plain + (plain.empty() ? "" : "|") + "\\\\[" + letters + "])";
}

std::string any_character() { return one_of(std::string("[^") + kEscaped + "]", kAllEscapes); }

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// A character of a pattern, as it is spelled there.
struct Atom {
  std::string_view spelled;
  char32_t c = 0;
  char of_many = 0;  // d, D, w, W, s, S: any of these; b, B: none, a place between two
};

// "\uD83D\uDE00": one character, of which `first` is a half. Nothing: the other is not there.
std::optional<Atom> pair_at(std::string_view pattern, const Atom& first, size_t at) {
  constexpr std::string_view kHalf = "\\u";
  const size_t behind = at + first.spelled.size();
  if (first.c >= 0xDC00 || !pattern.substr(behind).starts_with(kHalf)) return {};
  uint32_t second = 0;
  const std::string_view digits = pattern.substr(behind + kHalf.size()).substr(0, 4);
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), second, 16);
  if (code != std::errc() || end != digits.data() + 4 || second < 0xDC00 || second > 0xDFFF) return {};
  return Atom{.spelled = pattern.substr(at, first.spelled.size() + kHalf.size() + digits.size()),
              .c = 0x10000 + ((first.c - 0xD800) << 10) + (second - 0xDC00)};
}

// "\n", "\x22", "\u0041", "\u{1F600}", "\cJ": what a backslash begins. Nothing: it is not known here.
std::optional<Atom> escape_at(std::string_view pattern, size_t at) {
  if (at + 1 >= pattern.size()) return {};
  const char kind = pattern[at + 1];
  if (static_cast<unsigned char>(kind) >= 0x80) {  // itself
    size_t end = at + 1;
    const char32_t c = next_char(pattern, &end);
    return Atom{.spelled = pattern.substr(at, end - at), .c = c};
  }
  Atom atom{.spelled = pattern.substr(at, 2), .c = static_cast<unsigned char>(kind)};
  constexpr std::string_view kMany = "dDwWsSbB", kControl = "ntrfv", kControls = "\n\t\r\f\v";
  if (kMany.find(kind) != kMany.npos) {
    atom.of_many = kind;
  } else if (const size_t i = kControl.find(kind); i != kControl.npos) {
    atom.c = static_cast<unsigned char>(kControls[i]);
  } else if (kind == 'x' || kind == 'u') {
    const bool is_braced = kind == 'u' && pattern.substr(at + 2).starts_with('{');
    const size_t first = at + 2 + is_braced;
    const size_t digits = is_braced ? std::min(pattern.find('}', first), pattern.size()) - first : kind == 'x' ? 2 : 4;
    const std::string_view number = pattern.substr(first, digits);
    uint32_t value = 0;
    const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), value, 16);
    if (number.size() < digits || code != std::errc() || end != number.data() + digits || value > 0x10FFFF) return {};
    atom.spelled = pattern.substr(at, first - at + digits + is_braced);
    atom.c = value;
    if (value >= 0xD800 && value <= 0xDFFF) return pair_at(pattern, atom, at);
  } else if (kind == 'c' && at + 2 < pattern.size() && is_letter(pattern[at + 2])) {
    atom.spelled = pattern.substr(at, 3);
    atom.c = static_cast<unsigned char>(pattern[at + 2]) % 32;
  } else if (is_letter(kind) || (kind >= '0' && kind <= '9')) {
    return {};
  }
  return atom;
}

std::optional<Atom> atom_at(std::string_view pattern, size_t at) {
  if (pattern[at] == '\\') return escape_at(pattern, at);
  size_t end = at;
  const char32_t c = next_char(pattern, &end);
  return Atom{.spelled = pattern.substr(at, end - at), .c = c};
}

std::string spelled(char32_t c) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  if (c < 0x80) return std::string("\\x") + kDigits[c / 16] + kDigits[c % 16];
  std::string text;
  append_utf8(c, &text);
  return text;
}

// The part of a range that needs no escapes.
std::string plain_part(char32_t first, char32_t last) {
  std::string text;
  for (char32_t begin = std::max(first, kFirstPlain); begin <= last;) {
    char32_t end = last;
    for (const char32_t hole : {kQuote, kBackslash}) {
      if (begin <= hole && hole <= end) end = hole - 1;
    }
    if (begin <= end) text += spelled(begin) + (begin < end ? "-" + spelled(end) : "");
    begin = end == last ? last + 1 : end + 2;
  }
  return text;
}

// What stands within [ ], or [^ ].
struct CharacterClass {
  std::string plain;  // of a class that is not negated and in JSON, what needs no escape
  Escapes escapes = 0;
};

class PatternWriter {
 public:
  PatternWriter(std::string_view pattern, bool is_in_json, const std::string& where, std::string* out)
      : pattern_(pattern), is_in_json_(is_in_json), where_(where), out_(out) {}

  Error write() {
    if (is_in_json_) return write_alternatives();
    while (at_ < pattern_.size()) {
      if (Error e = write_next()) return e;
    }
    return {};
  }

 private:
  Error unknown() const {
    return error("not supported in a pattern", where_, {}, brief(Json(std::string(pattern_.substr(at_)))));
  }

  bool is_next(char c) const { return at_ < pattern_.size() && pattern_[at_] == c; }

  Error write_next() { return pattern_[at_] == '[' ? write_class() : write_atom(); }

  // A schema's pattern is one of some part of a text, a grammar's one of the whole.
  Error write_alternatives() {
    *out_ += "^(";
    if (Error e = write_alternative()) return e;
    while (is_next('|')) {
      ++at_;
      *out_ += '|';
      if (Error e = write_alternative()) return e;
    }
    *out_ += ")$";
    return {};
  }

  Error write_alternative() {
    constexpr std::string_view kQuantifiers = "*+?{";
    const bool from_start = is_next('^');
    at_ += from_start;
    if (at_ < pattern_.size() && kQuantifiers.find(pattern_[at_]) != kQuantifiers.npos) return unknown();
    if (!from_start) *out_ += any_character() + "*";
    const size_t begin = out_->size();
    int64_t depth = 0;
    while (at_ < pattern_.size() && (depth > 0 || (!is_next('|') && !is_next('$')))) {
      depth += is_next('(') ? 1 : is_next(')') ? -1 : 0;
      if (depth < 0 || is_next('^') || is_next('$')) return unknown();
      if (Error e = write_next()) return e;
    }
    if (depth > 0) return error("( without )", where_);
    const bool is_empty = out_->size() == begin;
    if (!is_next('$')) {
      if (from_start || !is_empty) *out_ += any_character() + "*";
    } else if (++at_; at_ < pattern_.size() && !is_next('|')) {
      return unknown();
    } else if (from_start && is_empty) {
      *out_ += "(|)";  // nothing, as the library can spell it
    }
    return {};
  }

  Error write_atom() {
    const std::optional<Atom> atom = atom_at(pattern_, at_);
    if (!atom) return unknown();
    const std::string_view all = atom->spelled;
    const bool is_escaped_itself = all.size() > 2 && all[0] == '\\' && static_cast<unsigned char>(all[1]) >= 0x80;
    if (atom->of_many == 0 && (atom->c > 0xFFFF || is_escaped_itself)) {
      *out_ += spelled(atom->c);  // a pair of escapes, perhaps
    } else if (!is_in_json_) {
      *out_ += all == "." ? "[^\\n]" : atom->of_many == 'S' ? std::string("[^\\s") + kBlanks + "]" : std::string(all);
    } else if (atom->of_many == 's') {
      *out_ += one_of("[ ]", kBlankEscapes);
    } else if (atom->of_many == 'D' || atom->of_many == 'W' || atom->of_many == 'S') {
      const char inside = static_cast<char>(atom->of_many - 'A' + 'a');
      const std::string plain = std::string("[^\\") + inside + (inside == 's' ? kBlanks : "") + kEscaped + "]";
      *out_ += one_of(plain, escapes_of_many(atom->of_many));
    } else if (all == ".") {
      const std::string plain = std::string("[^") + kEscaped + "\\u2028\\u2029]";
      *out_ += one_of(plain, kAllEscapes & ~(escapes_between('\n', '\n') | escapes_between('\r', '\r')));
    } else if (atom->of_many == 0 && is_escaped(atom->c)) {
      if (Error e = write_escape(atom->c)) return e;
    } else {
      *out_ += all;
    }
    at_ += all.size();
    return {};
  }

  Error write_escape(char32_t c) {
    const std::string escape = one_of({}, escapes_between(c, c));
    if (escape.empty()) return unknown();
    *out_ += escape;
    return {};
  }

  // [a-z\d_], [^...]: as a grammar of texts has it, or of those in JSON.
  Error write_class() {
    for (const std::string_view any : {"[\\s\\S]", "[\\S\\s]", "[\\d\\D]", "[\\D\\d]", "[\\w\\W]", "[\\W\\w]"}) {
      if (!is_in_json_ || !pattern_.substr(at_).starts_with(any)) continue;
      *out_ += any_character();
      at_ += any.size();
      return {};
    }
    const size_t begin = at_++;
    const bool is_negated = is_next('^');
    at_ += is_negated;
    if (is_next(']')) {  // the end to some, a character of the class to others
      at_ = begin;
      return unknown();
    }
    CharacterClass found;
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (Error e = write_item(is_negated, &found)) return e;
    }
    if (at_ == pattern_.size()) return error("[ without ]", where_);
    ++at_;
    std::string plain = found.plain;
    if (is_negated && is_in_json_) plain += kEscaped;
    if (!plain.empty()) plain = (is_negated ? "[^" : "[") + plain + "]";
    const Escapes escapes = is_negated ? kAllEscapes & ~found.escapes : found.escapes;
    const std::string written = is_in_json_ ? one_of(plain, escapes) : plain;
    if (written.empty()) {
      at_ = begin;
      return unknown();
    }
    *out_ += written;
    return {};
  }

  bool is_as_given(bool is_negated) const { return is_negated || !is_in_json_; }

  Error write_item(bool is_negated, CharacterClass* out) {
    const std::optional<Atom> first = atom_at(pattern_, at_);
    if (!first) return unknown();
    const size_t dash = at_ + first->spelled.size();
    const bool is_range =
        first->of_many == 0 && dash + 1 < pattern_.size() && pattern_[dash] == '-' && pattern_[dash + 1] != ']';
    if (!is_range) {
      if (first->of_many != 0) {
        if (Error e = write_many(*first, is_negated, out)) return e;
      } else {
        add_range(first->c, first->c, is_negated, out);
      }
      at_ = dash;
      return {};
    }
    const std::optional<Atom> last = atom_at(pattern_, dash + 1);
    if (!last || last->of_many != 0 || last->c < first->c) return unknown();
    add_range(first->c, last->c, is_negated, out);
    at_ = dash + 1 + last->spelled.size();
    return {};
  }

  // \d, \s and the like within a class.
  Error write_many(const Atom& atom, bool is_negated, CharacterClass* out) {
    const std::string_view known = is_in_json_ ? "dws" : "dwsDWS";
    if (known.find(atom.of_many) == known.npos) return unknown();
    out->plain += atom.of_many == 's' && !is_as_given(is_negated) ? " " : atom.spelled;
    if (atom.of_many == 's' && is_negated) out->plain += kBlanks;
    out->escapes |= escapes_of_many(atom.of_many);
    return {};
  }

  void add_range(char32_t first, char32_t last, bool is_negated, CharacterClass* out) const {
    if (!is_as_given(is_negated)) {
      out->plain += plain_part(first, last);
    } else {
      out->plain += spelled(first) + (first < last ? "-" + spelled(last) : "");
    }
    out->escapes |= escapes_between(first, last);
  }

  std::string_view pattern_;
  bool is_in_json_;
  const std::string& where_;
  std::string* out_;
  size_t at_ = 0;
};

}  // namespace

Error escape_pattern(std::string_view pattern, const std::string& where, std::string* out) {
  return PatternWriter(pattern, true, where, out).write();
}

std::string length_pattern(const std::string& bounds) { return "^" + any_character() + "{" + bounds + "}$"; }

bool leave_out_most(std::string* pattern) {
  const std::string begin = "^" + any_character() + "{", end = "}$";
  if (!pattern->starts_with(begin) || !pattern->ends_with(end)) return false;
  const std::string bounds = pattern->substr(begin.size(), pattern->size() - begin.size() - end.size());
  const size_t comma = bounds.find(',');
  if (bounds.find_first_not_of("0123456789,") != bounds.npos || comma + 1 >= bounds.size()) return false;
  *pattern = length_pattern(bounds.substr(0, comma + 1));
  return true;
}

Error plain_pattern(std::string_view pattern, const std::string& where, std::string* out) {
  return PatternWriter(pattern, false, where, out).write();
}

}  // namespace pinion
