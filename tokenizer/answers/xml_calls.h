// Reads a call of ToolBody::kXml between its marks.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/answers/call_stream.h"
#include "tokenizer/answers/tool_formats.h"

namespace pinion {

class XmlCalls {
 public:
  // `mark`: the one that was read.
  XmlCalls(const ToolFormatRow& row, std::string_view mark)
      : row_(row), phase_(mark.starts_with("<function=") ? Phase::kName : Phase::kFunction) {}
  Step step(CallStream* stream);

 private:
  enum class Phase { kFunction, kName, kParameter, kKey, kNewline, kString, kJson, kClose };

  Step read_name(CallStream* stream);
  Step read_tag(CallStream* stream);
  Step read_key(CallStream* stream);
  Step start_value(CallStream* stream);
  Step read_string(CallStream* stream);
  Step read_json(CallStream* stream);

  const ToolFormatRow& row_;
  Phase phase_;
  std::string name_;
  bool has_parameters_ = false;
  std::vector<std::string> types_;  // of the parameter that is being read
  size_t searched_ = 0;             // of a value that has to be JSON: no end in so many bytes
};

// The JSON for what a model wrote without quotes, if it is one of these types; else empty. Python's None, True and
// False count, since templates show them to models.
std::string plain_value(std::string_view text, const std::vector<std::string>& types);

}  // namespace pinion
