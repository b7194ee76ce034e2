// The order of a matrix's rows where the file has another. Rotary embedding turns pairs of a head's rows. Some families
// store the two of a pair as neighbours; ours are half of the rotated rows apart, as with Llama. Queries and keys in
// the one order have the products that they have in the other. And in some files queries, keys and values are one
// tensor, in which each head has its rows of all three: then a matrix takes rows here and there. Or what a rope turns
// stands at a head's end: ours begins with it.
#pragma once

#include <cstdint>
#include <vector>

namespace pinion {

struct RowOrder {
  int64_t head_rows = 0;  // of each head; 0: the file's order
  int64_t pairs = 0;      // neighbours in the file, from each head's first row on; the rows after them stay
  int64_t last = 0;       // of each head's rows in the file, which come first here; if any, the pairs are among them
  int64_t rows = 0;       // of the matrix, where it has some of the tensor's; 0: it has all
  int64_t step = 0;       // where it has some: the tensor's rows from a head to the next
  int64_t first = 0;      // and the first of them
  // Or the matrix is made of several such parts of a tensor, one behind the other; rows is that of all.
  std::vector<RowOrder> parts = {};

  bool is_of_file() const { return head_rows == 0 && parts.empty(); }
  bool is_part() const { return rows > 0; }

  // The order of the matrix that has `count` of this one's rows from `from` on, whole heads where those have one; of
  // several parts all. The source of a part stays the whole tensor; else it is these rows.
  RowOrder of_rows(int64_t from, int64_t count) const {
    if (!is_part() || count == rows) return *this;
    RowOrder some = *this;
    some.rows = count;
    some.first += from / head_rows * step;
    return some;
  }

  // The file's row for a row of the matrix.
  int64_t stored(int64_t row) const {
    for (const RowOrder& part : parts) {
      if (row < part.rows) return part.stored(row);
      row -= part.rows;
    }
    if (is_of_file()) return row;
    const int64_t in_head = row % head_rows, head = is_part() ? row / head_rows * step + first : row - in_head;
    int64_t at = in_head;
    if (in_head < 2 * pairs) at = in_head < pairs ? 2 * in_head : 2 * (in_head - pairs) + 1;
    return head + (at + head_rows - last) % head_rows;
  }
};

}  // namespace pinion
