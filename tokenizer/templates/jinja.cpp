// See jinja.h.
#include "tokenizer/templates/jinja.h"

#include "tokenizer/templates/jinja/lexer.h"
#include "tokenizer/templates/jinja/run.h"
#include "tokenizer/templates/limited_run.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {

struct JinjaTemplate {
  std::string source;  // normalized
  std::string where;
};

namespace {

// Far above any template in use.
constexpr size_t kMostTemplateBytes = size_t{8} << 20;

}  // namespace

Error parse_jinja(const std::string& source, const std::string& where, std::shared_ptr<const JinjaTemplate>* out) {
  if (source.size() > kMostTemplateBytes) {
    return error("template is too long", where, "at most " + std::to_string(kMostTemplateBytes) + " bytes",
                 std::to_string(source.size()));
  }
  const auto jinja = std::make_shared<const JinjaTemplate>(jinja::normalized_source(to_utf8(source)), where);
  const auto trial = [&](std::string*) { return jinja::check_source(jinja->source, where); };
  std::string nothing;
  if (Error e = run_limited(trial, where, &nothing)) return e;
  *out = jinja;
  return {};
}

Error print_as_jinja(const nlohmann::ordered_json& value, std::string* out) { return jinja::print(value, out); }

Error render_jinja(const JinjaTemplate& jinja, const nlohmann::ordered_json& variables, std::string* out) {
  const auto work = [&](std::string* text) { return jinja::run_source(jinja.source, jinja.where, variables, text); };
  return run_limited(work, jinja.where, out);
}

}  // namespace pinion
