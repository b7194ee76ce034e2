#include "loader/files/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace pinion {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = i;
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

namespace {

// "gen" for "generate", "benchmark" for "bench"; one letter could begin anything.
bool is_start(std::string_view start, std::string_view word) { return start.size() > 1 && word.starts_with(start); }

std::string_view without_dashes(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  return name;
}

}  // namespace

std::string nearest(std::string_view typed, std::span<const std::string> known) {
  const std::string_view word = without_dashes(typed);
  size_t least = (word.size() + 2) / 3 + 1;  // a change in three letters is near
  std::string found;
  for (const std::string& name : known) {
    const std::string_view other = without_dashes(name);
    const size_t distance = is_start(word, other) || is_start(other, word) ? 1 : edit_distance(word, other);
    if (distance >= least) continue;
    least = distance;
    found = name;
  }
  return found;
}

std::string did_you_mean(std::string_view typed, std::span<const std::string> known) {
  const std::string meant = nearest(typed, known);
  return meant.empty() ? "" : "; did you mean " + meant + "?";
}

}  // namespace pinion
