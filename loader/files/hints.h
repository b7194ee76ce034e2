// Hints in error messages: formats that Pinion does not read, the nearest spelling of a mistyped name.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "kernels/base/error.h"

namespace pinion {

// The format of a file that Pinion does not read and the remedy ("a git-lfs pointer instead of the file: ..."), by its
// first bytes or its name; empty if it is not recognised.
std::string_view foreign_content(std::string_view contents);
std::string_view foreign_name(const std::string& name);

// The failure of a parser, replaced by a plainer error if the contents are a recognised other format.
Error with_foreign_hint(Error failure, std::string_view contents);

// True for a name that fits into an error message, which is a single line.
bool is_printable(std::string_view name);

// Letters to insert, remove or replace to turn `a` into `b` (Levenshtein 1966).
size_t edit_distance(std::string_view a, std::string_view b);

// "; did you mean WORD?", with the known word within a few edits of the typed one, or a prefix or extension of it;
// nothing if none is near.
std::string did_you_mean(std::string_view typed, std::span<const std::string> known);

}  // namespace pinion
