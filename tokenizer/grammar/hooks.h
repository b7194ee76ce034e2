// Functions that XGrammar calls: its log (XGRAMMAR_LOG_CUSTOMIZE), and a hook that tools/setup patches into its parser.
#pragma once

#include <cstdint>
#include <optional>
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

// A pattern of several lines matches the texts that match every line. "!" begins a line, never the first, that
// excludes.

// States of the automaton of a pattern. 0: no text matches. Nothing: syntax that automata lack, or too many states.
std::optional<int64_t> automaton_states(const std::string& pattern);
bool matches_pattern(const std::string& pattern, const std::string& text);

// XGrammar's pattern of strings of a format; empty if it has none.
std::string library_pattern(const std::string& format);

}  // namespace pinion
