// Reads the calls of ToolBody::kJson and kNamed between their marks.
#pragma once

#include <string>

#include "tokenizer/answers/call_stream.h"
#include "tokenizer/answers/json_scanner.h"
#include "tokenizer/answers/tool_formats.h"

namespace pinion {

// Blanks and one of the marks that end a call.
Step skip_close(const ToolFormatRow& row, CallStream* stream);

class JsonCalls {
 public:
  explicit JsonCalls(const ToolFormatRow& row) : row_(row) {}
  Step step(CallStream* stream);

 private:
  enum class Phase {
    kStart,
    kElement,
    kFirstKey,
    kKey,
    kKeyText,
    kColon,
    kValue,
    kValueText,
    kAfterValue,
    kAfterElement,
    kClose
  };
  enum class Role { kName, kId, kArguments, kOther };

  Step read_punctuation(char c, CallStream* stream);
  Step start(char c, CallStream* stream);
  Step start_key(char c, CallStream* stream);
  Step start_value(char c, CallStream* stream);
  Step read_text(CallStream* stream);
  Step take_value(CallStream* stream);
  Step end_object(CallStream* stream);
  Step end_bracket(Phase next, CallStream* stream);
  bool take_arguments();
  void emit_whole(const std::string& arguments, CallStream* stream);
  Step go_on(Phase next, CallStream* stream);

  const ToolFormatRow& row_;
  Phase phase_ = Phase::kStart;
  bool in_list_ = false, may_separate_ = true;
  // Of the object that is being read.
  std::string key_, name_, id_, value_, arguments_;
  Role role_ = Role::kOther;
  bool is_ended_ = false;  // its call has been said
  JsonScanner scanner_;
};

// name[CALL_ID]id[ARGS]{...}
class NamedCalls {
 public:
  explicit NamedCalls(const ToolFormatRow& row) : list_(row) {}
  Step step(CallStream* stream);

 private:
  enum class Phase { kStart, kName, kMark, kId, kArguments, kArgumentsText, kList };

  Step read_up_to(std::string_view ends, std::string* out, Phase next, CallStream* stream);
  Step read_mark(CallStream* stream);
  Step read_arguments(CallStream* stream);

  Phase phase_ = Phase::kStart;
  std::string name_, id_;
  JsonScanner scanner_;
  JsonCalls list_;
};

}  // namespace pinion
