// Translates Oniguruma's syntax into PCRE2's where they differ.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "configs/families.h"
#include "kernels/base/text.h"
#include "tokenizer/tokens/regex.h"

namespace pinion {
namespace {

// Reads the pattern from left to right and copies common syntax.
struct RegexTranslator {
  std::string_view in;
  std::string out = {};
  size_t at = 0;
  bool in_class = false;
  std::vector<std::string> beside = {};      // in a class: patterns of one character that the class cannot hold
  int depth = 0;                             // of classes in classes
  std::vector<bool> ignores_case = {false};  // of the groups around this point
  std::string refused = {};                  // the first unsupported construct, for the error

  bool next_is(std::string_view text) const { return in.substr(at).starts_with(text); }
  void copy(size_t length) {
    out += in.substr(at, length);
    at += length;
  }
  void replace(size_t length, std::string_view text) {
    out += text;
    at += length;
  }
};

const nlohmann::json kSets = nlohmann::json::parse(regex_sets_text());

// A set of configs/regex_sets.json.
struct NamedSet {
  std::string members;  // as in a PCRE2 class
  bool complement;      // all other characters are in the set
};

std::optional<NamedSet> find_set(const char* table, std::string_view name) {
  const std::string members = kSets[table].value(name, "");
  if (members.empty()) return {};
  return NamedSet{members.substr(members[0] == '^'), members[0] == '^'};
}

// The members of \w. Outside classes Oniguruma looks Latin-1 up in a table of its own, which adds some digits and
// fractions.
std::string word_set(bool in_class) {
  return find_set("posix", "word")->members + (in_class ? "" : "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}");
}

// Escapes that differ in PCRE2, or exist in only one dialect. (\b in a class is a backspace in both.)
constexpr std::string_view kForeignEscapes = "RXKyYgGkCMQENO";

// Oniguruma adds the other case to a class; PCRE2 does so for its letters only, not for its sets.
void refuse_case(RegexTranslator& t, std::string_view members) {
  constexpr std::string_view kCased[] = {"{Lu}", "{Ll}", "{Lt}", "{Uppercase}", "{Lowercase}"};
  const auto is_in = [&](std::string_view set) { return members.find(set) != members.npos; };
  if (t.ignores_case.back() && std::ranges::any_of(kCased, is_in)) t.refused = "sets of one case in (?i";
}

// Writes a set in place of `length` bytes of the pattern.
void replace_by_set(RegexTranslator& t, size_t length, std::string_view members, bool negated) {
  if (t.in_class) refuse_case(t, members);
  if (t.in_class && !negated) return t.replace(length, members);
  const std::string matcher = (negated ? "[^" : "[") + std::string(members) + "]";
  if (!t.in_class) return t.replace(length, matcher);
  t.beside.push_back(matcher);
  t.at += length;
}

bool compiles(const std::string& pattern) {
  int code = 0;
  size_t offset = 0;
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &code, &offset, nullptr);
  pcre2_code_free(compiled);
  return compiled != nullptr;
}

// \p{name}, \p{^name}, \P{name}. The name of a script stands for the script alone; PCRE2 adds the characters that other
// scripts share with it, such as the punctuation of Chinese and Japanese.
void translate_property(RegexTranslator& t) {
  const size_t close = t.in.find('}', t.at);
  if (close == std::string_view::npos || !t.in.substr(t.at + 2).starts_with('{')) {
    return t.copy(std::min<size_t>(3, t.in.size() - t.at));
  }
  const size_t length = close + 1 - t.at;
  std::string_view name = t.in.substr(t.at + 3, length - 4);
  bool negated = t.in[t.at + 1] == 'P';
  if (name.starts_with('^')) {
    negated = !negated;
    name.remove_prefix(1);
  }
  std::string loose;
  for (const char c : name) {
    if (c != ' ' && c != '-' && c != '_') loose += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const char* table : {"categories", "posix"}) {
    const auto named = find_set(table, loose);
    if (named) return replace_by_set(t, length, named->members, negated != named->complement);
  }
  const std::string script = "sc:" + std::string(name);
  if (t.in_class) refuse_case(t, "{" + std::string(name) + "}");
  const bool is_script = name.size() > 2 && compiles("\\p{" + script + "}");
  t.replace(length, (negated ? "\\P{" : "\\p{") + (is_script ? script : std::string(name)) + "}");
}

// The position between a word character and another one or an end (\b), or any other position (\B).
std::string word_boundary(bool negated) {
  const std::string word = "[" + word_set(false) + "])";
  return negated ? "(?:(?<=" + word + "(?=" + word + "|(?<!" + word + "(?!" + word + ")"
                 : "(?:(?<=" + word + "(?!" + word + "|(?<!" + word + "(?=" + word + ")";
}

void translate_escape(RegexTranslator& t) {
  const char kind = t.at + 1 < t.in.size() ? t.in[t.at + 1] : '\0';
  if (kind == 's') return t.replace(2, "\\p{White_Space}");  // PCRE2's \s includes U+180E, which is no white space
  if (kind == 'S') return t.replace(2, "\\P{White_Space}");
  if (kind == 'v') return t.replace(2, "\\x0B");
  if (kind == 'w' || kind == 'W') return replace_by_set(t, 2, word_set(t.in_class), kind == 'W');
  if (kind == 'h' || kind == 'H') return replace_by_set(t, 2, "0-9a-fA-F", kind == 'H');
  if ((kind == 'b' || kind == 'B') && !t.in_class) return t.replace(2, word_boundary(kind == 'B'));
  if (kind == 'p' || kind == 'P') return translate_property(t);
  if (kind == 'u') {
    const std::string_view hex = t.in.substr(t.at + 2, 4);
    if (parse_hex(hex, 4)) return t.replace(6, "\\x{" + std::string(hex) + "}");
    t.refused = "\\u without four hexadecimal digits";
  } else if (kForeignEscapes.find(kind) != kForeignEscapes.npos) {
    t.refused = std::string("\\") + kind;
  } else {
    t.copy(2);
  }
}

// {n,m}+ repeats greedily in Oniguruma and is possessive in PCRE2.
void translate_brace(RegexTranslator& t) {
  const size_t close = t.in.find('}', t.at);
  const std::string_view body = t.in.substr(t.at + 1, close == std::string_view::npos ? 0 : close - t.at - 1);
  const bool interval = !body.empty() && body.find_first_not_of("0123456789,") == std::string_view::npos;
  if (interval && t.in.substr(close + 1).starts_with('+')) {
    t.refused = "an interval followed by +";
  } else if (interval && body.starts_with(',')) {
    t.replace(1, "{0");  // {,n} is an interval only in new releases of PCRE2
  } else {
    t.copy(1);
  }
}

// [:name:] or [:^name:]; false if the text at this point is neither.
bool translate_posix(RegexTranslator& t) {
  const size_t close = t.in.find(":]", t.at + 2);
  if (!t.next_is("[:") || close == std::string_view::npos) return false;
  std::string_view name = t.in.substr(t.at + 2, close - t.at - 2);
  const bool negated = name.starts_with('^');
  if (negated) name.remove_prefix(1);
  const auto named = find_set("posix", name);
  if (!named) return false;
  replace_by_set(t, close + 2 - t.at, named->members, negated != named->complement);
  return true;
}

void translate_class(RegexTranslator& t);

// `first` and the members up to && or ], as a pattern of one character; empty if there are none.
std::string translate_members(RegexTranslator& t, std::string first = {}) {
  constexpr int kMaxDepth = 16;
  std::string outer = std::exchange(t.out, std::move(first));
  std::vector<std::string> outer_beside = std::exchange(t.beside, {});
  t.in_class = true;
  while (t.at < t.in.size() && t.refused.empty() && !t.next_is("]") && !t.next_is("&&")) {
    if (t.next_is("\\")) {
      translate_escape(t);
    } else if (!t.next_is("[")) {
      t.copy(1);
    } else if (!translate_posix(t)) {
      if (++t.depth > kMaxDepth || t.next_is("[:")) t.refused = "[: or too many [ inside [ ]";
      std::string members = std::exchange(t.out, {});
      if (t.refused.empty()) translate_class(t);
      t.beside.push_back(std::exchange(t.out, std::move(members)));
      t.in_class = true;
      --t.depth;
    }
  }
  std::string matcher = t.out.empty() ? "" : "[" + t.out + "]";
  for (const std::string& other : t.beside) matcher += (matcher.empty() ? "" : "|") + other;
  if (!t.beside.empty()) matcher = "(?:" + matcher + ")";
  t.out = std::move(outer);
  t.beside = std::move(outer_beside);
  t.in_class = false;
  return matcher;
}

// A class at its [: plain members stay a class; others become patterns of one character.
void translate_class(RegexTranslator& t) {
  ++t.at;
  const bool negated = t.next_is("^");
  if (negated) ++t.at;
  std::string first;
  if (t.next_is("]")) {  // a leading ] is an ordinary character
    ++t.at;
    first = "\\]";
  }
  std::vector<std::string> operands = {translate_members(t, first)};
  while (t.next_is("&&") && t.refused.empty()) {
    t.at += 2;
    operands.push_back(translate_members(t));
  }
  if (t.at == t.in.size()) t.refused = "[ without ]";
  ++t.at;
  if (std::ranges::find(operands, "") != operands.end()) t.refused = "an empty set in [ ]";
  if (!t.refused.empty()) return;
  std::string& last = operands.back();
  if (operands.size() == 1 && last.starts_with('[')) {
    t.out += negated ? "[^" + last.substr(1) : last;
    return;
  }
  if (operands.size() > 1 && t.ignores_case.back()) t.refused = "&& in (?i";
  std::string all;
  for (size_t i = 0; i + 1 < operands.size(); ++i) all += "(?=" + operands[i] + ")";
  all += last;
  t.out += negated ? "(?:(?!" + all + ")\\p{Any})" : "(?:" + all + ")";
}

void translate_next(RegexTranslator& t) {
  if (t.next_is("\\")) return translate_escape(t);
  if (t.next_is("[")) return translate_class(t);
  if (t.next_is("{")) return translate_brace(t);
  if (t.next_is("(?")) {
    const std::string_view flags = t.in.substr(t.at + 2, t.in.find_first_of(":)", t.at) - t.at - 2);
    const bool is_flags = flags.find_first_not_of("imx-") == std::string_view::npos;
    bool ignores_case = t.ignores_case.back();
    if (is_flags && flags.find('i') != std::string_view::npos) ignores_case = flags.find('i') < flags.find('-');
    if (is_flags && t.in.substr(t.at + 2 + flags.size()).starts_with(')')) {
      t.ignores_case.back() = ignores_case;  // until the group around this point ends
    }
    t.ignores_case.push_back(ignores_case);
    if (is_flags && flags.find('m') != std::string_view::npos) t.refused = "(?m";
    if (t.next_is("(?~") || t.next_is("(?(") || t.next_is("(?R")) t.refused = std::string(t.in.substr(t.at, 3));
    return t.copy(2);
  }
  if (t.next_is("(*")) {
    t.refused = "(*";
    return;
  }
  if (t.next_is("(")) t.ignores_case.push_back(t.ignores_case.back());
  if (t.next_is(")") && t.ignores_case.size() > 1) t.ignores_case.pop_back();
  t.copy(1);
}

}  // namespace

Error translate_regex(const std::string& pattern, const std::string& where, std::string* out) {
  RegexTranslator t{.in = pattern};
  while (t.at < t.in.size() && t.refused.empty()) translate_next(t);
  if (!t.refused.empty()) return error("regular expression uses " + t.refused + ", which is not supported", where);
  *out = std::move(t.out);
  return {};
}

}  // namespace pinion
