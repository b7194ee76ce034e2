// Checks a golden file: runs its prompts again, with one or many configurations here, or at a server.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/golden/subject.h"

namespace pinion {

struct CheckOptions {
  RunOptions run;
  ServerOptions server;
  std::string golden;  // the file
  std::string junit;   // output file for JUnit XML; empty: none
  bool matrix = false;
  bool bisect = false;
};

// Result of one prompt run in one way.
struct CheckResult {
  std::string way;  // "kernels avx2, threads 1", or the server's address
  size_t prompt = 0;
  std::string prompt_text;  // its beginning, quoted
  size_t tokens = 0;
  double seconds = 0;
  Error difference;         // empty: none
  std::string explanation;  // lines of text about the difference
};

// Calls `shown` after each prompt. An error of a single prompt becomes that prompt's difference.
Error check_golden(const CheckOptions& options, const std::function<void(const CheckResult&)>& shown,
                   std::vector<CheckResult>* out);

std::string junit_xml(const std::vector<CheckResult>& results);

}  // namespace pinion
