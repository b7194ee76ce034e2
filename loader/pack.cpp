#include "loader/pack.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/bf16.h"
#include "loader/convert.h"
#include "loader/mapped_file.h"
#include "loader/quantize_w4.h"

namespace pinion {
namespace {

// The element types of a source: how its bits are read as a float, and where infinities and NaNs begin once the sign
// is masked off. Magnitudes compare like the numbers they stand for, so the largest is found without converting any.
struct SourceBf16 {
  using Bits = uint16_t;
  using Magnitude = int16_t;
  static constexpr Magnitude kMask = 0x7fff, kInfinity = 0x7f80;
  static float value(Bits bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

struct SourceF16 {
  using Bits = uint16_t;
  using Magnitude = int16_t;
  static constexpr Magnitude kMask = 0x7fff, kInfinity = 0x7c00;
  static float value(Bits bits) { return f16_to_float(bits); }
};

struct SourceF32 {
  using Bits = uint32_t;
  using Magnitude = int32_t;
  static constexpr Magnitude kMask = 0x7fffffff, kInfinity = 0x7f800000;
  static float value(Bits bits) { return std::bit_cast<float>(bits); }
};

// Codes that the file holds; what they stand for is their row's given scale times as much.
struct SourceI8 {
  using Bits = int8_t;
};

// The file does not align its tensors.
template <class Bits>
Bits load(const std::byte* row, int64_t i) {
  Bits bits;
  std::memcpy(&bits, row + i * static_cast<int64_t>(sizeof bits), sizeof bits);
  return bits;
}

// A group of 16 rows gives whole cache lines of a w8 panel, and is small enough to be in cache when it is read again.
constexpr int64_t kGroupRows = 16;
constexpr int64_t kTileK = 256;
static_assert(kPanelColumns % kGroupRows == 0 && kTileK % kBlockK == 0 && kGroupRows == kW4Columns);

// Rows [first_row, first_row + kGroupRows) of a matrix, of which `rows` exist; the others are padding.
struct Group {
  const std::byte* source = nullptr;  // [rows, k]
  int64_t rows = 0;
  int64_t k = 0;
  float given_scale[kGroupRows] = {};  // I8 only
  std::byte* panel = nullptr;          // the group's first column in its panel, at k = 0
  int64_t column = 0;                  // which one of the panel that is
  float* scale = nullptr;              // [kGroupRows], w8 and w4
  int32_t* column_sum = nullptr;       // [kGroupRows], w8 only
};

template <class Source>
const std::byte* row_of(const Group& group, int64_t r) {
  return group.source + r * group.k * static_cast<int64_t>(sizeof(typename Source::Bits));
}

// What element i of a row stands for.
template <class Source>
float weight(const Group& group, int64_t r, const std::byte* row, int64_t i) {
  const auto bits = load<typename Source::Bits>(row, i);
  if constexpr (std::is_same_v<Source, SourceI8>) {
    return static_cast<float>(bits) * group.given_scale[r];
  } else {
    return Source::value(bits);
  }
}

template <class Source>
typename Source::Magnitude largest_magnitude(const std::byte* row, int64_t k) {
  typename Source::Magnitude largest = 0;
  for (int64_t i = 0; i < k; i++) {
    const auto bits = load<typename Source::Bits>(row, i);
    largest = std::max(largest, static_cast<typename Source::Magnitude>(bits & Source::kMask));
  }
  return largest;
}

// codes [count]; returns their sum. A true division: multiplying by 127 / amax gives other codes on ties.
template <class Source>
int32_t quantise(const std::byte* row, int64_t first_k, int64_t count, float scale, int8_t* codes) {
  // Adding 1.5 * 2^23 leaves a sum whose unit is 1: the addition itself rounds to nearest even, and the sum's low byte
  // is the code. |w / scale| <= 127 after rounding because scale = amax / 127 is a normal number.
  constexpr float kRounder = 12582912.0f;
  int32_t sum = 0;
  for (int64_t i = 0; i < count; i++) {
    const float w = Source::value(load<typename Source::Bits>(row, first_k + i));
    codes[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(w / scale + kRounder));
    sum += codes[i];
  }
  return sum;
}

// Codes of one tile [kGroupRows, kTileK] to their places in the panel: four k of a row stay together.
void store_tile(const int8_t* codes, int64_t k_count, std::byte* panel) {
  for (int64_t k = 0; k < k_count; k += 4) {
    std::byte* line = panel + w8_offset(k, 0);
    for (int64_t r = 0; r < kGroupRows; r++) std::memcpy(line + r * 4, codes + r * kTileK + k, 4);
  }
}

template <>
int32_t quantise<SourceI8>(const std::byte* row, int64_t first_k, int64_t count, float /*scale*/, int8_t* codes) {
  std::memcpy(codes, row + first_k, static_cast<size_t>(count));
  return std::accumulate(codes, codes + count, int32_t{0});
}

bool is_scale(float value) { return value > 0.0f && std::isfinite(value * 128.0f); }

// scale [rows]: what codes are multiplied by, found or given. Returns the first row that is unfit, or -1.
template <class Source>
int64_t find_scales(const Group& group, float* scale) {
  // Below this amax / 127 is not a normal number, and a quotient by it could exceed 127.
  constexpr float kSmallestAmax = 0x1p-119f;
  for (int64_t r = 0; r < group.rows; r++) {
    const auto magnitude = largest_magnitude<Source>(row_of<Source>(group, r), group.k);
    if (magnitude >= Source::kInfinity) return r;
    const float amax = Source::value(static_cast<typename Source::Bits>(magnitude));
    scale[r] = amax < kSmallestAmax ? 0.0f : amax / 127.0f;
  }
  return -1;
}

template <>
int64_t find_scales<SourceI8>(const Group& group, float* scale) {
  for (int64_t r = 0; r < group.rows; r++) {
    if (!is_scale(group.given_scale[r])) return r;
    scale[r] = group.given_scale[r];
  }
  return -1;
}

// Returns the first unfit row, or -1.
template <class Source>
int64_t pack_group_w8(const Group& group) {
  float scale[kGroupRows] = {};
  int32_t sum[kGroupRows] = {};
  if (const int64_t bad = find_scales<Source>(group, scale); bad >= 0) return bad;
  for (int64_t k = 0; k < padded_k(group.k); k += kTileK) {
    alignas(kAlignmentBytes) int8_t codes[kGroupRows * kTileK] = {};
    const int64_t count = std::clamp<int64_t>(group.k - k, 0, kTileK);
    for (int64_t r = 0; r < group.rows; r++) {
      if (scale[r] == 0.0f) continue;
      const std::byte* row = row_of<Source>(group, r);
      sum[r] += quantise<Source>(row, k, count, scale[r], codes + r * kTileK);
    }
    store_tile(codes, std::min(padded_k(group.k) - k, kTileK), group.panel + w8_offset(k, 0));
  }
  std::copy_n(scale, kGroupRows, group.scale);
  std::copy_n(sum, kGroupRows, group.column_sum);
  return -1;
}

template <class Source>
void round_to_bf16(const Group& group, int64_t r, int64_t first_k, int64_t count, bf16* values) {
  const std::byte* row = row_of<Source>(group, r);
  for (int64_t i = 0; i < count; i++) values[i] = to_bf16(weight<Source>(group, r, row, first_k + i));
}

template <class Source>
int64_t pack_group_bf16(const Group& group) {
  bf16* panel = reinterpret_cast<bf16*>(group.panel);
  float scale[kGroupRows];  // unused: only whether they can be found matters
  if (const int64_t bad = find_scales<Source>(group, scale); bad >= 0) return bad;
  for (int64_t k = 0; k < padded_k(group.k); k += kTileK) {
    bf16 values[kGroupRows * kTileK] = {};
    const int64_t count = std::clamp<int64_t>(group.k - k, 0, kTileK);
    for (int64_t r = 0; r < group.rows; r++) round_to_bf16<Source>(group, r, k, count, values + r * kTileK);
    for (int64_t i = 0; i < std::min(padded_k(group.k) - k, kTileK); i++) {
      bf16* line = panel + bf16_offset(k + i, 0);
      for (int64_t r = 0; r < kGroupRows; r++) line[r] = values[r * kTileK + i];
    }
  }
  return -1;
}

// The weights of k [k, k + kBlockK), each row's divided by its power of two.
template <class Source>
void load_w4(const Group& group, int64_t k, const float* inverse, W4Group* out) {
  const int64_t count = std::min(kBlockK, group.k - k);
  if (count < kBlockK || group.rows < kGroupRows) std::memset(out->weights, 0, sizeof out->weights);
  for (int64_t r = 0; r < group.rows; r++) {
    const std::byte* row = row_of<Source>(group, r);
    for (int64_t i = 0; i < count; i++) out->weights[i][r] = weight<Source>(group, r, row, k + i) * inverse[r];
  }
}

void store_w4(const W4Group& group, std::byte* codes, std::byte* scales) {
  for (int64_t pair = 0; pair < kBlockK / 8; pair++, codes += 4 * kPanelColumns) {
    for (int64_t r = 0; r < kGroupRows; r++) {
      for (int64_t i = 0; i < 4; i++) {
        const int first = group.codes[pair * 8 + i][r], second = group.codes[pair * 8 + 4 + i][r];
        codes[r * 4 + i] = static_cast<std::byte>(first | second << 4);
      }
    }
  }
  std::memcpy(scales, group.scales, sizeof group.scales);
}

// Each row's own scale is a power of two that brings its weights below 4, mostly the largest between 2 and 4.
template <class Source>
int64_t pack_group_w4(const Group& group) {
  float scale[kGroupRows] = {}, inverse[kGroupRows] = {};
  if (const int64_t bad = find_scales<Source>(group, scale); bad >= 0) return bad;
  for (int64_t r = 0; r < group.rows; r++) {
    if (scale[r] == 0.0f) continue;
    scale[r] = std::bit_cast<float>(std::bit_cast<uint32_t>(scale[r] * 64.0f) & 0x7f800000u);
    if (scale[r] != 0.0f) inverse[r] = 1.0f / scale[r];
  }
  std::byte* codes = group.panel;
  for (int64_t k = 0; k < padded_k(group.k); k += kBlockK, codes += w4_record_bytes(false)) {
    alignas(kAlignmentBytes) W4Group quantised;
    load_w4<Source>(group, k, inverse, &quantised);
    quantize_w4(&quantised);
    store_w4(quantised, codes, codes + kW4CodeBytes - group.column * 2);
  }
  std::copy_n(scale, kGroupRows, group.scale);
  return -1;
}

template <class Source>
int64_t pack_group(Format format, const Group& group) {
  if (format == Format::w8) return pack_group_w8<Source>(group);
  return format == Format::bf16 ? pack_group_bf16<Source>(group) : pack_group_w4<Source>(group);
}

int64_t pack_group(DType dtype, Format format, const Group& group) {
  if (dtype == DType::bf16) return pack_group<SourceBf16>(format, group);
  if (dtype == DType::f16) return pack_group<SourceF16>(format, group);
  return dtype == DType::i8 ? pack_group<SourceI8>(format, group) : pack_group<SourceF32>(format, group);
}

// A run of panels of one matrix, packed by one thread.
struct Task {
  const PackJob* job = nullptr;
  int64_t first_panel = 0;
  int64_t panels = 0;
  int64_t bad_row = -1;

  std::span<const std::byte> source() const {
    const int64_t row_bytes = job->source.bytes / job->source.shape[0];
    const int64_t end = std::min((first_panel + panels) * kPanelColumns, job->source.shape[0]);
    return job->source.contents().subspan(first_panel * kPanelColumns * row_bytes,
                                          (end - first_panel * kPanelColumns) * row_bytes);
  }

  // What to have read before it, and what to let go of after it. Of scattered rows the first run has the whole source
  // read, the last lets go.
  std::span<const std::byte> read_ahead() const {
    if (!job->reader.scattered) return source();
    return first_panel == 0 ? job->source.contents() : std::span<const std::byte>{};
  }
  std::span<const std::byte> done_with() const {
    if (!job->reader.scattered) return source();
    const bool is_last = first_panel + panels == panel_count(job->source.shape[0]);
    return is_last ? job->source.contents() : std::span<const std::byte>{};
  }
};

// Large enough that pages on the border of two runs, which stay mapped until the matrix is done, hardly count; small
// enough to keep every thread busy to the end.
constexpr int64_t kTaskBytes = int64_t{2} << 20;

bool is_float(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32; }

Error check_job(const PackJob& job) {
  const TensorView& source = job.source;
  if (job.format == Format::w4z)
    return error("cannot pack into this format", source.name, "bf16, w8 or w4", format_name(job.format));
  const bool is_coded = source.dtype == DType::i8 && job.scale.data;
  if (!is_coded && !job.reader.read && (!is_float(source.dtype) || job.scale.data)) {
    return error("cannot pack this type", source.name, "BF16, F16, F32, or I8 with scales",
                 std::string(dtype_name(source.dtype)));
  }
  if (source.shape.size() != 2 || source.shape[0] < 1 || source.shape[1] < 1 || source.shape[1] > kMaxK) {
    return error("cannot pack this shape", source.name, "[n, k], k at most " + std::to_string(kMaxK),
                 shape_text(source.shape));
  }
  const int64_t scales = job.scale.elements();
  if (is_coded && (!is_float(job.scale.dtype) || (scales != 1 && scales != source.shape[0]))) {
    return error("cannot take these scales", job.scale.name, "one, or one for each row, of BF16, F16 or F32",
                 shape_text(job.scale.shape) + " of " + std::string(dtype_name(job.scale.dtype)));
  }
  return {};
}

// out [count]: the scales of rows from `row` on.
void read_scales(const TensorView& scale, int64_t row, int64_t count, float* out) {
  if (scale.elements() > 1) return read_floats(scale, row, count, out);
  read_floats(scale, out);
  std::fill_n(out, count, out[0]);
}

// Describes the matrix whose block begins at `first` in the job's `out`.
void place_job(const PackJob& job, const std::byte* first) {
  Matrix& matrix = *job.out;
  matrix = {job.format, job.source.shape[0], job.source.shape[1], first, nullptr, nullptr};
  if (job.format == Format::bf16) return;
  const std::byte* scales = first + panel_count(matrix.n) * panel_bytes(job.format, matrix.k);
  matrix.scale = reinterpret_cast<const float*>(scales);
  if (job.format == Format::w8)
    matrix.column_sum = reinterpret_cast<const int32_t*>(scales + padded_n(matrix.n) * sizeof(float));
}

// Adds the job's runs of panels.
void split_job(const PackJob& job, std::vector<Task>* tasks) {
  const int64_t panels = panel_count(job.source.shape[0]);
  const int64_t panel_source_bytes = std::max<int64_t>(job.source.bytes / panels, 1);
  const int64_t run = std::max<int64_t>(kTaskBytes / panel_source_bytes, 1);
  for (int64_t first = 0; first < panels; first += run) {
    tasks->push_back({&job, first, std::min(run, panels - first)});
  }
}

void pack_task(Task& task) {
  const PackJob& job = *task.job;
  const Matrix& matrix = *job.out;
  const int64_t row_bytes = job.source.bytes / matrix.n;
  const int64_t column_bytes = job.format == Format::bf16 ? sizeof(bf16) : 4;  // of a row of the panel
  // The destination, which the Matrix shows to everybody else as constant.
  auto* panels = static_cast<std::byte*>(const_cast<void*>(matrix.panels));
  auto* scales = const_cast<float*>(matrix.scale);
  auto* sums = const_cast<int32_t*>(matrix.column_sum);
  const int64_t end = (task.first_panel + task.panels) * kPanelColumns;
  std::vector<float> values(job.reader.read ? static_cast<size_t>(kGroupRows * matrix.k) : 0);
  for (int64_t n = task.first_panel * kPanelColumns; n < end; n += kGroupRows) {
    Group group;
    group.rows = std::clamp<int64_t>(matrix.n - n, 0, kGroupRows);
    group.source = job.source.data + (group.rows > 0 ? n * row_bytes : 0);
    group.k = matrix.k;
    if (job.scale.data && group.rows > 0) read_scales(job.scale, n, group.rows, group.given_scale);
    group.column = n % kPanelColumns;
    group.panel = panels + n / kPanelColumns * panel_bytes(job.format, matrix.k) + group.column * column_bytes;
    if (scales) group.scale = scales + n;
    if (sums) group.column_sum = sums + n;
    if (job.reader.read) {
      if (group.rows > 0) job.reader.read(n, group.rows, values.data());
      group.source = reinterpret_cast<const std::byte*>(values.data());
    }
    const int64_t bad = pack_group(job.reader.read ? DType::f32 : job.source.dtype, job.format, group);
    if (bad < 0) continue;
    task.bad_row = n + bad;
    return;
  }
}

Error bad_row_error(const PackJob& job, int64_t row) {
  const auto at = [row](const TensorView& tensor) { return tensor.name + " row " + std::to_string(row); };
  if (job.reader.explain_nan) {
    if (Error e = job.reader.explain_nan(row)) return e;
  }
  if (!job.scale.data) return error("NaN or infinity in the weights", at(job.source));
  float value = 0.0f;
  read_scales(job.scale, row, 1, &value);
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%g", static_cast<double>(value));
  return error("unfit scale", at(job.scale), "a positive number", text.data());
}

// Tells of progress ten times a second, from one thread.
struct Reporter {
  const PackOptions& options;
  int64_t total_bytes = 0;
  std::atomic<int64_t> done_bytes = 0;
  std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();

  void tick() {
    const auto now = std::chrono::steady_clock::now();
    if (!options.progress || now - last < std::chrono::milliseconds(100)) return;
    last = now;
    options.progress(done_bytes, total_bytes);
  }
};

// One thread's share: claims runs in order until none is left or one was bad.
void work(std::vector<Task>& tasks, std::atomic<size_t>& next, std::atomic<bool>& failed, Reporter& reporter) {
  const auto ahead = static_cast<size_t>(2 * omp_get_num_threads());
  while (!failed) {
    const size_t i = next++;
    if (i >= tasks.size()) return;
    if (reporter.options.source_mapped && i + ahead < tasks.size()) prefetch_pages(tasks[i + ahead].read_ahead());
    pack_task(tasks[i]);
    if (tasks[i].bad_row >= 0) failed = true;
    if (reporter.options.source_mapped) release_pages(tasks[i].done_with());
    reporter.done_bytes += static_cast<int64_t>(tasks[i].source().size());
    if (omp_get_thread_num() == 0) reporter.tick();
  }
}

}  // namespace

int64_t packed_bytes(std::span<const PackJob> jobs) {
  int64_t bytes = 0;
  for (const PackJob& job : jobs) bytes += packed_bytes(job.format, job.source.shape[0], job.source.shape[1]);
  return bytes;
}

Error place_all(std::span<const PackJob> jobs, const std::byte* first) {
  for (const PackJob& job : jobs) {
    if (Error e = check_job(job)) return e;
    place_job(job, first);
    first += packed_bytes(job.format, job.out->n, job.out->k);
  }
  return {};
}

Error pack_all(std::span<const PackJob> jobs, std::byte* destination, const PackOptions& options) {
  std::vector<Task> tasks;
  Reporter reporter{options};
  if (Error e = place_all(jobs, destination)) return e;
  for (const PackJob& job : jobs) {
    split_job(job, &tasks);
    reporter.total_bytes += job.source.bytes;
  }
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
#pragma omp parallel num_threads(options.threads > 0 ? options.threads : omp_get_max_threads())
  work(tasks, next, failed, reporter);

  // Runs are claimed in order and finished once claimed, so the first bad one is the same for any number of threads.
  const auto bad = std::ranges::find_if(tasks, [](const Task& task) { return task.bad_row >= 0; });
  if (bad != tasks.end()) return bad_row_error(*bad->job, bad->bad_row);
  if (options.source_mapped) {
    for (const PackJob& job : jobs) release_pages(job.source.contents());
  }
  if (options.progress) options.progress(reporter.total_bytes, reporter.total_bytes);
  return {};
}

}  // namespace pinion
