// Suggestions for mistyped words.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace pinion {

// Letters to insert, remove or replace to turn `a` into `b` (Levenshtein 1966).
size_t edit_distance(std::string_view a, std::string_view b);

// The known word that a few changed letters, or a longer or shorter end, make of the typed one; empty: none is near.
std::string nearest(std::string_view typed, std::span<const std::string> known);

// "; did you mean WORD?", or nothing.
std::string did_you_mean(std::string_view typed, std::span<const std::string> known);

}  // namespace pinion
