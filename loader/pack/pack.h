// Weights into the packed layout of kernels/layout.h, quantised on the way, by all workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "kernels/base/error.h"
#include "kernels/base/workers.h"
#include "kernels/layout.h"
#include "loader/checkpoint/safetensors.h"
#include "loader/pack/pack_strip.h"
#include "loader/pack/row_order.h"

namespace pinion {

// Reads a matrix that the file holds in another way than pack_all knows. Any thread calls.
struct RowReader {
  std::string stored_as;                                                // "GPTQ, 4 bits, groups of 128"
  std::function<void(int64_t first, int64_t count, float* rows)> read;  // rows [first, first + count), [count][k]
  std::function<Error(int64_t row)> explain_nan;  // why a row has any, where the file tells; may be empty
  bool scattered = false;                         // the numbers of a row are spread over the whole source
  // Where w4 and w4z hold the matrix as it is: the same rows as codes. Returns the first unfit one, or -1.
  std::function<int64_t(int64_t first, int64_t count, W4Rows* rows)> read_w4 = {};
};

struct PackJob {
  TensorView source;  // [n, k], BF16, F16, F32, or I8 where `scale` says what the codes mean
  Format format = Format::w8;
  Matrix* out = nullptr;
  TensorView scale = {};  // of an I8 source, and of no other: BF16, F16 or F32, n numbers or one
  // Reads the rows where pack_all cannot. `source` then is the memory that it reads, with the matrix's name and shape.
  RowReader reader = {};
  RowOrder order = {};  // of the packed rows, which may be some of the source's; errors name the source's
  // How many jobs' panels are interleaved: neighbours of one format and shape, each with this number.
  int64_t interleaved = 1;
  // 1, or rotation_of(k): then W D H / rotation is packed in the place of W (kernels/layout.h). Only for w8 and w4 made
  // here: codes that stay what they are, w2 and bf16 are not rotated.
  int64_t rotation = 1;
  // Of the inputs that the matrix multiplies (rotated ones where it is rotated): w4 made here is quantised with it.
  const Feedback* feedback = nullptr;

  int64_t rows() const { return order.is_part() ? order.rows : source.shape[0]; }  // of the matrix
};

struct PackOptions {
  bool source_mapped = false;  // the sources are mapped files: read ahead, and let go of pages once packed
  // Counts source bytes. Called about ten times a second, from the calling thread, and once at the end.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = {};
};

// Sum of packed_bytes over the jobs: what `destination` must hold.
int64_t packed_bytes(std::span<const PackJob> jobs);

// 2 if gate and up can be interleaved panel by panel (same format, same rotation), else 1. For jobs and matrices.
template <class T>
constexpr int64_t interleave_of(const T& gate, const T& up) {
  return gate.format == up.format && gate.rotation == up.rotation ? 2 : 1;
}

// Places matrices of one format and shape, at least one, in one block from `first` on: their panels interleaved, then
// the scales and sums of each. Sets their `interleaved`.
void place_interleaved(std::span<Matrix* const> matrices, const std::byte* first);

// Describes each job's matrix in its `out`, one block after another from `first` (kAlignmentBytes aligned): where
// pack_all puts them, or did. A source of another shape or type is an error naming it.
Error place_all(std::span<const PackJob> jobs, const std::byte* first);

inline constexpr const char* kNotTernary = "not ternary";

// Packs the jobs one block after another into `destination` (kAlignmentBytes aligned) and describes each in its `out`.
// The bytes depend on nothing but the sources.
//   bf16: BF16 as it is; F16, F32 and code * scale (in fp32) rounded to nearest even.
//   w8:   scale = amax / 127 of the row, code = round_half_even(w / scale); scale 0 and codes 0 where amax < 2^-119,
//         below which the scale would not be a normal number. An I8 source's codes and scales stay what they are.
//   w4:   the row's own scale is 64 times w8's, rounded down to a power of two; codes and group scales are those of w
//         divided by it (quantize_w4.h). Rows too small for such scales are 0.
//   w4z:  codes of a reader alone, with their zeros and scales; w4 takes them likewise where the reader has any.
//   w2:   exactly, with scales that are f16 or become f16 by a power of two for the row (ternary.h). Any other row is
//   an
//         error that begins with kNotTernary.
// Other rows that a reader gives go on as an F32 source's, and so do rotated rows, which are rotated in fp32.
// A source of another shape or type, a row that holds a NaN or an infinity, and a scale that is not a positive finite
// number, is an error naming it.
Error pack_all(const Workers& workers, std::span<const PackJob> jobs, std::byte* destination,
               const PackOptions& options = {});

}  // namespace pinion
