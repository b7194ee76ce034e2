// Arbitrary bytes as a list of messages, as /load and `template` read it: refused, or its special tokens are escaped
// and unescaping restores every string.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "loader/files/json.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"
#include "tokenizer/templates/chat_template.h"

using namespace pinion;
using Ordered = nlohmann::ordered_json;

static void append_strings(const Ordered& value, std::vector<std::string>* out) {
  if (value.is_string()) out->push_back(value);
  if (!value.is_structured()) return;
  for (const auto& [key, item] : value.items()) {
    if (value.is_object()) out->push_back(key);
    append_strings(item, out);
  }
}

FUZZ_TARGET(messages) {
  static const std::vector<AddedToken> kTokens = {{.content = "<|im_start|>", .id = 1, .special = true},
                                                  {.content = "<|im_end|>", .id = 2, .special = true},
                                                  {.content = "</s>", .id = 3, .special = true},
                                                  {.content = "\n\n", .id = 4},
                                                  {.content = "é", .id = 5, .special = true}};
  Ordered messages, tools;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (failed(parse_ordered_json(text, "messages", &messages)) || failed(check_messages(messages))) return 0;
  std::vector<std::string> before, after;
  append_strings(messages, &before);
  std::vector<Escape> escapes;
  if (failed(escape_special_tokens(kTokens, messages.dump(), &messages, &tools, &escapes))) return 0;
  append_strings(messages, &after);
  require(before.size() == after.size());
  for (size_t i = 0; i < before.size(); ++i) require(unescaped(after[i], escapes) == before[i]);
  return 0;
}
