// Reads a call of ToolBody::kBraces between its marks.
#pragma once

#include <string>

#include "tokenizer/answers/call_stream.h"
#include "tokenizer/answers/tool_formats.h"

namespace pinion {

class BraceCalls {
 public:
  explicit BraceCalls(const ToolFormatRow& row) : row_(row) {}
  Step step(CallStream* stream);

 private:
  enum class Phase { kCall, kName, kKeyOrEnd, kKey, kColon, kElementOrEnd, kValue, kString, kCommaOrEnd, kClose };

  Step read_name(CallStream* stream);
  Step read_key(CallStream* stream);
  Step read_value(CallStream* stream);
  Step read_plain(CallStream* stream);
  Step read_string(CallStream* stream);
  Step read_comma(CallStream* stream);
  Step open(Phase next, CallStream* stream);
  Step close(CallStream* stream);
  Step say(std::string_view json, size_t bytes, Phase next, CallStream* stream);

  const ToolFormatRow& row_;
  Phase phase_ = Phase::kCall;
  Phase behind_string_ = Phase::kCommaOrEnd;
  std::string open_;  // the brackets around, '{' and '['
};

}  // namespace pinion
