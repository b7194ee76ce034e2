#include "loader/quant/module_patterns.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <string_view>

#include "loader/files/json.h"

namespace pinion {
namespace {

constexpr std::string_view kRegexMark = "re:";
constexpr uint32_t kMaxRegexSteps = 100'000;  // names are short: sane expressions need some dozens
constexpr uint32_t kMaxRegexMemory = 1024;    // KiB

Error match_regex(const ModulePattern& pattern, const std::string& name, bool* out) {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(context, kMaxRegexSteps);
  pcre2_set_heap_limit(context, kMaxRegexMemory);
  const int found =
      pcre2_match(pattern.regex.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, data, context);
  pcre2_match_context_free(context);
  pcre2_match_data_free(data);
  *out = found >= 0;
  if (found >= 0 || found == PCRE2_ERROR_NOMATCH) return {};
  return error("regular expression takes too many steps", "config.json: quantization_config: " + brief(pattern.text),
               {}, brief(name));
}

}  // namespace

Error compile_pattern(const std::string& text, const std::string& where, ModulePattern* out) {
  out->text = text;
  if (!text.starts_with(kRegexMark)) return {};
  const std::string_view pattern = std::string_view(text).substr(kRegexMark.size());
  int code = 0;
  size_t offset = 0;
  pcre2_code* compiled =
      pattern.find("(*") != pattern.npos
          ? nullptr
          : pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr);
  if (compiled == nullptr) return error("not a regular expression", where, {}, brief(text));
  out->regex = {compiled, [](const pcre2_code* regex) { pcre2_code_free(const_cast<pcre2_code*>(regex)); }};
  return {};
}

Error match_patterns(const std::vector<ModulePattern>& patterns, const std::vector<std::string>& names, Match* out) {
  *out = Match::none;
  for (const ModulePattern& pattern : patterns) {
    if (pattern.text == "Linear") *out = std::max(*out, Match::by_class);
    for (const std::string& name : names) {
      bool is_named = pattern.text == name;
      if (pattern.regex) {
        if (Error e = match_regex(pattern, name, &is_named)) return e;
      }
      if (is_named) *out = Match::by_name;
    }
  }
  return {};
}

}  // namespace pinion
