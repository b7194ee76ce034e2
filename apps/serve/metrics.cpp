#include "apps/serve/metrics.h"

#include <algorithm>
#include <cstdio>

namespace pinion {
namespace {

std::string number(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.9g", value);
  return text.data();
}

void add_head(const char* name, const char* type, const char* help, std::string* out) {
  *out += "# HELP pinion_" + std::string(name) + " " + help + "\n# TYPE pinion_" + name + " " + type + "\n";
}

void add_value(const char* name, const char* type, const char* help, double value, std::string* out) {
  add_head(name, type, help, out);
  *out += "pinion_" + std::string(name) + " " + number(value) + "\n";
}

void add_histogram(const char* name, const char* help, const Histogram& values, std::string* out) {
  add_head(name, "histogram", help, out);
  const std::string full = "pinion_" + std::string(name);
  int64_t below = 0;
  for (size_t i = 0; i < values.counts.size(); ++i) {
    below += values.counts[i];
    *out += full + "_bucket{le=\"" + number(Histogram::kBounds_s[i]) + "\"} " + std::to_string(below) + "\n";
  }
  *out += full + "_bucket{le=\"+Inf\"} " + std::to_string(values.count) + "\n" + full + "_sum " + number(values.sum_s) +
          "\n" + full + "_count " + std::to_string(values.count) + "\n";
}

}  // namespace

void Histogram::add(double seconds) {
  const auto at = std::ranges::lower_bound(kBounds_s, seconds);
  if (at != kBounds_s.end()) ++counts[static_cast<size_t>(at - kBounds_s.begin())];
  ++count;
  sum_s += seconds;
}

std::string prometheus_text(const ServiceMetrics& m) {
  std::string out;
  const auto counter = [&](const char* name, const char* help, double value) {
    add_value(name, "counter", help, value, &out);
  };
  const auto gauge = [&](const char* name, const char* help, double value) {
    add_value(name, "gauge", help, value, &out);
  };
  const auto of = [](int64_t count) { return static_cast<double>(count); };
  gauge("texts_running", "Texts that are decoded or whose prompts are read.", of(m.running));
  gauge("texts_waiting", "Texts that wait for a place.", of(m.waiting));
  counter("texts_total", "Texts that have ended.", of(m.texts));
  counter("texts_cancelled_total", "Texts whose client has gone.", of(m.cancelled));
  counter("requests_refused_total", "Requests refused since too many texts waited.", of(m.refused));
  counter("prompt_tokens_total", "Tokens of prompts.", of(m.prompt_tokens));
  counter("cached_tokens_total", "Tokens of prompts that were in the cache.", of(m.cached_tokens));
  counter("tokens_total", "Tokens generated.", of(m.tokens));
  counter("passes_total", "Passes through the model.", of(m.passes));
  counter("preemptions_total", "Texts whose memory others needed.", of(m.preempted));
  counter("busy_seconds_total", "Time in passes.", m.busy_seconds);
  counter("weight_bytes_total", "Bytes of weights that passes read.", m.weight_bytes);
  if (m.roof_bytes_per_second > 0) {
    gauge("roof_bytes_per_second", "The memory's read bandwidth, measured once it was asked for.",
          m.roof_bytes_per_second);
    gauge("roof_share", "Speed at which weights were read, over the roof.",
          m.busy_seconds > 0 ? m.weight_bytes / m.busy_seconds / m.roof_bytes_per_second : 0);
  }
  add_histogram("first_token_seconds", "From the request to the first token.", m.first_token_s, &out);
  add_histogram("token_seconds", "From one token of a text to the next.", m.token_s, &out);
  return out;
}

}  // namespace pinion
