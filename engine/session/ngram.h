// Drafts from the text itself: what followed where it went on like this before. Edited code, quotations and lists
// repeat what the prompt or earlier turns said.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pinion {

// A suffix automaton (Blumer et al. 1985) over a text that grows: the longest end of the text that occurred before, in
// constant time for each token, averaged over the text.
struct SuffixAutomaton {
  struct Edge {
    int32_t id, state;
  };
  // The substrings that end at the same places, of which the longest has `length` ids.
  struct State {
    int32_t link = -1;  // of the longest shorter end, which occurs in more places
    int32_t length = 0;
    int32_t end = 0;               // behind a place where they end: the latest, or one before
    std::vector<Edge> edges = {};  // ascending by id
  };

  std::vector<int32_t> text{};
  std::vector<State> states{State{}};
  int32_t last = 0;  // the whole text's
  // The longest end of the text that occurred before.
  int64_t match_length = 0;
  int64_t match_end = 0;  // the place behind that occurrence
};

// The text becomes one id longer.
void append(SuffixAutomaton& automaton, int32_t id);

// Becomes the automaton of `text`, of which it may know the beginning already.
void follow(SuffixAutomaton& automaton, std::span<const int32_t> text);

}  // namespace pinion
