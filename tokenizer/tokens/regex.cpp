// Translates Oniguruma's syntax into PCRE2's where they differ. A difference that no known tokenizer uses is an error.
#include "tokenizer/tokens/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>

#include "kernels/base/clock.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

constexpr size_t kMinJitStackBytes = size_t{32} << 10;
constexpr size_t kMaxJitStackBytes = size_t{16} << 20;
// Range of start positions that one call of PCRE2 tries. PCRE2's limit of steps applies to each position anew, and its
// compiled code cannot be interrupted. So the clock is read between calls.
constexpr size_t kWindowBytes = 256;
constexpr int kCallsPerCheck = 64;        // reading the clock takes longer than a typical match
constexpr int kFailedCallWeight = 8;      // a call without a match has tried all positions
constexpr double kSecondsPerByte = 5e-6;  // 100 times the cost of real tokenizers

// Reads the pattern from left to right and copies common syntax.
struct RegexTranslator {
  std::string_view in;
  std::string out = {};
  size_t at = 0;
  bool in_class = false;
  std::string refused = {};  // the first unsupported construct, for the error

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

// The members of \w, spelled out since releases of PCRE2 differ.
constexpr std::string_view kWordSet = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

// Escapes that differ in PCRE2, or exist in only one dialect. (\b in a class is a backspace in both.)
constexpr std::string_view kForeignEscapes = "bBhHRXKyYgGkCMQENO";

void translate_word(RegexTranslator& t, bool negated) {
  if (t.in_class && negated) {
    t.refused = "\\W inside [ ]";
  } else if (t.in_class) {
    t.replace(2, kWordSet);
  } else {
    t.replace(2, (negated ? "[^" : "[") + std::string(kWordSet) + "]");
  }
}

void translate_escape(RegexTranslator& t) {
  const char kind = t.at + 1 < t.in.size() ? t.in[t.at + 1] : '\0';
  switch (kind) {
    case 's':
      return t.replace(2, "\\p{White_Space}");  // PCRE2's \s includes U+180E, which is no white space
    case 'S':
      return t.replace(2, "\\P{White_Space}");
    case 'v':
      return t.replace(2, "\\x0B");
    case 'w':
      return translate_word(t, false);
    case 'W':
      return translate_word(t, true);
    case 'p':
    case 'P': {
      const size_t close = t.in.find('}', t.at);
      return t.copy(close == std::string_view::npos ? t.in.size() - t.at : close + 1 - t.at);
    }
    case 'u': {
      const std::string_view hex = t.in.substr(t.at + 2, 4);
      if (hex.size() < 4 || !std::all_of(hex.begin(), hex.end(), [](unsigned char c) { return std::isxdigit(c); })) {
        t.refused = "\\u without four hexadecimal digits";
        return;
      }
      return t.replace(6, "\\x{" + std::string(hex) + "}");
    }
    default:
      if (kForeignEscapes.find(kind) == std::string_view::npos || (kind == 'b' && t.in_class)) return t.copy(2);
      t.refused = std::string("\\") + kind;
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

void translate_in_class(RegexTranslator& t) {
  if (t.next_is("[:")) {
    t.refused = "[:name:]";
  } else if (t.next_is("[")) {
    t.refused = "[ inside [ ]";
  } else if (t.next_is("&&")) {
    t.refused = "&& inside [ ]";
  } else {
    if (t.next_is("]")) t.in_class = false;
    t.copy(1);
  }
}

void translate_next(RegexTranslator& t) {
  if (t.next_is("\\")) return translate_escape(t);
  if (t.in_class) return translate_in_class(t);
  if (t.next_is("[")) {
    t.in_class = true;
    t.copy(1);
    if (t.next_is("^")) t.copy(1);
    if (t.next_is("]")) t.replace(1, "\\]");  // a leading ] is an ordinary character
    return;
  }
  if (t.next_is("{")) return translate_brace(t);
  if (t.next_is("(?")) {
    const std::string_view flags = t.in.substr(t.at + 2, t.in.find_first_of(":)", t.at) - t.at - 2);
    const bool is_flags = flags.find_first_not_of("imx-") == std::string_view::npos;
    if (is_flags && flags.find('m') != std::string_view::npos) t.refused = "(?m";
    if (t.next_is("(?~") || t.next_is("(?(") || t.next_is("(?R")) t.refused = std::string(t.in.substr(t.at, 3));
    return t.copy(2);
  }
  if (t.next_is("(*")) {
    t.refused = "(*";
    return;
  }
  t.copy(1);
}

Error too_slow() { return error("takes too much time for this text", "a regular expression of the tokenizer"); }

// Offset of the first character at `at` or later.
size_t next_character_start(std::string_view text, size_t at) {
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return std::min(at, text.size());
}

Error translate_regex(const std::string& pattern, const std::string& where, std::string* out) {
  RegexTranslator t{.in = pattern};
  while (t.at < t.in.size() && t.refused.empty()) translate_next(t);
  if (!t.refused.empty()) return error("regular expression uses " + t.refused + ", which is not supported", where);
  *out = std::move(t.out);
  return {};
}

}  // namespace

Error compile_regex(const std::string& pattern, bool literal, const std::string& where, Regex* out) {
  std::string translated = pattern;
  if (!literal) {
    if (Error e = translate_regex(pattern, where, &translated)) return e;
  }
  const uint32_t options = PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT |
                           (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
  int code = 0;
  size_t offset = 0;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);  // the default depends on the build of the library
  pcre2_code* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options,
                                       &code, &offset, context);
  pcre2_compile_context_free(context);
  if (compiled == nullptr) {
    PCRE2_UCHAR text[256] = {};
    pcre2_get_error_message(code, text, sizeof(text));
    return error("regular expression does not compile", where, {}, reinterpret_cast<const char*>(text));
  }
  (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);  // on failure the interpreter runs
  *out = Regex(compiled, [](const pcre2_code* regex) { pcre2_code_free(const_cast<pcre2_code*>(regex)); });
  return {};
}

struct RegexFinder::Scratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kMinJitStackBytes, kMaxJitStackBytes, nullptr);

  Scratch() { pcre2_jit_stack_assign(context, nullptr, stack); }
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

RegexFinder::RegexFinder(size_t text_bytes, double base_seconds)
    : scratch_(std::make_shared<Scratch>()),
      end_seconds_(thread_seconds() + base_seconds + kSecondsPerByte * static_cast<double>(text_bytes)) {}

// The first match that begins at `from` or later; without one an empty span at the end that is no match.
Error RegexFinder::match(const Regex& regex, std::string_view text, size_t from, Span* out) {
  // A check of the UTF-8 at every match would make the search quadratic.
  const auto run = [&](uint32_t options) {
    return pcre2_match(regex.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       options | PCRE2_NO_UTF_CHECK, scratch_->data, scratch_->context);
  };
  for (;;) {
    const size_t last = next_character_start(text, from + kWindowBytes);
    pcre2_set_offset_limit(scratch_->context, last);
    int found = run(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = run(PCRE2_NO_JIT);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) return too_slow();
    calls_until_check_ -= found < 0 ? kFailedCallWeight : 1;
    if (calls_until_check_ < 0) {
      if (thread_seconds() > end_seconds_) return too_slow();
      calls_until_check_ = kCallsPerCheck;
    }
    if (found >= 0) {
      const size_t* bounds = pcre2_get_ovector_pointer(scratch_->data);
      *out = {bounds[0], bounds[1], true};
      return {};
    }
    if (last == text.size()) break;
    from = next_character_start(text, last + 1);
  }
  *out = {text.size(), text.size(), false};
  return {};
}

Error RegexFinder::find(const Regex& regex, std::string_view text, const OnSpan& on_span) {
  if (text.empty()) return on_span({0, 0, false});
  size_t covered = 0;  // the end of the last span
  bool has_match = false;
  Span found{};
  for (size_t from = 0; from <= text.size();) {
    if (Error e = match(regex, text, from, &found)) return e;
    if (!found.match) break;
    // An empty match at the end of a match does not count; after an empty match the search advances by one character.
    const bool is_empty = found.begin == found.end;
    if (!is_empty || found.begin != covered || !has_match) {
      if (covered != found.begin) {
        if (Error e = on_span({covered, found.begin, false})) return e;
      }
      if (Error e = on_span(found)) return e;
      covered = found.end;
      has_match = true;
    }
    from = is_empty ? found.end + std::max<size_t>(utf8_length(text.substr(found.end)), 1) : found.end;
  }
  return covered == text.size() ? Error{} : on_span({covered, text.size(), false});
}

}  // namespace pinion
