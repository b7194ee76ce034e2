// What a server counts, and the text in which Prometheus reads it
// (prometheus.io/docs/instrumenting/exposition_formats).
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace pinion {

// How many values were at most each bound.
struct Histogram {
  static constexpr std::array<double, 13> kBounds_s = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                       1,     2.5,  5,     10,   30,  120};
  std::array<int64_t, kBounds_s.size()> counts{};  // of values in (bound before, bound]
  int64_t count = 0;
  double sum_s = 0;

  void add(double seconds);
};

struct ServiceMetrics {
  int64_t running = 0, waiting = 0;  // texts, now
  int64_t texts = 0;                 // that have ended
  int64_t cancelled = 0;             // whose client has gone
  int64_t refused = 0;               // requests, for want of room
  int64_t prompt_tokens = 0;         // of texts that have ended
  int64_t cached_tokens = 0;         // those of them that were not evaluated again
  int64_t tokens = 0;                // generated
  int64_t passes = 0;
  int64_t preempted = 0;
  double busy_seconds = 0;           // in passes
  double weight_bytes = 0;           // that those passes read
  Histogram first_token_s;           // from the request on
  Histogram token_s;                 // from one token of a text to the next
  double roof_bytes_per_second = 0;  // 0: not measured
};

std::string prometheus_text(const ServiceMetrics& metrics);

}  // namespace pinion
