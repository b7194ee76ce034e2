// Shared by the tests of the public operations: every table with every number of workers, conversions, errors.
#pragma once

#include "kernels/ops/ops.h"

#include <string>
#include <vector>

#include "tests/crew.h"
#include "tests/kernels/guarded.h"

namespace pinion {

// Calls f(options, edge, label) for every table; workers and edge vary with the table and the call.
template <class F>
void for_each_table(F f) {
  static size_t turn = 0;
  size_t now = turn++;
  for (const Kernels* kernels : available_kernels()) {
    const int32_t workers = kCrews[now % std::size(kCrews)];
    const Edge edge = now / std::size(kCrews) % 2 ? Edge::begin : Edge::end;
    f(OpOptions{kernels, crew(workers)}, edge, std::string(kernels->name) + ", workers " + std::to_string(workers));
    ++now;
  }
}

// Calls f(options, edge, label) for every table with every number of workers.
template <class F>
void for_each_table_and_crew(F f) {
  for (const Kernels* kernels : available_kernels()) {
    for (int32_t workers : kCrews) {
      const std::string label = std::string(kernels->name) + ", workers " + std::to_string(workers);
      f(OpOptions{kernels, crew(workers)}, workers == 2 ? Edge::begin : Edge::end, label);
    }
  }
}

inline std::vector<bf16> to_bf16(const std::vector<float>& x) {
  std::vector<bf16> y;
  for (float v : x) y.push_back(pinion::to_bf16(v));
  return y;
}
inline std::vector<float> to_float(const std::vector<bf16>& x) {
  std::vector<float> y;
  for (bf16 v : x) y.push_back(pinion::to_float(v));
  return y;
}

inline void expect_refused(const Error& e, const std::string& operation, const std::string& what) {
  ASSERT_TRUE(e) << operation << ": " << what;
  EXPECT_NE(e.message().find(operation), std::string::npos) << e.message();
  EXPECT_NE(e.message().find(what), std::string::npos) << "want " << what << " in: " << e.message();
}

}  // namespace pinion
