// What the grammar library calls while it works: its log (XGRAMMAR_LOG_CUSTOMIZE), and a line of ours in its parser,
// which tools/setup adds.
#pragma once

#include <string>

namespace pinion {

// The first thing that it complained of in this thread and went on: a keyword that it leaves out, say. The caller
// empties it before a call.
std::string& grammar_complaint();

// Limits the library's calls while it lives: its parser throws once this thread has used `seconds` of CPU time. With or
// without one it throws when it holds too many states, as an ambiguous grammar makes it.
class GrammarLimit {
 public:
  explicit GrammarLimit(double seconds);
  ~GrammarLimit();
  GrammarLimit(const GrammarLimit&) = delete;
  GrammarLimit& operator=(const GrammarLimit&) = delete;
};

}  // namespace pinion
