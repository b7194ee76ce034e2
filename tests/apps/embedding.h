// The models of tests/data/embeddings (tools/reference/make_embeddings.py) and the command that runs them.
#pragma once

#include <cmath>

#include "tests/apps/program.h"

namespace pinion {
inline const std::string kModels = PINION_TEST_DATA "/embeddings/";

inline std::vector<std::string> embed(const std::string& model, const std::vector<std::string>& options) {
  std::vector<std::string> arguments = {"embed", "--model", model, "--no-cache"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return arguments;
}

// One line of JSON for each text.
inline std::vector<json> lines_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  std::vector<json> lines;
  for (size_t at = 0, end; at < outcome.out.size(); at = end + 1) {
    end = outcome.out.find('\n', at);
    lines.push_back(json::parse(outcome.out.substr(at, end - at), nullptr, false));
  }
  if (lines.empty()) lines.emplace_back();
  return lines;
}

inline double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  double ab = 0, aa = 0, bb = 0;
  if (a.size() != b.size()) return 0;
  for (size_t i = 0; i < a.size(); ++i) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
  return ab / std::sqrt(aa * bb);
}

inline std::vector<std::string> texts_of(const json& expected, const std::string& prompt) {
  std::vector<std::string> texts;
  for (const json& row : expected["vectors"]) {
    if (row["prompt_name"] == prompt) texts.push_back(row["text"]);
  }
  return texts;
}

inline std::vector<std::string> with_texts(std::vector<std::string> options, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) options.insert(options.end(), {"--text", text});
  return options;
}

}  // namespace pinion
