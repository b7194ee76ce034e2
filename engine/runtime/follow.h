// A board that shares a model with others and is not the first: it loads its part when that one does, and computes what
// it says.
#pragma once

#include <span>

#include "engine/runtime/runtime.h"

namespace pinion {

// Returns once the first board has no more to say. The options say where this board has the model and how it runs; what
// decides the numbers comes from the first.
void follow(RuntimeOptions options);

// Does gathers of so many bytes each, `rounds` times, and returns the median of a round's seconds: what a pass
// exchanges, when nobody computes. All boards call it alike.
double rehearse(Exchange& exchange, std::span<const int64_t> sizes, int64_t rounds);

// On the first board: the same with the others, who follow.
double rehearse_on_all(Exchange& exchange, std::span<const int64_t> sizes, int64_t rounds);

// On the first board: lets the others return. Nothing may be open any more.
void end_following(Exchange& exchange);

}  // namespace pinion
