// Weights into the packed layout of kernels/layout.h, quantised on the way, by all workers.
#pragma once

#include "kernels/base/workers.h"
#include "loader/pack/quantize.h"

namespace pinion {

// Maps rows of a packed matrix to rows of the file's tensor, for three differences:
// - The file stores the two rows of a rotated pair next to each other. Packed, they are half of the rotated rows apart,
//   as in Llama's files, so that the forward pass has one kind of rope. Products of queries and keys do not change.
// - The file stores the rotated rows at the end of each head, packed they come first.
// - q, k and v share a tensor that holds the rows of all three head by head: a matrix takes its rows from every head.
struct RowOrder {
  int64_t head_rows = 0;  // of each head of the matrix; 0: the file's order
  int64_t pairs = 0;      // rotated pairs, from the first packed row of each head; the rows after them keep their order
  int64_t tail_rows = 0;  // rows at the end of each head in the file that come first when packed, with the pairs
  int64_t rows = 0;       // of the matrix if it takes only some of the tensor's rows; 0: it takes all
  int64_t step = 0;       // if some: tensor rows from one head, or run of heads, to the next
  int64_t run = 1;        // if some: heads that follow one another
  int64_t first = 0;      // if some: the tensor row of the first head's first row
  int64_t skipped = 0;    // if some: number of heads before the matrix's own
  // If not empty, the matrix is the concatenation of these, and `rows` is their sum.
  std::vector<RowOrder> sections = {};

  bool is_identity() const { return head_rows == 0 && sections.empty(); }
  bool selects_rows() const { return rows > 0; }

  // The order of rows [from, from + count) of the matrix, whole heads. If the order selects rows, the source remains
  // the whole tensor; else the caller passes these rows alone. Sections are not sliced: count is `rows` then.
  RowOrder slice(int64_t from, int64_t count) const {
    if (!selects_rows() || count == rows) return *this;
    RowOrder order = *this;
    order.rows = count;
    order.skipped += from / head_rows;
    return order;
  }

  // The tensor's row for a row of the matrix.
  int64_t file_row(int64_t row) const {
    for (const RowOrder& section : sections) {
      if (row < section.rows) return section.file_row(row);
      row -= section.rows;
    }
    if (is_identity()) return row;
    const int64_t in_head = row % head_rows, index = row / head_rows + skipped;
    const int64_t head = selects_rows() ? index / run * step + index % run * head_rows + first : row - in_head;
    int64_t at = in_head;
    if (in_head < 2 * pairs) at = in_head < pairs ? 2 * in_head : 2 * (in_head - pairs) + 1;
    return head + (at + head_rows - tail_rows) % head_rows;
  }
};

// Rows that a file stores as 4-bit codes: weight = (code - zero point) * group scale * scale.
struct W4Rows {
  std::vector<uint8_t> codes;        // [rows][padded_k] 0 to 15; beyond k the group's zero point, at most 15
  std::vector<uint8_t> zero_points;  // [rows][padded_k / kGroupK] times kZeroSteps, at most kZeroSteps * kMaxZero
  std::vector<f16> group_scales;     // [rows][padded_k / kGroupK]
  std::vector<float> scales;         // [rows]
};

// Reads a matrix that the file stores in a format of its own. Any thread may call it.
struct RowReader {
  std::string stored_as;  // "GPTQ, 4 bits, groups of 128"
  // Rows [first, first + count) as [count][k].
  std::function<void(int64_t first, int64_t count, float* rows)> read;
  // The reason for a NaN in the row, if the file shows one. May be empty.
  std::function<Error(int64_t row)> explain_nan;
  bool scattered = false;  // the numbers of a row are spread over the whole source
  // If w4, w4z, mxfp4 or w4n can keep the codes: appends the same rows as codes. Returns the first invalid row, or -1.
  std::function<int64_t(int64_t first, int64_t count, W4Rows* rows)> read_w4 = {};
};

// A change of a matrix W [n, k] by an adapter: W + scale B A.
struct LowRankUpdate {
  TensorView a;  // [rank, k]
  TensorView b;  // [n, rank]
  float scale = 0.0f;
};

// One matrix to pack.
struct PackJob {
  TensorView source;  // [n, k] BF16, F16 or F32, or I8 with `scale`
  Format format = Format::w8;
  Matrix* out = nullptr;
  TensorView scale = {};  // for an I8 source only: BF16, F16 or F32, n numbers or one
  // Reads other sources; `source` is then the memory that it reads, with the matrix's name and shape.
  RowReader reader = {};
  RowOrder order = {};                      // of the packed rows; errors name rows of the source
  std::vector<LowRankUpdate> updates = {};  // added in fp32; the sum is rounded to bf16
  // Number of consecutive jobs, of one format and shape, whose panels are interleaved. All of them hold this number.
  int64_t interleaved = 1;
  // 1, or rotation_of(k): then W D H / rotation is packed instead of W (kernels/layout.h). Only for w8, w8h, w4 and w4n
  // that are quantised here; kept codes, w2 and bf16 are not rotated.
  int64_t rotation = 1;
  // Error feedback for weights of these formats that are quantised here, from the moments of the inputs (of the rotated
  // inputs, if rotated).
  const Feedback* feedback = nullptr;
  std::string source_codes = {};  // for reports: the file's codes, "GPTQ, 4 bits, groups of 128"; empty: floats
  bool keeps_codes = false;       // for reports: the packed matrix has the file's codes

  int64_t rows() const { return order.selects_rows() ? order.rows : source.shape[0]; }  // of the packed matrix
};

struct PackOptions {
  bool source_mapped = false;  // sources are mapped files: read ahead, and release pages once they are packed
  // Counts source bytes. Called about ten times a second, from the calling thread, and once at the end.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = {};
};

// Makes the job pack the transpose of its matrix, all of whose rows it has in the file's order: as fp32, after updates.
void transpose(PackJob* job);

// Bytes of all packed matrices: the size of `destination`.
int64_t packed_bytes(std::span<const PackJob> jobs);

// Interleaves the panels of the last two jobs, a gate and its up, if they have the same format and rotation.
inline void interleave_last_two(std::span<PackJob> jobs) {
  PackJob &gate = jobs[jobs.size() - 2], &up = jobs.back();
  gate.interleaved = up.interleaved = gate.format == up.format && gate.rotation == up.rotation ? 2 : 1;
}

// Describes each job's matrix in its `out`, one after another from `first` on (kAlignmentBytes aligned), as pack_all
// writes them. An error names a source of another shape or type.
Error place_all(std::span<const PackJob> jobs, const std::byte* first);

inline constexpr const char* kNotTernary = "not ternary";

// Packs the jobs one after another into `destination` (kAlignmentBytes aligned) and describes each in its `out`. The
// bytes depend on the sources only.
//   bf16: BF16 as it is; F16, F32 and code * scale (in fp32) are rounded to nearest even.
//   w8, w8h: scale = amax / 127 of the row, code = round_half_even(w / scale); scale 0 and codes 0 if amax < 2^-119,
//         below which the scale would be subnormal. Codes and scales of an I8 source are kept.
//   w4, w4n: the row's scale is 64 times the scale of w8, rounded down to a power of two; codes and group scales are
//         those of w divided by it (quantize.h). Rows too small for such scales become 0. Codes of a reader are kept
//         with their scales, in w4z also with their zero points.
//   w2:   exactly, with scales that are f16 or become f16 when divided by a power of two for the row (quantize.h). For
//         other rows the error begins with kNotTernary.
// Other rows of a reader are treated like those of an F32 source, and so are rotated rows; rotation happens in fp32.
// Errors name a source of another shape or type, a row with a NaN or an infinity, and a scale that is not a positive
// finite number.
Error pack_all(const Workers& workers, std::span<const PackJob> jobs, std::byte* destination,
               const PackOptions& options = {});

// --- pack_strip.cpp: rows of a matrix, sixteen at a time.

// Fills whole cache lines of a w8 panel, and is small enough to stay in cache between the passes over it.
constexpr int64_t kStripRows = 16;

// Destination of rows [n, n + kStripRows) of a matrix.
struct RowStrip {
  int64_t rows = 0;  // rows that exist; the others are padding
  int64_t k = 0;
  std::byte* panel = nullptr;          // the strip's first column in its panel, at k = 0
  int64_t column = 0;                  // index of that column in the panel
  float* scale = nullptr;              // [kStripRows]; null for bf16
  int32_t* column_sum = nullptr;       // [kStripRows]; w8 only
  uint8_t* low = nullptr;              // [kStripRows][padded_k(k) / 2] low halves; w8h only
  bf16_pair* spread = nullptr;         // [kStripRows]; w8h only
  const Feedback* feedback = nullptr;  // not for bf16 and w2
};

// Packs values [rows][k] by the rules of pack_all. Rotates them in place. Returns the first row with a NaN or
// an infinity (for w2 also a row that is not ternary), or -1.
int64_t pack_floats(Format format, const RowStrip& strip, float* values, int64_t rotation);

// Packs int8 codes [rows][k] unchanged, with their scales [rows].
void pack_w8_codes(const RowStrip& strip, const int8_t* codes, const float* scales);

// Packs 4-bit codes unchanged, as w4z, as mxfp4 or w4n or, if all zero points are 8, as w4.
void pack_w4_codes(Format format, const RowStrip& strip, const W4Rows& rows);

// Weights of kGroupK codes of a file: scale * code + minimum.
struct W4Block {
  float scale, minimum;
};

// Appends a row of such blocks, with codes [kGroupK * blocks], to rows of w4z or of levels (minimum 0). Codes are kept,
// scales are rounded to f16 (for each row times a power of two), and zero points to steps. A block whose zero point is
// negative or above kMaxZero is quantised again.
void append_w4_row(std::span<const W4Block> blocks, const uint8_t* codes, W4Rows* rows);

}  // namespace pinion
