// See json.h.
#include "tokenizer/templates/jinja/json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "tokenizer/templates/jinja/stable_sort.h"
#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {
namespace {

class JsonWriter {
 public:
  explicit JsonWriter(const Slots& a) : ascii_(a.flag(1)), sorts_(a.flag(4)) {
    if (a.is_given(2)) {
      item_separator_ = ",";
      is_indented_ = true;
      indent_ = a[2].is_text()
                    ? *a[2].text()
                    : std::string(static_cast<size_t>(std::clamp<int64_t>(need_integer(a[2]), 0, 1024)), ' ');
    }
    if (a.is_given(3)) {
      const Items both = to_items(a[3]);
      if (both.size() != 2) fail("separators must be a pair");
      item_separator_ = need_text(both[0]);
      key_separator_ = need_text(both[1]);
    }
  }

  std::string run(const Value& value) {
    write(value, 0);
    return std::move(text_);
  }

 private:
  void new_line(int level) {
    if (!is_indented_) return;
    text_ += '\n';
    for (int i = 0; i < level; ++i) text_ += indent_;
  }

  void write_text(const std::string& text) {
    text_ += '"';
    for (const char32_t c : to_chars(text)) {
      if (const size_t known = std::u32string_view(U"\"\\\n\r\t\b\f").find(c); known != std::u32string_view::npos) {
        text_ += {'\\', "\"\\nrtbf"[known]};
      } else if (c < 0x20 || (ascii_ && c > 0x7E)) {
        write_code(c);
      } else {
        append_utf8(c, &text_);
      }
    }
    text_ += '"';
  }

  // As UTF-16, of which a character may need two units.
  void write_code(char32_t c) {
    std::array<char, 16> code{};
    if (c < 0x10000) {
      std::snprintf(code.data(), code.size(), "\\u%04x", static_cast<unsigned>(c));
    } else {
      const auto rest = static_cast<unsigned>(c - 0x10000);
      std::snprintf(code.data(), code.size(), "\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }
    text_ += code.data();
  }

  void write_number(double value) {
    text_ += std::isnan(value) ? "NaN" : (std::isinf(value) ? (value < 0 ? "-Infinity" : "Infinity") : repr(value));
  }

  void write(const Value& value, int level) {
    const Depth guard;
    if (const std::string* text = value.text()) return write_text(*text);
    if (value.is_none()) {
      text_ += "null";
    } else if (value.is<bool>()) {
      text_ += value.get<bool>() ? "true" : "false";
    } else if (value.integer()) {
      text_ += repr(value);
    } else if (value.is<double>()) {
      write_number(value.get<double>());
    } else if (value.items()) {
      write_list(*value.items(), level);
    } else if (value.pairs()) {
      write_mapping(*value.pairs(), level);
    } else {
      fail("Object of type " + type_name(value) + " is not JSON serializable");
    }
  }

  void write_list(const Items& items, int level) {
    text_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) text_ += item_separator_;
      new_line(level + 1);
      write(items[i], level + 1);
    }
    if (!items.empty()) new_line(level);
    text_ += ']';
  }

  void write_key(const Value& key) {
    if (const std::string* text = key.text()) return write_text(*text);
    if (!key.is_none() && !key.number()) {
      fail("keys must be str, int, float, bool or None, not " + type_name(key));
    }
    text_ += '"';
    write(key, 0);
    text_ += '"';
  }

  void write_mapping(Pairs pairs, int level) {
    if (sorts_) {
      stable_sort(&pairs, [](const Pair& a, const Pair& b) { return less(a.key, b.key); });
    }
    text_ += '{';
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (i > 0) text_ += item_separator_;
      new_line(level + 1);
      write_key(pairs[i].key);
      text_ += key_separator_;
      write(pairs[i].value, level + 1);
    }
    if (!pairs.empty()) new_line(level);
    text_ += '}';
  }

  bool ascii_, sorts_, is_indented_ = false;
  std::string indent_, item_separator_ = ", ", key_separator_ = ": ", text_;
};

}  // namespace

Value to_json(Interpreter&, const Slots& arguments) { return JsonWriter(arguments).run(arguments[0]); }

}  // namespace pinion::jinja
