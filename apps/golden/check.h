// Running a golden file again, here, one way or many, or at a server.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/golden/server.h"

namespace pinion {

struct CheckOptions {
  RunOptions run;
  ServerOptions server;
  std::string golden;  // the file
  std::string junit;   // a file for the results as JUnit XML; empty: none
  bool matrix = false;
  bool bisect = false;
};

// What came of one prompt, run one way.
struct CheckResult {
  std::string way;  // "kernels avx2, threads 1", or the server's address
  size_t prompt = 0;
  std::string prompt_text;  // its beginning, quoted
  size_t tokens = 0;
  double seconds = 0;
  Error difference;         // none: the same
  std::string explanation;  // lines about the difference
};

// `shown` is called as each result comes. What keeps a single prompt from being run is that prompt's difference.
Error check_golden(const CheckOptions& options, const std::function<void(const CheckResult&)>& shown,
                   std::vector<CheckResult>* out);

std::string junit_xml(const std::vector<CheckResult>& results);

}  // namespace pinion
