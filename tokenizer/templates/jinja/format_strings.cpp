// "..." % values and "...".format(values), see format.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tokenizer/templates/jinja/format.h"
#include "tokenizer/templates/jinja/operators.h"
#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {
namespace {

class PercentFormat {
 public:
  PercentFormat(const Value& form, const Value& values) : form_(*form.text()), escapes_(form.is_markup()) {
    if (values.is<Tuple>()) {
      values_ = *values.items();
    } else {
      values_ = {values};
      may_stay_ = values.pairs() || values.is<List>() || values.is_undefined() || values.object();
      mapping_ = values.pairs();
    }
  }

  Value run() {
    for (size_t begin = 0;;) {
      const size_t field = form_.find('%', begin);
      text_.append(form_, begin, field - begin);
      if (field == std::string::npos) break;
      at_ = field + 1;
      write_field();
      begin = at_;
    }
    if (next_ < values_.size() && !may_stay_) fail("not all arguments converted during string formatting");
    return Value(std::move(text_), escapes_);
  }

 private:
  char peek() const {
    if (at_ == form_.size()) fail("incomplete format");
    return form_[at_];
  }

  Value take() {
    if (next_ == values_.size()) fail("not enough arguments for format string");
    return values_[next_++];
  }

  // (name): of the mapping that is the right side.
  std::optional<Value> read_key() {
    if (peek() != '(') return {};
    const size_t close = form_.find(')', at_);
    if (close == std::string::npos) fail("incomplete format key");
    if (mapping_ == nullptr) fail("format requires a mapping");
    const std::string key = form_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    const Value* found = find(*mapping_, key);
    if (found == nullptr) fail("no such key: " + in_quotes(key));
    return *found;
  }

  int64_t read_width() {
    if (peek() != '*') return read_count(form_, &at_);
    ++at_;
    const int64_t width = need_integer(take());
    constexpr int64_t kMost = 1 << 20;
    if (width > kMost || width < -kMost) fail("a width or precision is too large");
    return width;
  }

  void write_field() {
    const std::optional<Value> keyed = read_key();
    FormatSpec spec;
    bool with_zeros = false;
    for (; one_of(peek(), "#0- +"); ++at_) {
      if (form_[at_] == '#') spec.is_alternate = true;
      if (form_[at_] == '0') with_zeros = true;
      if (form_[at_] == '-') spec.align = '<';
      if (form_[at_] == '+' || (form_[at_] == ' ' && spec.sign != '+')) spec.sign = form_[at_];
    }
    spec.width = read_width();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(read_width(), 0);
    }
    while (one_of(peek(), "hlL")) ++at_;
    const char type = form_[at_++];
    if (type == '%') {
      text_ += '%';
      return;
    }
    const bool is_number = one_of(type, "diuoxXeEfFgG");
    if (with_zeros && is_number && spec.align == '\0') {
      spec.fill = '0';
      spec.align = '=';
    }
    if (spec.align == '\0') spec.align = '>';
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    const Value value = keyed ? *keyed : take();
    text_ += is_number ? number_field(value, spec) : text_field(value, spec);
  }

  static std::string number_field(const Value& value, FormatSpec spec) {
    const bool wants_whole = one_of(spec.type, "doxX");
    if (!value.number() || (value.is<double>() && wants_whole && spec.type != 'd')) {
      fail(std::string("%") + spec.type + " format: a number is required, not " + type_name(value));
    }
    if (!wants_whole) return format_number(value, spec);
    const int64_t whole = value.integer() ? *value.integer() : truncated(*value.number());
    const auto digits = static_cast<size_t>(spec.precision.value_or(0));
    spec.precision.reset();
    if (digits == 0) return format_number(whole, spec);
    FormatSpec plain{.type = spec.type};
    std::string body = format_number(whole, plain);
    const std::string sign = whole < 0 ? "-" : (spec.sign == '-' ? "" : std::string(1, spec.sign));
    if (whole < 0) body.erase(0, 1);
    if (body.size() < digits) body.insert(0, digits - body.size(), '0');
    return padded(sign, body, spec, '>');
  }

  static int64_t truncated(double value) {
    if (!(std::fabs(value) < 9.2e18)) fail_overflow();
    return static_cast<int64_t>(value);
  }

  std::string text_field(const Value& value, const FormatSpec& spec) const {
    std::string text;
    switch (spec.type) {
      case 's':
        text = to_text(value);
        break;
      case 'r':
      case 'a':
        text = repr(value);
        break;
      case 'c':
        text = value.is_text() ? *value.text() : format_number(need_integer(value), {.type = 'c'});
        if (char_count(text) != 1) fail("%c requires int or char");
        break;
      default:
        fail(std::string("unsupported format character '") + spec.type + "'");
    }
    return format_text(escapes_ && !value.is_markup() ? html_escaped(text) : text, spec);
  }

  const std::string& form_;
  bool escapes_;
  Items values_;
  bool may_stay_ = false;  // values may be left over
  const Pairs* mapping_ = nullptr;
  size_t at_ = 0, next_ = 0;
  std::string text_;
};

class BraceFormat {
 public:
  BraceFormat(const Value& form, const Arguments& arguments) : arguments_(arguments), escapes_(form.is_markup()) {}

  std::string expanded(std::string_view form, int depth) {
    if (depth > 2) fail("Max string recursion exceeded");
    std::string text;
    for (size_t at = 0; at < form.size();) {
      const char c = form[at++];
      const bool is_brace = c == '{' || c == '}';
      if (!is_brace || (at < form.size() && form[at] == c)) {
        text += c;
        if (is_brace) ++at;
        continue;
      }
      if (c == '}') fail("Single '}' encountered in format string");
      const size_t close = field_end(form, at);
      text += field(form.substr(at, close - at), depth);
      at = close + 1;
    }
    return text;
  }

 private:
  static size_t field_end(std::string_view form, size_t at) {
    for (int open = 1; at < form.size(); ++at) {
      if (form[at] == '{') ++open;
      if (form[at] == '}' && --open == 0) return at;
    }
    fail("expected '}' before end of string");
  }

  std::string field(std::string_view whole, int depth) {
    size_t end = 0;
    for (bool in_index = false; end < whole.size() && (in_index || (whole[end] != ':' && whole[end] != '!')); ++end) {
      if (whole[end] == '[') in_index = true;
      if (whole[end] == ']') in_index = false;
    }
    Value value = looked_up(whole.substr(0, end));
    if (end < whole.size() && whole[end] == '!') {
      const char conversion = end + 1 < whole.size() ? whole[end + 1] : '\0';
      if (conversion != 'r' && conversion != 's' && conversion != 'a') fail("Unknown conversion specifier");
      value = conversion == 's' ? to_text(value) : repr(value);
      end += 2;
      if (end < whole.size() && whole[end] != ':') fail("expected ':' after conversion specifier");
    }
    const std::string spec = end < whole.size() ? expanded(whole.substr(end + 1), depth + 1) : "";
    const std::string text = format_value(value, spec);
    return escapes_ && !value.is_markup() ? html_escaped(text) : text;
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string_view::npos;
  }

  Value looked_up(std::string_view path) {
    size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = first(path.substr(0, end), end == path.size());
    while (end < path.size()) {
      if (path[end] == '.') {
        const size_t begin = end + 1;
        end = std::min(path.find_first_of(".[", begin), path.size());
        value = attribute(value, std::string(path.substr(begin, end - begin)));
      } else if (const size_t close = path[end] == '[' ? path.find(']', end) : std::string::npos;
                 close != std::string::npos) {
        const std::string key(path.substr(end + 1, close - end - 1));
        value = item(value, is_number(key) ? Value(static_cast<int64_t>(std::stoll(key))) : Value(key));
        end = close + 1;
      } else {
        fail("a field's index has no end");
      }
    }
    return value;
  }

  // `is_all`: there is no index or attribute behind it.
  Value first(std::string_view name, bool is_all) {
    if (name.empty() || is_number(name)) {
      if (is_all && (name.empty() ? by_hand_ : next_ > 0)) fail("fields are numbered by hand and by themselves");
      by_hand_ |= is_all && !name.empty();
      const size_t index = name.empty() ? next_++ : std::stoul(std::string(name));
      if (index >= arguments_.positional.size()) {
        fail("Replacement index " + std::to_string(index) + " out of range for positional args tuple");
      }
      return arguments_.positional[index];
    }
    const auto named = std::ranges::find(arguments_.named, name, [](const auto& pair) { return pair.first; });
    if (named == arguments_.named.end()) fail("no such argument: " + in_quotes(name));
    return named->second;
  }

  const Arguments& arguments_;
  bool escapes_;
  size_t next_ = 0;
  bool by_hand_ = false;
};

}  // namespace

Value percent_formatted(const Value& form, const Value& values) { return PercentFormat(form, values).run(); }

Value brace_formatted(Interpreter&, const Value& form, const Arguments& arguments) {
  return Value(BraceFormat(form, arguments).expanded(need_text(form), 1), form.is_markup());
}

}  // namespace pinion::jinja
