// What a mistyped word was meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace pinion {

// The known word that a few changed letters, or a longer or shorter end, make of the typed one; empty: none is near.
std::string nearest(std::string_view typed, std::span<const std::string> known);

// "; did you mean WORD?", or nothing.
std::string did_you_mean(std::string_view typed, std::span<const std::string> known);

}  // namespace pinion
