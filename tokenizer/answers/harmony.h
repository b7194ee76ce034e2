// Reads an answer of ToolBody::kHarmony: messages, each a header, "<|message|>", a text and a mark that ends it.
#pragma once

#include <string>

#include "tokenizer/answers/call_stream.h"
#include "tokenizer/answers/json_scanner.h"

namespace pinion {

class HarmonyMessages {
 public:
  // Never kDone: answers go on. At kWrong what is held is content.
  Step step(CallStream* stream);
  void finish(CallStream* stream);  // what is not read is not held either: it is text
  void resume_as_content();

 private:
  enum class Phase { kBetween, kHeader, kText, kArguments, kArgumentsText, kBehindCall };

  Step start(CallStream* stream);
  Step read_header(CallStream* stream);
  Step read_text(CallStream* stream);
  Step start_arguments(CallStream* stream);
  Step read_arguments(CallStream* stream);
  Step skip_end(CallStream* stream);

  Phase phase_ = Phase::kBetween;
  ToolEvent::Kind kind_ = ToolEvent::Kind::kContent;  // of the text
  std::string name_;                                  // of the tool
  size_t searched_ = 0;                               // of the header
  JsonScanner scanner_;
};

}  // namespace pinion
