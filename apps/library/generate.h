// One text for C, from its options to its result; alone or in a batch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/library/handles.h"
#include "engine/session/continuation.h"
#include "tokenizer/answers/answer_text.h"

namespace pinion {

// What comes of a text while it runs. One that has begun must not move: its callbacks point to it.
struct TextRun {
  GenerateOptions how;
  std::vector<std::string> stops;
  std::unique_ptr<AnswerText> answer;  // null: no tokenizer
  std::string text;
  void* user = nullptr;
  pinion_on_token on_token = nullptr;
  bool is_stopped = false;  // by the callback

  // Whether the text goes on.
  bool put(int32_t id);
  void finish();  // what was held back
};

// Behind a prompt, which is one of the model's or is refused before the first token.
Error begin_text(const OpenModel& model, std::span<const int32_t> prompt, const pinion_generate_options* options,
                 TextRun* out);

// For pinion_result_free.
pinion_result* make_result(const TextRun& run, const GenerateResult& result);
pinion_result* make_failed_result(pinion_status status, const Error& e);

}  // namespace pinion
