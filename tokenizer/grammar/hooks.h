// Functions that XGrammar calls: its log (XGRAMMAR_LOG_CUSTOMIZE), and a hook that tools/setup patches into its parser.
#pragma once

#include <string>

namespace pinion {

// The first warning in this thread, for example of a keyword that the library ignores. Callers clear it before a call.
std::string& grammar_warning();

// While an object of this class exists, the parser throws once this thread has used `seconds` of CPU time. Independent
// of it, the parser throws if an ambiguous grammar makes it hold too many states.
class GrammarTimeLimit {
 public:
  explicit GrammarTimeLimit(double seconds);
  ~GrammarTimeLimit();
  GrammarTimeLimit(const GrammarTimeLimit&) = delete;
  GrammarTimeLimit& operator=(const GrammarTimeLimit&) = delete;
};

}  // namespace pinion
