#include <nlohmann/json.hpp>
#include <optional>

#include "kernels/base/text.h"
#include "loader/files/json.h"
#include "tokenizer/grammar/sources.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

constexpr char32_t kQuote = '"', kBackslash = '\\', kFirstPlain = 0x20;
constexpr const char* kNeedsEscape = R"("\\\x00-\x1F)";  // the characters that JSON escapes, for use within [ ]
// Characters that JSON writes as a backslash and a letter, and the letters.
constexpr std::u32string_view kEscapedChars = U"\"\\\n\t\r\f\b";
constexpr std::string_view kEscapeLetters = "\"\\ntrfb";
// Characters beyond ASCII that \s matches by ECMA-262, but not in XGrammar.
constexpr const char* kUnicodeSpaces = "\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000\uFEFF";

bool is_escaped(char32_t c) { return c == kQuote || c == kBackslash || c < kFirstPlain; }

// A set of kEscapedChars, one bit each.
using Escapes = unsigned;
constexpr Escapes kAllEscapes = (1u << kEscapedChars.size()) - 1;

constexpr Escapes escapes_between(char32_t first, char32_t last) {
  Escapes found = 0;
  for (size_t i = 0; i < kEscapedChars.size(); ++i)
    found |= Escapes{kEscapedChars[i] >= first && kEscapedChars[i] <= last} << i;
  return found;
}

constexpr Escapes kSpaceEscapes = escapes_between('\t', '\t') | escapes_between('\n', '\r');

Escapes escapes_of_class(char kind) {
  const Escapes lower = kind == 's' || kind == 'S' ? kSpaceEscapes : 0;  // \d and \w contain none
  return kind >= 'a' ? lower : kAllEscapes & ~lower;
}

// A pattern of one character as written in JSON: of the class `plain`, or one of `escapes`. Empty if both are empty.
std::string either_of(const std::string& plain, Escapes escapes) {
  std::string letters;
  for (size_t i = 0; i < kEscapedChars.size(); ++i) {
    if (escapes >> i & 1) letters += kEscapeLetters[i] == '\\' ? "\\\\" : std::string{kEscapeLetters[i]};
  }
  if (letters.empty()) return plain;
  return "(" + plain + (plain.empty() ? "" : "|") + "\\\\[" + letters + "])";
}

std::string any_character() { return either_of(std::string("[^") + kNeedsEscape + "]", kAllEscapes); }

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// One character or escape of a pattern.
struct Atom {
  std::string_view spelling;
  char32_t c = 0;
  char char_class = 0;  // d, D, w, W, s or S, also b or B, which match no character; 0: the atom is the character c
};

// A surrogate pair such as "\uD83D\uDE00" as one character; `first` is the first half. Nothing without a second half.
std::optional<Atom> pair_at(std::string_view pattern, const Atom& first, size_t at) {
  const size_t end = at + first.spelling.size();
  if (first.c >= 0xDC00 || !pattern.substr(end).starts_with("\\u")) return {};
  const std::optional<uint32_t> second = parse_hex(pattern.substr(end + 2), 4);
  if (!second || *second < 0xDC00 || *second > 0xDFFF) return {};
  return Atom{.spelling = pattern.substr(at, first.spelling.size() + 6),
              .c = 0x10000 + ((first.c - 0xD800) << 10) + (*second - 0xDC00)};
}

// The escape at `at`, for example \n, \x22, \u0041, \u{1F600} or \cJ. Nothing if it is not supported.
std::optional<Atom> escape_at(std::string_view pattern, size_t at) {
  if (at + 1 >= pattern.size()) return {};
  const char kind = pattern[at + 1];
  if (static_cast<unsigned char>(kind) >= 0x80) {  // stands for itself
    size_t end = at + 1;
    const char32_t c = next_char(pattern, &end);
    return Atom{.spelling = pattern.substr(at, end - at), .c = c};
  }
  Atom atom{.spelling = pattern.substr(at, 2), .c = static_cast<unsigned char>(kind)};
  constexpr std::string_view kClasses = "dDwWsSbB", kControlNames = "ntrfv", kControls = "\n\t\r\f\v";
  if (kClasses.find(kind) != kClasses.npos) {
    atom.char_class = kind;
  } else if (const size_t i = kControlNames.find(kind); i != kControlNames.npos) {
    atom.c = static_cast<unsigned char>(kControls[i]);
  } else if (kind == 'x' || kind == 'u') {
    const bool is_braced = kind == 'u' && pattern.substr(at + 2).starts_with('{');
    const size_t first = at + 2 + is_braced;
    const size_t digits = is_braced ? std::min(pattern.find('}', first), pattern.size()) - first : kind == 'x' ? 2 : 4;
    const std::optional<uint32_t> value = parse_hex(pattern.substr(first), digits);
    if (!value || *value > 0x10FFFF) return {};
    atom.spelling = pattern.substr(at, first - at + digits + is_braced);
    atom.c = *value;
    if (atom.c >= 0xD800 && atom.c <= 0xDFFF) return pair_at(pattern, atom, at);
  } else if (kind == 'c' && at + 2 < pattern.size() && is_ascii_letter(pattern[at + 2])) {
    atom.spelling = pattern.substr(at, 3);
    atom.c = static_cast<unsigned char>(pattern[at + 2]) % 32;
  } else if (is_ascii_letter(kind) || (kind >= '0' && kind <= '9')) {
    return {};
  }
  return atom;
}

std::optional<Atom> atom_at(std::string_view pattern, size_t at) {
  if (pattern[at] == '\\') return escape_at(pattern, at);
  size_t end = at;
  const char32_t c = next_char(pattern, &end);
  return Atom{.spelling = pattern.substr(at, end - at), .c = c};
}

std::string spelling_of(char32_t c) {
  if (c < 0x80) return formatted("\\x%02X", static_cast<unsigned>(c));
  std::string text;
  append_utf8(c, &text);
  return text;
}

std::string range_of(char32_t first, char32_t last) {
  return spelling_of(first) + (first < last ? "-" + spelling_of(last) : "");
}

// The characters of a range that JSON does not escape, as ranges of a class.
std::string unescaped_ranges(char32_t first, char32_t last) {
  std::string text;
  for (char32_t begin = std::max(first, kFirstPlain); begin <= last;) {
    char32_t end = last;
    for (const char32_t hole : {kQuote, kBackslash}) {
      if (begin <= hole && hole <= end) end = hole - 1;
    }
    if (begin <= end) text += range_of(begin, end);
    begin = end == last ? last + 1 : end + 2;
  }
  return text;
}

// The content of [ ] or [^ ].
struct CharacterClass {
  std::string plain;    // without the characters that JSON escapes, unless the class is negated or no JSON
  Escapes escapes = 0;  // those characters
};

// The end of the group at `at`: its ")", or the end of the pattern. `has_bar`: the group has alternatives.
size_t end_of_group(std::string_view pattern, size_t at, bool* has_bar) {
  bool is_in_class = false;
  for (int64_t depth = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c == '\\') {
      ++at;
    } else if (is_in_class || c == '[') {
      is_in_class = c != ']';
    } else if (c == '(') {
      ++depth;
    } else if (c == ')' && depth-- == 0) {
      return at;
    } else if (c == '|' && depth == 0) {
      *has_bar = true;
    }
  }
  return pattern.size();
}

class PatternTranslator {
 public:
  PatternTranslator(std::string_view pattern, bool is_in_json, const std::string& where, std::string* out)
      : pattern_(pattern), is_in_json_(is_in_json), where_(where), out_(out) {}

  Error write() {
    if (is_in_json_) return write_alternatives();
    while (at_ < pattern_.size()) {
      if (Error e = write_next()) return e;
    }
    return {};
  }

 private:
  Error unsupported() const {
    return error("not supported in a pattern", where_, {}, brief(Json(std::string(pattern_.substr(at_)))));
  }

  bool is_next(char c) const { return at_ < pattern_.size() && pattern_[at_] == c; }

  Error write_next() {
    for (const char* look : {"(?=", "(?!", "(?<=", "(?<!"}) {
      if (pattern_.substr(at_).starts_with(look)) return unsupported();
    }
    return pattern_[at_] == '[' ? write_class() : write_atom();
  }

  // Extends each alternative to the whole string: a schema's pattern may match a substring, a grammar's may not.
  Error write_alternatives() {
    *out_ += "^(";
    for (;; ++at_, *out_ += '|') {
      if (Error e = write_alternative()) return e;
      if (!is_next('|')) break;
    }
    *out_ += ")$";
    return {};
  }

  Error write_alternative() {
    constexpr std::string_view kQuantifiers = "*+?{";
    const bool from_start = is_next('^');
    at_ += from_start;
    if (at_ < pattern_.size() && kQuantifiers.find(pattern_[at_]) != kQuantifiers.npos) return unsupported();
    if (!from_start) *out_ += any_character() + "*";
    const size_t begin = out_->size();
    int64_t depth = 0;
    while (at_ < pattern_.size() && (depth > 0 || (!is_next('|') && !is_next('$')))) {
      depth += is_next('(') ? 1 : is_next(')') ? -1 : 0;
      if (depth < 0 || is_next('^') || is_next('$')) return unsupported();
      if (Error e = write_next()) return e;
    }
    if (depth > 0) return error("( without )", where_);
    const bool is_empty = out_->size() == begin;
    if (!is_next('$')) {
      if (from_start || !is_empty) *out_ += any_character() + "*";
    } else if (++at_; at_ < pattern_.size() && !is_next('|')) {
      return unsupported();
    } else if (from_start && is_empty) {
      *out_ += "(|)";  // XGrammar rejects an empty alternative
    }
    return {};
  }

  Error write_atom() {
    const std::optional<Atom> atom = atom_at(pattern_, at_);
    if (!atom) return unsupported();
    const std::string_view all = atom->spelling;
    const bool is_identity_escape = all.size() > 2 && all[0] == '\\' && static_cast<unsigned char>(all[1]) >= 0x80;
    if (atom->char_class == 0 && (atom->c > 0xFFFF || is_identity_escape)) {
      *out_ += spelling_of(atom->c);  // may be a surrogate pair
    } else if (!is_in_json_) {
      *out_ += all == "."                ? "[^\\n]"
               : atom->char_class == 'S' ? std::string("[^\\s") + kUnicodeSpaces + "]"
                                         : std::string(all);
    } else if (atom->char_class == 's') {
      *out_ += either_of("[ ]", kSpaceEscapes);
    } else if (atom->char_class == 'D' || atom->char_class == 'W' || atom->char_class == 'S') {
      const char inside = static_cast<char>(atom->char_class - 'A' + 'a');
      const auto plain = std::string("[^\\") + inside + (inside == 's' ? kUnicodeSpaces : "") + kNeedsEscape + "]";
      *out_ += either_of(plain, escapes_of_class(atom->char_class));
    } else if (all == ".") {
      const std::string plain = std::string("[^") + kNeedsEscape + "\\u2028\\u2029]";
      *out_ += either_of(plain, kAllEscapes & ~(escapes_between('\n', '\n') | escapes_between('\r', '\r')));
    } else if (atom->char_class == 0 && is_escaped(atom->c)) {
      const std::string escape = either_of({}, escapes_between(atom->c, atom->c));
      if (escape.empty()) return unsupported();
      *out_ += escape;
    } else {
      *out_ += all;
    }
    at_ += all.size();
    return {};
  }

  // [a-z\d_] or [^...].
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
    if (is_next(']')) {  // dialects differ: the end of the class, or a member
      at_ = begin;
      return unsupported();
    }
    CharacterClass found;
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      if (Error e = write_item(is_negated, &found)) return e;
    }
    if (at_ == pattern_.size()) return error("[ without ]", where_);
    ++at_;
    std::string plain = found.plain;
    if (is_negated && is_in_json_) plain += kNeedsEscape;
    if (!plain.empty()) plain = (is_negated ? "[^" : "[") + plain + "]";
    const Escapes escapes = is_negated ? kAllEscapes & ~found.escapes : found.escapes;
    const std::string written = is_in_json_ ? either_of(plain, escapes) : plain;
    if (written.empty()) {
      at_ = begin;
      return unsupported();
    }
    *out_ += written;
    return {};
  }

  Error write_item(bool is_negated, CharacterClass* out) {
    const bool is_verbatim = is_negated || !is_in_json_;  // `plain` includes the characters that JSON escapes
    const std::optional<Atom> first = atom_at(pattern_, at_);
    if (!first) return unsupported();
    const size_t dash = at_ + first->spelling.size();
    const bool is_range =
        first->char_class == 0 && dash + 1 < pattern_.size() && pattern_[dash] == '-' && pattern_[dash + 1] != ']';
    const std::optional<Atom> last = is_range ? atom_at(pattern_, dash + 1) : first;
    if (first->char_class != 0) {
      const std::string_view known = is_in_json_ ? "dws" : "dwsDWS";
      if (known.find(first->char_class) == known.npos) return unsupported();
      out->plain += first->char_class == 's' && !is_verbatim ? " " : first->spelling;
      if (first->char_class == 's' && is_negated) out->plain += kUnicodeSpaces;
      out->escapes |= escapes_of_class(first->char_class);
    } else {
      if (!last || last->char_class != 0 || last->c < first->c) return unsupported();
      out->plain += is_verbatim ? range_of(first->c, last->c) : unescaped_ranges(first->c, last->c);
      out->escapes |= escapes_between(first->c, last->c);
    }
    at_ = is_range ? dash + 1 + last->spelling.size() : dash;
    return {};
  }

  std::string_view pattern_;
  bool is_in_json_;
  const std::string& where_;
  std::string* out_;
  size_t at_ = 0;
};

}  // namespace

Error escape_pattern(std::string_view pattern, const std::string& where, std::string* out) {
  const auto has_look_at = [&](size_t at) {
    return pattern.substr(at).starts_with("(?=") || pattern.substr(at).starts_with("(?!");
  };
  if (!pattern.starts_with('^') || !has_look_at(1)) return PatternTranslator(pattern, true, where, out).write();
  size_t at = 1;
  std::string lines;
  while (at < pattern.size() && has_look_at(at)) {
    bool has_bar = false;
    const size_t end = end_of_group(pattern, at + 3, &has_bar);
    if (end == pattern.size()) return error("( without )", where);
    std::string look(pattern.substr(at + 3, end - at - 3));
    if (has_bar) look = "^(?:" + look + ")";
    if (!look.starts_with('^')) look.insert(0, 1, '^');
    lines += pattern[at + 2] == '!' ? "\n!" : "\n";
    if (Error e = PatternTranslator(look, true, where, &lines).write()) return e;
    at = end + 1;
  }
  bool has_bar = false;
  end_of_group(pattern, at, &has_bar);
  const std::string rest = "^" + std::string(pattern.substr(at));
  if (has_bar) return error("not supported in a pattern", where, {}, brief(Json(rest)));
  if (Error e = PatternTranslator(rest, true, where, out).write()) return e;
  *out += lines;
  return {};
}

std::string regex_escaped(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::ispunct(static_cast<unsigned char>(c)) && c != '_') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::string length_pattern(const std::string& bounds, bool is_line) {
  const std::string text = any_character() + "{" + bounds + "}";
  return bounds.ends_with(',') && !is_line ? "^" + text + "$" : "^(?:" + text + ")$";
}

std::string without_max_length(const std::string& pattern) {
  const size_t line = pattern.rfind('\n') + 1;  // 0: a single line
  if (!std::string_view(pattern).substr(line).starts_with("^(?:")) return pattern;
  const size_t brace = pattern.rfind('{') + 1;
  return line > 0 ? pattern.substr(0, line - 1)
                  : length_pattern(pattern.substr(brace, pattern.find(',', brace) + 1 - brace));
}

std::string counter_of(const std::string& pattern) {
  std::string counter = pattern.substr(pattern.rfind('\n') + 1);
  return counter.insert(std::string_view("^(?:([^").size(), kCounterMark);
}

Error plain_pattern(std::string_view pattern, const std::string& where, std::string* out) {
  return PatternTranslator(pattern, false, where, out).write();
}

}  // namespace pinion
