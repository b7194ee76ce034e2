// Character data comes from utf8proc, whose own sort of combining marks is quadratic in the length of their run.
#include "tokenizer/tokens/unicode.h"

#include <utf8proc.h>

#include <array>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/base/utf8.h"

namespace pinion {
namespace {

constexpr size_t kMaxDecomposition = 18;  // characters, of U+FDFA under NFKD

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Hugging Face's tokenizers normalises by Unicode 9. These ranges contain all characters with a decomposition or
// combining class that Unicode 10 to 17 added, and no older ones. They count as unassigned with any utf8proc.
constexpr std::array<std::pair<char32_t, char32_t>, 26> kNewerThanReference = {
    {{0x07FD, 0x07FD},   {0x0897, 0x08D3},   {0x09FE, 0x09FE},   {0x0C3C, 0x0C3C},   {0x0D3B, 0x0D3C},
     {0x0EBA, 0x0EBA},   {0x1715, 0x1715},   {0x1ABF, 0x1AEB},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},
     {0xA7F1, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x105C9, 0x107BA}, {0x10D24, 0x10F85},
     {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x11383, 0x113D0}, {0x1145E, 0x1145E}, {0x11839, 0x11A99},
     {0x11D42, 0x1612F}, {0x16D63, 0x16FF1}, {0x1CCD6, 0x1CCF9}, {0x1E030, 0x1E6F5}, {0x1F16C, 0x1F16C},
     {0x1FBF0, 0x1FBF9}}};

bool is_newer_than_reference(utf8proc_int32_t c) {
  const auto after = std::upper_bound(kNewerThanReference.begin(), kNewerThanReference.end(), char32_t(c),
                                      [](char32_t value, const auto& range) { return value < range.first; });
  return after != kNewerThanReference.begin() && char32_t(c) <= std::prev(after)->second;
}

int combining_class(utf8proc_int32_t c) {
  return is_newer_than_reference(c) ? 0 : utf8proc_get_property(c)->combining_class;
}

using Chars = std::vector<utf8proc_int32_t>;

// Sorts each run of combining marks by their classes, in the order of the text within a class.
void order_marks(Chars* chars) {
  const auto is_mark = [](utf8proc_int32_t c) { return combining_class(c) != 0; };
  std::vector<std::tuple<int, size_t, utf8proc_int32_t>> run;
  for (auto begin = chars->begin(); (begin = std::find_if(begin, chars->end(), is_mark)) != chars->end();) {
    run.clear();
    for (auto mark = begin; mark != chars->end() && is_mark(*mark); ++mark) {
      run.emplace_back(combining_class(*mark), run.size(), *mark);
    }
    std::ranges::sort(run);
    for (const auto& [combining, index, c] : run) *begin++ = c;
  }
}

Chars decompose(std::string_view text, bool compatible) {
  const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  Chars chars;
  chars.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    std::array<utf8proc_int32_t, kMaxDecomposition> buffer{};
    int boundary = 0;
    const utf8proc_int32_t c = next_char(text, &at);
    buffer[0] = c;
    const auto length = is_newer_than_reference(c)
                            ? 1
                            : utf8proc_decompose_char(c, buffer.data(), buffer.size(),
                                                      static_cast<utf8proc_option_t>(options), &boundary);
    chars.insert(chars.end(), buffer.begin(), buffer.begin() + std::max<utf8proc_ssize_t>(length, 0));
  }
  order_marks(&chars);
  return chars;
}

Chars compose(Chars chars) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  Chars result;
  result.reserve(chars.size());
  for (auto begin = chars.begin(); begin != chars.end();) {
    const auto end = std::find_if(begin, chars.end(), is_newer_than_reference);
    const auto length = utf8proc_normalize_utf32(&*begin, end - begin, options);
    result.insert(result.end(), begin, begin + std::max<utf8proc_ssize_t>(length, 0));
    begin = end;
    if (begin != chars.end()) result.push_back(*begin++);  // not composed with its neighbours
  }
  return result;
}

struct ByteAlphabet {
  std::array<std::string, 256> chars;
  std::array<int, 0x144> bytes;  // by character, -1: none
};

// Printable Latin-1 bytes keep their character; the others become U+0100 onwards, in order.
const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet = [] {
    ByteAlphabet result;
    result.bytes.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const char32_t c = printable ? char32_t(byte) : next++;
      append_utf8(c, &result.chars[byte]);
      result.bytes[c] = byte;
    }
    return result;
  }();
  return alphabet;
}

}  // namespace

size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  bool whole = false;
  const size_t length = utf8_unit(text, &whole);
  return whole ? length : 0;
}

std::string to_utf8(std::string_view bytes) {
  if (is_ascii(bytes)) return std::string(bytes);
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    bool whole = false;
    const size_t length = utf8_unit(bytes, &whole);
    text += whole ? bytes.substr(0, length) : kReplacement;
    bytes.remove_prefix(length);
  }
  return text;
}

char32_t next_char(std::string_view text, size_t* at) {
  const auto lead = static_cast<unsigned char>(text[*at]);
  const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t c = length == 1 ? lead : lead & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) c = c << 6 | (static_cast<unsigned char>(text[*at + i]) & 0x3F);
  *at += length;
  return c;
}

size_t char_count(std::string_view text) { return std::ranges::count_if(text, begins_character); }

size_t last_char(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && !begins_character(text[at])) --at;
  return at;
}

void append_utf8(char32_t c, std::string* text) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(c, bytes);
  text->append(bytes, bytes + length);
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

std::string_view strip(std::string_view text, bool left, bool right, bool (*is_space)(char32_t)) {
  for (size_t at = 0; left && !text.empty() && is_space(next_char(text, &at)); at = 0) text.remove_prefix(at);
  while (right && !text.empty()) {
    const size_t last = last_char(text);
    size_t at = last;
    if (!is_space(next_char(text, &at))) break;
    text = text.substr(0, last);
  }
  return text;
}

bool is_word(char32_t c) {
  // utf8proc numbers the letters, marks and numbers in a row, then \p{Pc}.
  const auto category = utf8proc_category(c);
  static_assert(UTF8PROC_CATEGORY_LU == 1 && UTF8PROC_CATEGORY_PC == 12);
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_PC && category != UTF8PROC_CATEGORY_NO)
    return true;
  // Joiners, and alphabetic symbols: circled and squared Latin letters.
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

std::string normalize(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  Chars chars = decompose(text, form == NormalForm::kNfkc || form == NormalForm::kNfkd);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) chars = compose(std::move(chars));
  std::string result;
  result.reserve(text.size());
  for (const auto c : chars) append_utf8(c, &result);
  return result;
}

std::string lowercase(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, &at);
    if (c == 0x130) {  // the only one with two characters in lower case: i and a dot above
      result += "i\u0307";
    } else {
      append_utf8(utf8proc_tolower(c), &result);
    }
  }
  return result;
}

std::string bytes_to_chars(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  const auto& chars = byte_alphabet().chars;
  for (const char c : bytes) text += chars[static_cast<unsigned char>(c)];
  return text;
}

std::optional<char> char_to_byte(char32_t c) {
  const auto& bytes = byte_alphabet().bytes;
  if (c >= bytes.size() || bytes[c] < 0) return {};
  return static_cast<char>(bytes[c]);
}

}  // namespace pinion
