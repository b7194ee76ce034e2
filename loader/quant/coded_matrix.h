// A matrix that a file stores as codes: where its tensors are, and its rows as fp32 or as the codes of w4 and w4z.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/layout.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/pack/pack.h"
#include "loader/quant/quantization.h"

namespace pinion {

struct CodedMatrix;

// The tensors of one module, by the suffixes of their names.
struct ModuleTensors {
  const Checkpoint& checkpoint;
  const std::string& module;
  std::vector<std::string>* names;  // of all tensors that belong to the module's weight

  const TensorView* find(const char* suffix) const { return checkpoint.find(module + suffix); }
  std::string where(const char* suffix) const { return checkpoint.where(module + suffix); }
  // As Checkpoint::bind. Appends the name to `names`.
  Error bind(const char* suffix, std::initializer_list<int64_t> shape, std::initializer_list<DType> dtypes,
             TensorView* out) const {
    names->push_back(module + suffix);
    return checkpoint.bind(names->back(), shape, dtypes, out);
  }
  // Appends the names of tensors that the file may have but nothing reads.
  void add_unused(std::initializer_list<const char*> suffixes) const {
    for (const char* suffix : suffixes) {
      if (find(suffix)) names->push_back(module + suffix);
    }
  }
};

// A format of codes other than int8; the table is in code_formats.cpp, the tensors are described in stored_weights.h.
struct CodeFormat {
  StoredAs stored_as;
  std::string_view name;
  bool by_column;  // the codes of one row of W are spread over the whole tensor

  // Finds and checks the module's tensors.
  Error (*bind)(const ModuleTensors& tensors, CodedMatrix* out);
  // One row of codes that are numbers, times their scales; null if codes are integers.
  void (*read_numbers)(const CodedMatrix& matrix, int64_t row, const float* scales, float* out);
  // Integer codes and their zero points (code_formats.cpp); null if codes are numbers.
  void (*read_codes)(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* out);
  void (*read_zero_points)(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);
};

// A matrix W [n, k], or its rows from first_row on.
struct CodedMatrix {
  const CodeFormat* format = nullptr;  // null: not stored as codes
  CodeScheme scheme;
  int64_t n = 0;  // rows of the stored matrix
  int64_t k = 0;
  int64_t first_row = 0;
  TensorView codes, scale;
  TensorView zero;          // data is null if there are no zero points
  TensorView order;         // [k] the group of each input; data is null if groups are consecutive inputs
  float scale_divisor = 1;  // nvfp4: divides all scales

  int64_t group_size() const { return scheme.group_size > 0 ? scheme.group_size : k; }
  int64_t groups() const { return (k + group_size() - 1) / group_size(); }
  int64_t codes_per_word() const { return 32 / scheme.bits; }
  int64_t words(int64_t count) const { return (count + codes_per_word() - 1) / codes_per_word(); }  // for count codes
};

// "GPTQ, 4 bits, groups of 128". Part of the weight cache's header: a changed text invalidates caches.
std::string description(const CodeFormat& format, const CodeScheme& scheme);

// In these functions `first` counts rows of the stored matrix, whatever first_row is.

// Scales of rows [first, first + rows), out [rows][groups].
void read_scales(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);

// Integer codes [rows][k] and zero points [rows][groups]. All zero points of a row with an out-of-range code are NaN.
void read_codes(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* codes, float* zero_points);

// In these, rows count from first_row.

// (code - zero point) * scale, out [rows][k]: exact but for one rounding to fp32. NaN if a zero point or a code is
// invalid.
void read_rows(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);

// The reason for the NaNs of a row, if its codes show one.
Error explain_nan(const CodedMatrix& matrix, int64_t row);

// The format, w4 if all zero points are 8, else w4z, that keeps all codes, zero points and scales of the matrix, so
// that they give exactly the same numbers. If neither does, returns the reason in a few words and leaves `out`
// unchanged. Reads the zero points and the scales that are not F16, then releases their pages: the tensors must be in
// mapped files.
std::string find_w4_format(const CodedMatrix& matrix, Format* out);

// Rows of a matrix with such a format. Returns the first row with an invalid scale or zero point, or -1.
int64_t read_w4_rows(const CodedMatrix& matrix, int64_t first, int64_t rows, W4Rows* out);

// These functions for pack_all; an empty reader if the matrix has no format. keep_codes: find_w4_format has found a
// format.
RowReader reader_of(const CodedMatrix& matrix, bool keep_codes);

}  // namespace pinion
