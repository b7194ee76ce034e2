// Any text of a model in any chunks: thoughts and answer equal those of the text as a whole.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"
#include "tokenizer/answers/answer_text.h"

namespace {

using namespace pinion;

struct SplitText {
  std::string thoughts, answer;
  bool inside = false;
  bool operator==(const SplitText&) const = default;
};

SplitText split(std::string_view text, bool inside, size_t step) {
  ThinkingSplitter splitter(inside);
  SplitText result;
  const auto add = [&](const std::vector<ThinkingText>& texts) {
    for (const ThinkingText& part : texts) (part.is_thought ? result.thoughts : result.answer) += part.text;
  };
  for (; !text.empty(); text.remove_prefix(std::min(step, text.size()))) add(splitter.put(text.substr(0, step)));
  add(splitter.finish());
  result.inside = splitter.inside();
  return result;
}

// The lowest bytes stand for marks and their beginnings, the others for themselves.
std::string text_of(std::string_view bytes) {
  constexpr std::string_view kWords[] = {"<think>", "</think>", "\n",   "<",       "</",
                                         "think>",  " ",        "<thi", "[THINK]", "[/THINK]"};
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < std::size(kWords) ? kWords[byte] : std::string_view(&c, 1);
  }
  return text;
}

}  // namespace

FUZZ_TARGET(thinking) {
  if (size < 2) return 0;
  const std::string text = text_of({reinterpret_cast<const char*>(data) + 2, size - 2});
  const bool inside = data[0] & 1;
  require(split(text, inside, 1 + data[1] % 16) == split(text, inside, std::max<size_t>(text.size(), 1)));
  return 0;
}
