// Functions that the grammar library calls: its log (XGRAMMAR_LOG_CUSTOMIZE), and a hook in its parser that a patch of
// tools/setup adds.
#pragma once

#include <string>

namespace pinion {

// The first warning in this thread, for example of a keyword that the library ignores. Callers clear it before a call.
std::string& grammar_warning();

// While it exists, the parser throws once this thread has used `seconds` of CPU time. With or without it the parser
// throws when an ambiguous grammar makes it hold too many states.
class GrammarTimeLimit {
 public:
  explicit GrammarTimeLimit(double seconds);
  ~GrammarTimeLimit();
  GrammarTimeLimit(const GrammarTimeLimit&) = delete;
  GrammarTimeLimit& operator=(const GrammarTimeLimit&) = delete;
};

}  // namespace pinion
