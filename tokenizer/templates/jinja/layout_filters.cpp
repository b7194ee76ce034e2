// Filters that break lines as Python's modules textwrap and pprint do.
#include <algorithm>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/stable_sort.h"
#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {
namespace {

using Chars = std::u32string_view;

bool is_blank(char32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_word_char(char32_t c) { return is_alnum(c) || c == '_'; }
bool is_letter(char32_t c) { return is_alpha(c) || c == '_' || (is_numeric(c) && !is_decimal(c)); }
bool is_word_mark(char32_t c) { return is_word_char(c) || Chars(U"!\"'&.,?").find(c) != Chars::npos; }

// textwrap's pieces, between any two of which a line may end: blanks, words, parts of words up to a hyphen, dashes.
class Pieces {
 public:
  Pieces(Chars text, bool at_hyphens) : text_(text), at_hyphens_(at_hyphens) {}

  std::vector<std::u32string> run() {
    std::vector<std::u32string> pieces;
    for (size_t at = 0; at < text_.size();) {
      const size_t end = piece_end(at);
      pieces.emplace_back(text_.substr(at, end - at));
      at = end;
    }
    return pieces;
  }

 private:
  char32_t at(size_t index) const { return index < text_.size() ? text_[index] : U'\0'; }

  // One past the hyphens of a dash that begins at `begin`: two or more, between words. `begin` where there is none.
  size_t dash_end(size_t begin) const {
    size_t end = begin;
    while (at(end) == '-') ++end;
    return begin > 0 && is_word_mark(text_[begin - 1]) && end > begin + 1 && is_word_char(at(end)) ? end : begin;
  }

  bool breaks_at_hyphen(size_t hyphen) const {
    if (at(hyphen) != '-' || hyphen < 2 || !is_letter(text_[hyphen - 1])) return false;
    const bool has_word_before =
        is_letter(text_[hyphen - 2]) || (hyphen >= 3 && text_[hyphen - 2] == '-' && is_letter(text_[hyphen - 3]));
    const size_t next = at(hyphen + 2) == '-' ? hyphen + 3 : hyphen + 2;
    return has_word_before && is_letter(at(hyphen + 1)) && is_letter(at(next));
  }

  size_t piece_end(size_t begin) const {
    size_t end = begin;
    while (end < text_.size() && is_blank(text_[end])) ++end;
    if (end > begin) return end;
    if (at_hyphens_ && dash_end(begin) > begin) return dash_end(begin);
    for (end = begin + 1; end < text_.size() && !is_blank(text_[end]); ++end) {
      if (at_hyphens_ && breaks_at_hyphen(end)) return end + 1;
      if (at_hyphens_ && dash_end(end) > end) return end;
    }
    return end;
  }

  Chars text_;
  bool at_hyphens_;
};

// The end of what is taken of a word that is longer than a line.
size_t forced_end(Chars word, size_t room, bool at_hyphens) {
  if (!at_hyphens || word.size() <= room) return room;
  const size_t hyphen = room == 0 ? Chars::npos : word.rfind(U'-', room - 1);
  const bool has_text = hyphen != Chars::npos && hyphen > 0 && word.find_first_not_of(U'-') < hyphen;
  return has_text ? hyphen + 1 : room;
}

std::vector<std::u32string> wrapped_lines(Chars text, size_t width, bool breaks_words, bool at_hyphens) {
  std::vector<std::u32string> pieces = Pieces(text, at_hyphens).run(), lines;
  std::ranges::reverse(pieces);
  const auto is_space = [](const std::u32string& piece) { return std::ranges::all_of(piece, is_python_space); };
  while (!pieces.empty()) {
    std::vector<std::u32string> line;
    size_t size = 0;
    if (!lines.empty() && is_space(pieces.back())) pieces.pop_back();
    for (; !pieces.empty() && size + pieces.back().size() <= width; pieces.pop_back()) {
      size += pieces.back().size();
      line.push_back(pieces.back());
    }
    if (!pieces.empty() && pieces.back().size() > width) {
      if (breaks_words) {
        const size_t end = forced_end(pieces.back(), width - size, at_hyphens);
        line.push_back(pieces.back().substr(0, end));
        pieces.back().erase(0, end);
      } else if (line.empty()) {
        line.push_back(pieces.back());
        pieces.pop_back();
      }
    }
    if (!line.empty() && is_space(line.back())) line.pop_back();
    std::u32string whole;
    for (const std::u32string& piece : line) whole += piece;
    if (!line.empty()) lines.push_back(std::move(whole));
  }
  return lines;
}

Value wrapped(Interpreter& interpreter, const Slots& a) {
  const int64_t width = a.integer(1, 79);
  const std::string separator = a.is_given(3) ? need_text(a[3]) : "\n";
  const Value lines = run(interpreter, *find(text_searches(), "splitlines"), {{Value(need_text(a[0]))}, {}});
  std::string text;
  for (size_t i = 0; i < lines.items()->size(); ++i) {
    if (width <= 0) fail("invalid width " + std::to_string(width) + " (must be > 0)");
    if (i > 0) text += separator;
    const auto parts = wrapped_lines(to_chars(*(*lines.items())[i].text()), static_cast<size_t>(width),
                                     !a.has(2) || a.flag(2), !a.has(4) || a.flag(4));
    for (size_t part = 0; part < parts.size(); ++part) text += (part > 0 ? separator : "") + from_chars(parts[part]);
  }
  return text;
}

// pprint.pformat.
class PrettyPrinter {
 public:
  std::string run(const Value& value) {
    write(value, 0, 0, 1);
    return std::move(text_);
  }

 private:
  static constexpr size_t kWidth = 80;

  // Mappings in the order of their keys.
  static Value ordered(const Value& value) {
    const Depth guard;
    if (value.items()) {
      Items items;
      for (const Value& item : *value.items()) items.push_back(ordered(item));
      return value.is<List>() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
    }
    return value.pairs() ? Value::mapping(sorted(*value.pairs())) : value;
  }

  static Pairs sorted(const Pairs& pairs) {
    Pairs result;
    for (const Pair& pair : pairs) result.push_back({pair.key, ordered(pair.value)});
    const auto has_order = [](const Value& x, const Value& y) {
      return (x.number() && y.number()) || (x.is_text() && y.is_text());
    };
    stable_sort(&result, [&](const Pair& x, const Pair& y) {
      return has_order(x.key, y.key) ? less(x.key, y.key) : type_name(x.key) < type_name(y.key);
    });
    return result;
  }

  void break_line(size_t indent) { text_ += "\n" + std::string(indent, ' '); }

  void write(const Value& value, size_t indent, size_t allowance, int level) {
    const Depth guard;
    const std::string plain = repr(ordered(value));
    if (char_count(plain) + indent + allowance <= kWidth) {
      text_ += plain;
    } else if (value.is_text() && !value.is_markup() && !value.text()->empty()) {
      write_text(*value.text(), indent, allowance, level);
    } else if (value.items()) {
      const char* close = value.is<List>() ? "]" : (value.items()->size() == 1 ? ",)" : ")");
      text_ += value.is<List>() ? '[' : '(';
      write_items(*value.items(), indent + 1, allowance + std::string_view(close).size(), level + 1);
      text_ += close;
    } else if (value.pairs()) {
      text_ += '{';
      write_pairs(sorted(*value.pairs()), indent + 1, allowance + 1, level + 1);
      text_ += '}';
    } else {
      text_ += plain;
    }
  }

  void write_items(const Items& items, size_t indent, size_t allowance, int level) {
    for (size_t i = 0; i < items.size(); ++i) {
      const bool is_last = i + 1 == items.size();
      write(items[i], indent, is_last ? allowance : 1, level);
      if (is_last) return;
      text_ += ',';
      break_line(indent);
    }
  }

  void write_pairs(const Pairs& pairs, size_t indent, size_t allowance, int level) {
    for (size_t i = 0; i < pairs.size(); ++i) {
      const bool is_last = i + 1 == pairs.size();
      const std::string key = repr(pairs[i].key) + ": ";
      text_ += key;
      write(pairs[i].value, indent + char_count(key), is_last ? allowance : 1, level);
      if (is_last) return;
      text_ += ',';
      break_line(indent);
    }
  }

  // The pieces of a text that fit on a line: whole lines, or so many words of one.
  static std::vector<std::string> text_pieces(const std::string& text, int64_t width, int64_t last_width) {
    std::vector<std::string> pieces;
    const std::u32string chars = to_chars(text);
    const auto fits = [&](Chars part, bool is_last) {
      return static_cast<int64_t>(char_count(in_quotes(from_chars(part)))) <= (is_last ? last_width : width);
    };
    const auto add = [&](Chars part) {
      if (!part.empty()) pieces.push_back(in_quotes(from_chars(part)));
    };
    for (size_t begin = 0; begin < chars.size();) {
      size_t end = begin;
      while (end < chars.size() && !is_line_end(chars[end])) ++end;
      end = std::min(end + (Chars(chars).substr(end).starts_with(U"\r\n") ? 2 : 1), chars.size());
      const bool is_last_line = end == chars.size();
      size_t piece = begin;
      if (!fits(Chars(chars).substr(begin, end - begin), is_last_line)) {
        for (size_t word = begin, next = begin; word < end; word = next) {
          while (next < end && !is_python_space(chars[next])) ++next;
          while (next < end && is_python_space(chars[next])) ++next;
          if (fits(Chars(chars).substr(piece, next - piece), is_last_line && next == end)) continue;
          add(Chars(chars).substr(piece, word - piece));
          piece = word;
        }
      }
      add(Chars(chars).substr(piece, end - piece));
      begin = end;
    }
    return pieces;
  }

  void write_text(const std::string& text, size_t indent, size_t allowance, int level) {
    if (level == 1) {
      ++indent;
      ++allowance;
    }
    const int64_t width = static_cast<int64_t>(kWidth) - static_cast<int64_t>(indent);
    const auto pieces = text_pieces(text, width, width - static_cast<int64_t>(allowance));
    const bool in_brackets = level == 1 && pieces.size() > 1;
    if (in_brackets) text_ += '(';
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i > 0) break_line(indent);
      text_ += pieces[i];
    }
    if (in_brackets) text_ += ')';
  }

  std::string text_;
};

Value pretty(Interpreter&, const Slots& a) { return PrettyPrinter().run(a[0]); }

constexpr Builtin kFilters[] = {
    {"wordwrap", "s | width break_long_words wrapstring break_on_hyphens", wrapped},
    {"pprint", "value", pretty},
};

}  // namespace

std::span<const Builtin> layout_filters() { return kFilters; }

}  // namespace pinion::jinja
