// Filters about HTML, which few templates have a use for.
#include <algorithm>
#include <string_view>
#include <utility>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/links.h"
#include "tokenizer/templates/jinja/numbers.h"
#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {
namespace {

std::string escaped_text(const Value& value) {
  return value.is_markup() ? *value.text() : html_escaped(to_text(value));
}

// Only the names that html_escaped() and XML know, and codes.
std::string unescaped(const std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}, {"&quot;", "\""}, {"&apos;", "'"}, {"&nbsp;", "\u00a0"}};
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    const auto* name = std::ranges::find_if(kNames, [&](const auto& pair) { return rest.starts_with(pair.first); });
    if (name != std::end(kNames)) {
      result += name->second;
      at += name->first.size();
      continue;
    }
    const size_t end = rest.starts_with("&#") ? rest.find(';') : std::string_view::npos;
    const bool is_hex = end != std::string_view::npos && (rest[2] == 'x' || rest[2] == 'X');
    const auto digits = end == std::string_view::npos ? "" : rest.substr(is_hex ? 3 : 2, end - (is_hex ? 3 : 2));
    const auto code = digits.size() < 9 ? parse_integer(digits, is_hex ? 16 : 10) : std::nullopt;
    if (code && *code > 0 && *code < 0xD800) {
      append_utf8(static_cast<char32_t>(*code), &result);
      at += end + 1;
    } else {
      result += text[at++];
    }
  }
  return result;
}

Value safe(Interpreter&, const Slots& a) { return Value(to_text(a[0]), true); }
Value escaped(Interpreter&, const Slots& a) { return Value(escaped_text(a[0]), true); }
Value escaped_again(Interpreter&, const Slots& a) { return Value(html_escaped(to_text(a[0])), true); }

Value attributes(Interpreter&, const Slots& a) {
  if (a[0].is_undefined()) fail_undefined(a[0]);
  if (a[0].pairs() == nullptr) fail("xmlattr needs a mapping");
  std::string text;
  for (const Pair& pair : *a[0].pairs()) {
    if (pair.value.is_none() || pair.value.is_undefined()) continue;
    const std::string& key = need_text(pair.key);
    if (key.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      fail("Invalid character in attribute name: " + in_quotes(key));
    }
    text += (text.empty() ? "" : " ") + html_escaped(key) + "=\"" + escaped_text(pair.value) + "\"";
  }
  const bool spaces = !a.has(1) || truth(a[1]);
  return spaces && !text.empty() ? " " + text : text;
}

// Without tags and comments, and without the special writing of characters.
Value without_tags(Interpreter& interpreter, const Slots& a) {
  std::string text = to_text(a[0]), kept;
  size_t at = 0;
  for (size_t open; (open = text.find('<', at)) != std::string::npos;) {
    const bool is_comment = text.compare(open, 4, "<!--") == 0;
    const size_t close = is_comment ? text.find("-->", open + 4) : text.find('>', open);
    if (close == std::string::npos) break;
    kept.append(text, at, open - at);
    at = close + (is_comment ? 3 : 1);
  }
  kept.append(text, at);
  const Value words = run(interpreter, *find(text_searches(), "split"), {{Value(kept)}, {}});
  const Value spaced = run(interpreter, *find(text_methods(), "join"), {{Value(" "), words}, {}});
  return unescaped(*spaced.text());
}

constexpr Builtin kFilters[] = {
    {"safe", "value", safe},
    {"escape", "/ s", escaped},
    {"e", "/ s", escaped},
    {"forceescape", "value", escaped_again},
    {"striptags", "value", without_tags},
    {"urlize", "value | trim_url_limit nofollow target rel extra_schemes", with_links},
    {"xmlattr", "d | autospace", attributes},
};

}  // namespace

std::span<const Builtin> markup_filters() { return kFilters; }

}  // namespace pinion::jinja
