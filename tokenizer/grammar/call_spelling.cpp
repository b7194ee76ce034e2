#include <algorithm>
#include <set>

#include "kernels/base/text.h"
#include "tokenizer/answers/json_scanner.h"
#include "tokenizer/grammar/sources.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {

namespace {

using std::string_view;

// Rules in place of the library's: escapes are whole characters, not half a surrogate pair, and numbers are bounded.
constexpr std::pair<string_view, string_view> kBasicRules[] = {
    {"basic_hex", "[0-9A-Fa-f]"},
    {"basic_escape", R"(["\\/bfnrt] | "u" ([0-9A-Ca-cE-Fe-f] basic_hex basic_hex basic_hex | [Dd] [0-7] basic_hex )"
                     R"(basic_hex | [Dd] [89ABab] basic_hex basic_hex "\\u" [Dd] [C-Fc-f] basic_hex basic_hex))"},
    {"basic_integer", R"("0" | "-"? [1-9] [0-9]{0,17})"},
    {"basic_number", R"("-"? ("0" | [1-9] [0-9]{0,17}) ("." [0-9]{1,17})? ([eE] [-+]? [0-9]{1,2})?)"},
};

// The content of a literal that XGrammar printed.
std::string without_quotes(string_view literal) {
  constexpr string_view kEscapes = "abfnrtv0e", kMeanings("\a\b\f\n\r\t\v\0\x1B", 9);
  std::string out;
  for (size_t i = 1; i + 1 < literal.size(); ++i) {
    const char c = literal[i] == '\\' ? literal[++i] : '\0';
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      append_utf8(static_cast<char32_t>(std::stoul(std::string(literal.substr(i + 1, digits)), nullptr, 16)), &out);
      i += digits;
    } else {
      const size_t known = c == '\0' ? string_view::npos : kEscapes.find(c);
      out += known == string_view::npos ? literal[i] : kMeanings[known];
    }
  }
  return out;
}

// Bytes of the literal or character class at the front of a grammar.
size_t atom_bytes(string_view text) {
  const char end = text.front() == '[' ? ']' : '"';
  size_t at = 1;
  while (text[at] != end) at += text[at] == '\\' ? 2 : 1;
  return at + 1;
}

// A literal of a JSON grammar in the spelling of this form. `behind`: the grammar behind it.
std::string respelled_literal(string_view text, string_view behind, const CallSpelling& spelling) {
  const std::string content = without_quotes(text);
  for (const auto& [word, python] : {std::pair{"true", "True"}, {"false", "False"}, {"null", "None"}}) {
    if (spelling.body == ToolBody::kPython && content == word) return in_quotes(python);
  }
  if (spelling.body != ToolBody::kBraces && !spelling.is_raw) return std::string(text);
  const std::string& mark = spelling.mark;
  if (content == "\"") return in_quotes(mark);
  if (content.size() < 2 || content.front() != '"') return std::string(text);
  const std::string value = json_string(content);
  return in_quotes(behind.starts_with(" \":\"") ? value : mark + value + mark);
}

}  // namespace

std::string in_quotes(std::string_view text) { return '"' + json_escaped(text) + '"'; }

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string basic_rules() {
  std::string rules;
  for (const auto& [name, body] : kBasicRules) rules.append(name).append(" ::= ").append(body) += '\n';
  return rules;
}

std::string respell(string_view grammar, const std::string& prefix, bool keeps_basic, const CallSpelling& spelling) {
  const bool is_braces = spelling.body == ToolBody::kBraces;
  const bool is_json = !is_braces && spelling.body != ToolBody::kPython && spelling.body != ToolBody::kXml;
  std::set<string_view> digit_rules;
  std::string out;
  for (string_view line : split(grammar, '\n')) {
    if (line.ends_with(" ::= (([0-9]))")) digit_rules.insert(line.substr(0, line.find(' ')));
  }
  for (string_view line : split(grammar, '\n')) {
    const string_view name = line.substr(0, line.find(' '));
    const bool is_replaced = std::ranges::any_of(kBasicRules, [&](const auto& row) { return row.first == name; });
    if (name.starts_with("basic_") != keeps_basic || is_replaced || (is_braces && name == "basic_string")) continue;
    if (!is_json) line = line.substr(0, line.find(" (=("));  // not followed as in JSON
    const bool is_regex = line.find(" ::= Regex(") != string_view::npos;
    for (size_t at = 0; at < line.size();) {
      if (line[at] == '"' || line[at] == '[') {
        const size_t bytes = atom_bytes(line.substr(at));
        const string_view atom = line.substr(at, bytes);
        at += bytes;
        out += atom[0] == '"' && !is_regex ? respelled_literal(atom, line.substr(at), spelling) : std::string(atom);
      } else if (is_name(line[at])) {
        const string_view rest = line.substr(at);
        const string_view word(rest.begin(), std::ranges::find_if_not(rest, is_name));
        at += word.size();
        const bool is_rule = std::isdigit(static_cast<unsigned char>(word[0])) == 0 && !word.starts_with("basic_") &&
                             line.substr(at, 1) != "(";
        out += (is_rule ? prefix : "") + std::string(word);
        // A model may write digits without end.
        constexpr string_view kEndless = ", -1}";
        const size_t range = digit_rules.contains(word) ? line.find(kEndless, at) : string_view::npos;
        if (range == at + 2) {
          out += std::string(line.substr(at, 2)) + ", 17}";
          at = range + kEndless.size();
        }
      } else {
        out += line[at++];
      }
    }
    out += '\n';
  }
  return out;
}

}  // namespace pinion
