// Predictable rules: among each eight tokens, three may be any of half the vocabulary, five are fixed.
#pragma once

#include <vector>

#include "engine/session/continuation.h"

namespace pinion {

class PatternRules : public TextRules {
 public:
  PatternRules(uint64_t seed, int64_t max_tokens) : seed_(seed), max_tokens_(max_tokens) {}

  Error begin(int64_t vocab_size, std::span<const int32_t>) override {
    vocab_ = vocab_size;
    allow();
    return {};
  }
  Error add(int32_t id) override {
    if (!is_allowed(*this, id)) return error("not allowed", "test");
    ++step_;
    allow();
    return {};
  }
  // Every fourth prediction is wrong from the second token on.
  std::vector<int32_t> jump_forward() override {
    std::vector<int32_t> ids;
    for (int64_t step = step_; is_given(step); ++step) ids.push_back(given(step));
    if (ids.size() > 1 && step_ % 4 == 0) ids[1] = static_cast<int32_t>((ids[1] + 1) % vocab_);
    return ids;
  }

  static bool is_given(int64_t step) { return step % 8 >= 3; }
  int32_t given(int64_t step) const { return static_cast<int32_t>(3 + (seed_ + static_cast<uint64_t>(step)) % 50); }

 private:
  void allow() {
    allowed.assign((vocab_ + 31) / 32, is_given(step_) ? 0 : 0xA5A5A5A5u ^ (seed_ % 2 ? ~0u : 0));
    if (is_given(step_)) allowed[given(step_) / 32] |= uint32_t{1} << (given(step_) % 32);
    is_complete = step_ == max_tokens_;
  }

  uint64_t seed_;
  int64_t max_tokens_, vocab_ = 0, step_ = 0;
};

}  // namespace pinion
