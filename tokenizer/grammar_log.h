// What the grammar library has to say, which it would print otherwise (XGRAMMAR_LOG_CUSTOMIZE).
#pragma once

#include <string>

namespace pinion {

// The first thing that it complained of in this thread and went on: a keyword that it leaves out, say. The caller
// empties it before a call.
std::string& grammar_complaint();

}  // namespace pinion
