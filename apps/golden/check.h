// Running a golden file again, one way or many, and saying where a run leaves it.
#pragma once

#include <string>
#include <vector>

#include "apps/golden/file.h"
#include "tokenizer/tokenizer.h"

namespace pinion {

// From an empty cache, so that an answer does not depend on the prompts before it.
Error answer_prompt(const Runtime& runtime, const Golden& golden, const GoldenPrompt& prompt,
                    const Tokenizer* tokenizer, GoldenAnswer* out);

// Hash over the packed matrices: the same on every machine.
std::string weights_hash(const Model& model);

struct CheckOptions {
  RunOptions run;
  std::string golden;  // the file
  std::string junit;   // a file for the results as JUnit XML; empty: none
  bool matrix = false;
  bool bisect = false;
};

// What came of one prompt, run one way.
struct CheckResult {
  std::string way;  // "kernels avx2, threads 1"
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
