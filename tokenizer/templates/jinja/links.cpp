// See links.h.
#include "tokenizer/templates/jinja/links.h"

#include <algorithm>
#include <set>

#include "tokenizer/templates/jinja/text.h"
#include "tokenizer/tokens/regex.h"

namespace pinion::jinja {
namespace {

// Jinja's own.
constexpr const char* kAddress =
    R"((?i)\A((https?://|www\.)(([\w%-]+\.)+)?([a-z]{2,63}|xn--[\w%]{2,59})|([\w%-]{2,63}\.)+)"
    R"((com|net|int|edu|gov|org|info|mil)|(https?://)((\d{1,3}(\.\d{1,3}){3})|)"
    R"((\[([\da-f]{0,4}:){2}([\da-f]{0,4}:?){1,6}\])))(?::\d{1,5})?(?:[/?#]\S*)?\z)";
constexpr const char* kMail = R"(\A\S+@\w[\w.-]*\.\w+\z)";

class Linker {
 public:
  Linker(std::string attributes, std::optional<int64_t> most_chars, Items schemes)
      : attributes_(std::move(attributes)), most_chars_(most_chars), schemes_(std::move(schemes)) {
    for (const auto& [source, regex] : {std::pair{kAddress, &address_}, std::pair{kMail, &mail_}}) {
      if (const Error e = compile_regex(source, false, "urlize", regex)) fail(e.message());
    }
  }

  std::string run(const std::string& text) const {
    std::string result;
    const auto is_space = [&](size_t at) { return is_python_space(next_char(text, &at)); };
    for (size_t at = 0; at < text.size();) {
      size_t end = at;
      const bool in_space = is_space(at);
      while (end < text.size() && is_space(end) == in_space) next_char(text, &end);
      const std::string part = text.substr(at, end - at);
      result += in_space ? part : linked(part);
      at = end;
    }
    return result;
  }

 private:
  static bool matches(const Regex& regex, const std::string& text) {
    bool all = false;
    RegexFinder finder(text.size());
    const Error e = finder.find(regex, text, [&](const Span& span) {
      all |= span.match && span.end - span.begin == text.size();
      return Error();
    });
    if (e) fail(e.message());
    return all && !text.empty();
  }

  // Brackets around an address, and the sentence's signs behind it, do not belong to it.
  std::string linked(std::string middle) const {
    std::string head, tail;
    for (const std::string_view open : {"(", "<", "&lt;", "("}) {
      for (; middle.starts_with(open); middle.erase(0, open.size())) head += open;
    }
    const auto shorten = [&](std::string_view sign) {
      const bool ends = middle.ends_with(sign);
      if (ends) {
        tail.insert(0, sign);
        middle.resize(middle.size() - sign.size());
      }
      return ends;
    };
    while (shorten(")") || shorten(">") || shorten(".") || shorten(",") || shorten("&gt;")) {
    }
    balance("(", ")", &middle, &tail);
    balance("<", ">", &middle, &tail);
    balance("&lt;", "&gt;", &middle, &tail);
    return head + as_link(middle) + tail;
  }

  static int64_t count(std::string_view text, std::string_view part) {
    int64_t found = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++found;
    return found;
  }

  static void balance(std::string_view open, std::string_view close, std::string* middle, std::string* tail) {
    const int64_t opened = count(*middle, open);
    if (opened <= count(*middle, close)) return;
    for (int64_t i = std::min(opened, count(*tail, close)); i > 0; --i) {
      const size_t end = tail->find(close) + close.size();
      *middle += tail->substr(0, end);
      tail->erase(0, end);
    }
  }

  std::string as_link(const std::string& text) const {
    const auto link = [](const std::string& to, const std::string& attributes, const std::string& shown) {
      return "<a href=\"" + to + "\"" + attributes + ">" + shown + "</a>";
    };
    if (matches(address_, text)) {
      const bool has_scheme = text.starts_with("https://") || text.starts_with("http://");
      return link((has_scheme ? "" : "https://") + text, attributes_, trimmed(text));
    }
    const bool has_scheme = text.starts_with("mailto:");
    if (has_scheme && matches(mail_, text.substr(7))) return link(text, "", text.substr(7));
    const bool may_be_mail = text.find('@') != std::string::npos && !text.starts_with("www.") &&
                             !text.starts_with('@') && text.find(':') == std::string::npos;
    if (!has_scheme && may_be_mail && matches(mail_, text)) return link("mailto:" + text, "", text);
    for (const Value& scheme : schemes_) {
      if (text.size() > scheme.text()->size() && text.starts_with(*scheme.text())) return link(text, attributes_, text);
    }
    return text;
  }

  std::string trimmed(const std::string& text) const {
    const std::u32string chars = to_chars(text);
    if (!most_chars_ || static_cast<int64_t>(chars.size()) <= *most_chars_) return text;
    return from_chars(chars.substr(0, static_cast<size_t>(std::max<int64_t>(*most_chars_, 0)))) + "...";
  }

  std::string attributes_;
  std::optional<int64_t> most_chars_;
  Items schemes_;
  Regex address_, mail_;
};

}  // namespace

Value with_links(Interpreter& interpreter, const Slots& a) {
  std::set<std::string> relations{"noopener"};
  if (a.flag(2)) relations.insert("nofollow");
  const Value given = a.is_given(4) ? Value(need_text(a[4])) : Value("");
  const Value words = run(interpreter, *find(text_searches(), "split"), {{given}, {}});
  for (const Value& word : *words.items()) relations.insert(*word.text());
  std::string relation;
  for (const std::string& word : relations) relation += (relation.empty() ? "" : " ") + word;
  std::string attributes = " rel=\"" + html_escaped(relation) + "\"";
  if (a.flag(3)) attributes += " target=\"" + html_escaped(to_text(a[3])) + "\"";
  Items schemes = a.flag(5) ? to_items(a[5]) : Items();
  for (const Value& scheme : schemes) {
    if (!need_text(scheme).ends_with(':') && !need_text(scheme).ends_with('/')) fail("no URI scheme: " + repr(scheme));
  }
  const auto most = a.is_given(1) ? std::optional(need_integer(a[1])) : std::nullopt;
  const std::string text = a[0].is_markup() ? *a[0].text() : html_escaped(to_text(a[0]));
  return Linker(attributes, most, std::move(schemes)).run(text);
}

}  // namespace pinion::jinja
