// A model's answer as text, token by token, up to where a stop text begins.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/answers/stop_texts.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

class AnswerText {
 public:
  // Special tokens give no text, but for those that `is_mark` names: marks around thoughts and tool calls, which some
  // vocabularies have as special tokens, are for whoever reads the text. `at_start`: see StreamDecoder.
  AnswerText(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops,
             std::function<bool(std::string_view token)> is_mark = {}, bool at_start = true)
      : tokenizer_(tokenizer),
        decoder_(std::move(tokenizer), true, at_start),
        stops_(std::move(stops)),
        is_mark_(std::move(is_mark)) {}

  // Whole UTF-8 characters; text that may be the beginning of a stop text is held back.
  std::string put(int32_t id) {
    if (is_mark_ && is_special(*tokenizer_, id)) {
      const std::string token = token_text(*tokenizer_, id);
      if (is_mark_(token)) return stops_.put(decoder_.finish() + token);
    }
    return stops_.put(decoder_.put(id));
  }
  std::string finish() { return stops_.finish(decoder_.finish()); }
  bool is_stopped() const { return stops_.found(); }  // from then on there is no more text
  const std::string& stop_text() const { return stops_.found_text(); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  StreamDecoder decoder_;
  StopTexts stops_;
  std::function<bool(std::string_view)> is_mark_;
};

}  // namespace pinion
