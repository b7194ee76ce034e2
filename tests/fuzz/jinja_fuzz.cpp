// Arbitrary bytes as a template: refused or parsed. A template may run forever, so none is run.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"
#include "tokenizer/templates/jinja.h"
#include "tokenizer/tokens/unicode.h"

using namespace pinion;

FUZZ_TARGET(jinja) {
  const std::string source = to_utf8(std::string_view(reinterpret_cast<const char*>(data), size));
  const Error e = jinja::check_source(jinja::normalized_source(source), "t");
  require(!failed(e) || e.message().starts_with("t: template does not parse: "));
  return 0;
}
