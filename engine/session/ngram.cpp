#include "engine/session/ngram.h"

#include <algorithm>

namespace pinion {
namespace {

using State = SuffixAutomaton::State;
using Edge = SuffixAutomaton::Edge;

// How many of the text's ends are told that they occurred here, too, the longest first: drafts come from those.
constexpr int kUpdatedEnds = 16;

std::vector<Edge>::iterator place_of(State& state, int32_t id) {
  return std::ranges::lower_bound(state.edges, id, {}, &Edge::id);
}

// Where an edge leads, -1 if there is none.
int32_t target(State& state, int32_t id) {
  const auto at = place_of(state, id);
  return at != state.edges.end() && at->id == id ? at->state : -1;
}

void set_edge(State& state, int32_t id, int32_t to) {
  const auto at = place_of(state, id);
  if (at != state.edges.end() && at->id == id) {
    at->state = to;
  } else {
    state.edges.insert(at, {id, to});
  }
}

// The state of the longest end of the new text that occurred before. `from`: the longest end of the text before that
// the id has followed already.
int32_t link_for(SuffixAutomaton& a, int32_t from, int32_t id) {
  if (from < 0) return 0;
  const int32_t next = target(a.states[static_cast<size_t>(from)], id);
  const int32_t length = a.states[static_cast<size_t>(from)].length + 1;
  if (a.states[static_cast<size_t>(next)].length == length) return next;
  // Longer ones do not end the new text: those that do become a state of their own.
  const auto split = static_cast<int32_t>(a.states.size());
  a.states.push_back(a.states[static_cast<size_t>(next)]);
  a.states.back().length = length;
  a.states[static_cast<size_t>(next)].link = split;
  for (; from >= 0 && target(a.states[static_cast<size_t>(from)], id) == next;
       from = a.states[static_cast<size_t>(from)].link) {
    set_edge(a.states[static_cast<size_t>(from)], id, split);
  }
  return split;
}

}  // namespace

void append(SuffixAutomaton& a, int32_t id) {
  const auto whole = static_cast<int32_t>(a.states.size());
  int32_t from = a.last;
  a.text.push_back(id);
  const auto end = static_cast<int32_t>(a.text.size());
  a.states.push_back({.length = end, .end = end});
  for (; from >= 0 && target(a.states[static_cast<size_t>(from)], id) < 0;
       from = a.states[static_cast<size_t>(from)].link) {
    set_edge(a.states[static_cast<size_t>(from)], id, whole);
  }
  const int32_t link = link_for(a, from, id);
  a.states[static_cast<size_t>(whole)].link = link;
  a.last = whole;
  a.match_length = a.states[static_cast<size_t>(link)].length;
  a.match_end = a.states[static_cast<size_t>(link)].end;
  int32_t state = link;
  for (int i = 0; i < kUpdatedEnds && state > 0; ++i) {
    a.states[static_cast<size_t>(state)].end = end;
    state = a.states[static_cast<size_t>(state)].link;
  }
}

void follow(SuffixAutomaton& a, std::span<const int32_t> text) {
  const auto [held, given] = std::ranges::mismatch(a.text, text);
  if (held != a.text.end()) {
    a = {};
    for (const int32_t id : text) append(a, id);
  } else {
    for (const int32_t id : std::span(given, text.end())) append(a, id);
  }
}

}  // namespace pinion
