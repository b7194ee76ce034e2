// The order of a matrix's rows where the file has another. Rotary embedding turns pairs of a head's rows. Some families
// store the two of a pair as neighbours; ours are half of the rotated rows apart, as with Llama. Queries and keys in
// the one order have the products that they have in the other.
#pragma once

#include <cstdint>

namespace pinion {

struct RowOrder {
  int64_t head_rows = 0;  // of each head; 0: the file's order
  int64_t pairs = 0;      // neighbours in the file, from each head's first row on; the rows after them stay

  bool is_of_file() const { return head_rows == 0; }

  // The file's row for a row of the matrix.
  int64_t stored(int64_t row) const {
    if (is_of_file()) return row;
    const int64_t in_head = row % head_rows, first = row - in_head;
    if (in_head >= 2 * pairs) return row;
    return first + (in_head < pairs ? 2 * in_head : 2 * (in_head - pairs) + 1);
  }
};

}  // namespace pinion
