// Compiles and runs regular expressions by PCRE2.
#include "tokenizer/tokens/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

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

Error too_slow() { return error("takes too much time for this text", "a regular expression of the tokenizer"); }

// Offset of the first character at `at` or later.
size_t next_character_start(std::string_view text, size_t at) {
  while (at < text.size() && !begins_character(text[at])) ++at;
  return std::min(at, text.size());
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
