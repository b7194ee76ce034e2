#include "loader/pack/pack.h"

#include <atomic>
#include <cmath>
#include <memory>
#include <thread>

#include "kernels/base/clock.h"
#include "kernels/base/text.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/files/mapped_file.h"

namespace pinion {
namespace {

// Consecutive panels of one matrix, packed by one worker.
struct Task {
  const PackJob* job = nullptr;
  int64_t first_panel = 0;
  int64_t panels = 0;
  int64_t bad_row = -1;

  std::span<const std::byte> source() const {
    const int64_t row_bytes = job->source.bytes / job->source.shape[0];
    const int64_t end = std::min((first_panel + panels) * kPanelColumns, job->rows());
    return job->source.contents().subspan(first_panel * kPanelColumns * row_bytes,
                                          (end - first_panel * kPanelColumns) * row_bytes);
  }

  // Bytes to prefetch before the task, or to release after it. If rows are scattered, the first task prefetches the
  // whole source and the last one releases it.
  std::span<const std::byte> pages(bool to_release) const {
    if (!job->reader.scattered && !job->order.selects_rows()) return source();
    const bool is_outer = to_release ? first_panel + panels == panel_count(job->rows()) : first_panel == 0;
    return is_outer ? job->source.contents() : std::span<const std::byte>{};
  }
};

// Large enough that pages between two tasks, which stay mapped until the matrix is done, hardly count; small enough to
// keep every thread busy to the end.
constexpr int64_t kTaskBytes = int64_t{2} << 20;

Error check_job(const PackJob& job) {
  const TensorView& source = job.source;
  const bool is_coded = source.dtype == DType::i8 && job.scale.data;
  if (!is_coded && !job.reader.read && (!is_float(source.dtype) || job.scale.data)) {
    return error("cannot pack this type", source.name, "BF16, F16, F32, or I8 with scales", dtype_name(source.dtype));
  }
  if (source.shape.size() != 2 || source.shape[0] < 1 || source.shape[1] < 1 || source.shape[1] > kMaxK) {
    return error("cannot pack this shape", source.name, "[n, k], k at most " + std::to_string(kMaxK),
                 shape_text(source.shape));
  }
  if (job.order.selects_rows() && job.order.file_row(job.rows() - 1) >= source.shape[0]) {
    return error("has too few rows", source.name, job.order.file_row(job.rows() - 1) + 1, source.shape[0]);
  }
  if (job.format == Format::w2 && source.shape[1] % kW2GroupK != 0) {
    return error("cannot pack this shape", source.name, "k a multiple of 128", shape_text(source.shape));
  }
  const int64_t scales = job.scale.elements();
  if (is_coded && (!is_float(job.scale.dtype) || (scales != 1 && scales != source.shape[0]))) {
    return error("cannot use these scales", job.scale.name, "one, or one for each row, of BF16, F16 or F32",
                 shape_text(job.scale.shape) + " of " + std::string(dtype_name(job.scale.dtype)));
  }
  return {};
}

// out [count]: the scales of rows [row, row + count).
void read_row_scales(const TensorView& scale, int64_t row, int64_t count, float* out) {
  if (scale.elements() > 1) return read_floats(scale, row, count, out);
  read_floats(scale, out);
  std::fill_n(out, count, out[0]);
}

void split_job(const PackJob& job, std::vector<Task>* tasks) {
  const int64_t panels = panel_count(job.rows());
  const int64_t panel_source_bytes = std::max<int64_t>(job.source.bytes / panels, 1);
  const int64_t task_panels = std::max<int64_t>(kTaskBytes / panel_source_bytes, 1);
  for (int64_t first = 0; first < panels; first += task_panels) {
    tasks->push_back({&job, first, std::min(task_panels, panels - first)});
  }
}

// The destination of rows [n, n + kStripRows). Only packing writes to the memory of a Matrix, which is const elsewhere.
RowStrip strip_at(const Matrix& matrix, int64_t n) {
  const int64_t column_bytes = traits_of(matrix.format).bits == 16 ? 2 : 4;  // of four k, or of one k of bf16
  RowStrip strip = {.rows = std::clamp<int64_t>(matrix.n - n, 0, kStripRows), .k = matrix.k};
  strip.column = n % kPanelColumns;
  strip.panel = const_cast<std::byte*>(panel_of(matrix, n / kPanelColumns)) + strip.column * column_bytes;
  if (matrix.scale) strip.scale = const_cast<float*>(matrix.scale) + n;
  if (matrix.column_sum) strip.column_sum = const_cast<int32_t*>(matrix.column_sum) + n;
  if (matrix.low) strip.low = const_cast<uint8_t*>(matrix.low) + n * low_bytes(matrix.format, matrix.k);
  if (matrix.spread) strip.spread = const_cast<bf16_pair*>(matrix.spread) + n;
  return strip;
}

bool is_scale(float value) { return value > 0.0f && std::isfinite(value * 128.0f); }

// Buffers of one worker.
struct PackScratch {
  std::vector<float> values;       // [kStripRows][k]
  std::vector<int8_t> int8_codes;  // [kStripRows][k], if the rows are reordered
  W4Rows codes;
};

// Splits rows [n, n + rows) of the matrix into runs of source rows. f(first, count, at): matrix rows from n + at on are
// the source rows [first, first + count).
template <class F>
void for_each_run(const PackJob& job, int64_t n, int64_t rows, F f) {
  if (job.order.is_identity()) return f(n, rows, int64_t{0});
  for (int64_t r = 0; r < rows; ++r) f(job.order.file_row(n + r), int64_t{1}, r);
}

// Adds the updates of the source's rows [first, first + count) to these weights.
void add_updates(const PackJob& job, int64_t first, int64_t count, float* values) {
  if (job.updates.empty()) return;
  const int64_t k = job.source.shape[1];
  for (const LowRankUpdate& update : job.updates) {
    const int64_t rank = update.a.shape[0];
    std::vector<float> a(rank * k), b(count * rank), sum(k);
    read_floats(update.a, a.data());
    read_floats(update.b, first * rank, count * rank, b.data());
    for (int64_t r = 0; r < count; ++r) {
      std::ranges::fill(sum, 0.0f);
      for (int64_t j = 0; j < rank; ++j) {
        for (int64_t i = 0; i < k; ++i) sum[i] += b[r * rank + j] * a[j * k + i];
      }
      for (int64_t i = 0; i < k; ++i) values[r * k + i] += update.scale * sum[i];
    }
  }
  std::transform(values, values + count * k, values, [](float value) { return to_float(to_bf16(value)); });
}

// Rows [first, first + count) of the source as floats, with all updates.
void read_source(const PackJob& job, int64_t first, int64_t count, float* rows) {
  const int64_t k = job.source.shape[1];
  if (job.scale.data) {
    std::vector<float> scales(count);
    read_row_scales(job.scale, first, count, scales.data());
    const auto* codes = reinterpret_cast<const int8_t*>(job.source.data) + first * k;
    for (int64_t i = 0; i < count * k; ++i) rows[i] = static_cast<float>(codes[i]) * scales[i / k];
  } else {
    job.reader.read ? job.reader.read(first, count, rows) : read_floats(job.source, first * k, count * k, rows);
  }
  add_updates(job, first, count, rows);
}

// Int8 codes of the strip's rows, contiguous, in the source or in `scratch`.
const int8_t* int8_codes(const PackJob& job, int64_t n, const RowStrip& strip, std::vector<int8_t>* scratch) {
  const auto* codes = reinterpret_cast<const int8_t*>(job.source.data);
  if (job.order.is_identity()) return codes + n * strip.k;
  scratch->resize(kStripRows * strip.k);
  for_each_run(job, n, strip.rows, [&](int64_t first, int64_t count, int64_t at) {
    std::copy_n(codes + first * strip.k, count * strip.k, scratch->data() + at * strip.k);
  });
  return scratch->data();
}

// Packs rows stored as int8 codes, at least one. Returns the first invalid row of the strip, or -1.
int64_t pack_int8_rows(const PackJob& job, int64_t n, const RowStrip& strip, PackScratch* scratch) {
  float* values = scratch->values.data();
  float scales[kStripRows];
  for_each_run(job, n, strip.rows, [&](int64_t first, int64_t count, int64_t at) {
    read_row_scales(job.scale, first, count, scales + at);
  });
  const float* invalid = std::find_if_not(scales, scales + strip.rows, is_scale);
  if (invalid < scales + strip.rows) return invalid - scales;
  const int8_t* codes = int8_codes(job, n, strip, &scratch->int8_codes);
  if ((job.format == Format::w8 || job.format == Format::w8h) && job.updates.empty()) {
    pack_w8_codes(strip, codes, scales);
    return -1;
  }
  for_each_run(job, n, strip.rows, [&](int64_t first, int64_t count, int64_t at) {
    read_source(job, first, count, values + at * strip.k);
  });
  return pack_floats(job.format, strip, values, job.rotation);
}

// Reads rows [n, n + rows), rows > 0, as 4-bit codes. Returns the first invalid row of the strip, or -1.
int64_t read_w4_strip(const PackJob& job, int64_t n, int64_t rows, W4Rows* out) {
  out->codes.clear(), out->zero_points.clear(), out->group_scales.clear(), out->scales.clear();
  int64_t bad = -1;
  for_each_run(job, n, rows, [&](int64_t first, int64_t count, int64_t at) {
    const int64_t row = bad < 0 ? job.reader.read_w4(first, count, out) : -1;
    if (row >= 0) bad = at + row;
  });
  return bad;
}

// Packs the strip that begins at row n. Returns its first invalid row, or -1.
int64_t pack_rows(const PackJob& job, int64_t n, PackScratch* scratch) {
  RowStrip strip = strip_at(*job.out, n);
  strip.feedback = job.feedback;
  float* values = scratch->values.data();
  if (traits_of(job.format).bits == 4 && job.reader.read_w4) {
    const int64_t bad = strip.rows > 0 ? read_w4_strip(job, n, strip.rows, &scratch->codes) : -1;
    if (bad < 0) pack_w4_codes(job.format, strip, scratch->codes);
    return bad;
  }
  if (strip.rows > 0 && job.scale.data) return pack_int8_rows(job, n, strip, scratch);
  for_each_run(job, n, strip.rows, [&](int64_t first, int64_t count, int64_t at) {
    if (count > 0) read_source(job, first, count, values + at * strip.k);
  });
  return pack_floats(job.format, strip, values, job.rotation);
}

void pack_task(Task& task) {
  const int64_t end = (task.first_panel + task.panels) * kPanelColumns;
  PackScratch scratch;
  scratch.values.resize(kStripRows * task.job->out->k);
  for (int64_t n = task.first_panel * kPanelColumns; n < end; n += kStripRows) {
    const int64_t bad = pack_rows(*task.job, n, &scratch);
    if (bad < 0) continue;
    task.bad_row = task.job->order.file_row(n + bad);
    return;
  }
}

Error bad_row_error(const PackJob& job, int64_t row) {
  const auto at = [row](const TensorView& tensor) { return tensor.name + " row " + std::to_string(row); };
  if (job.reader.explain_nan) {
    if (Error e = job.reader.explain_nan(row)) return e;
  }
  if (job.format == Format::w2) return error(kNotTernary, at(job.source), "-s, 0 and s in groups of 128");
  if (!job.scale.data) return error("NaN or infinity in the weights", at(job.source));
  float value = 0.0f;
  read_row_scales(job.scale, row, 1, &value);
  return error("invalid scale", at(job.scale), "a positive number", formatted("%g", static_cast<double>(value)));
}

// Workers take the tasks in file order, so that a disk is read from front to back. No task starts after a failed one.
void run_tasks(const Workers& workers, std::vector<Task>& tasks, const PackOptions& options, int64_t total_bytes) {
  const int64_t ahead = 2 * workers.count;
  std::atomic<int64_t> next = 0, done_bytes = 0;
  std::atomic<bool> failed = false;
  const std::thread::id caller = std::this_thread::get_id();
  int64_t reported_ns = now_ns();  // only the caller reports
  run_pieces(workers, std::ssize(tasks), [&](int64_t) {
    if (failed) return;
    const int64_t i = next++;
    if (options.source_mapped && i + ahead < std::ssize(tasks)) prefetch_pages(tasks[i + ahead].pages(false));
    pack_task(tasks[i]);
    if (tasks[i].bad_row >= 0) failed = true;
    if (options.source_mapped) release_pages(tasks[i].pages(true));
    done_bytes += std::ssize(tasks[i].source());
    if (!options.progress || std::this_thread::get_id() != caller || now_ns() - reported_ns < 100'000'000) return;
    reported_ns = now_ns();
    options.progress(done_bytes, total_bytes);
  });
}

}  // namespace

void transpose(PackJob* job) {
  const auto rows = std::make_shared<const PackJob>(*job);
  const int64_t n = rows->source.shape[0], k = rows->source.shape[1];
  job->source.shape = {k, n};
  job->scale = {}, job->updates.clear(), job->keeps_codes = false;
  job->reader = {.stored_as = rows->reader.stored_as + " transposed", .read = {}, .explain_nan = {}, .scattered = true};
  job->reader.read = [=](int64_t first, int64_t count, float* out) {
    // A worker packs all strips of a matrix one after another and reads the source only once.
    thread_local std::pair<std::shared_ptr<const PackJob>, std::vector<float>> last;
    if (last.first != rows) {
      last = {rows, std::vector<float>(n * k)};
      read_source(*rows, 0, n, last.second.data());
    }
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < n; ++i) out[r * n + i] = last.second[i * k + first + r];
    }
  };
}

int64_t packed_bytes(std::span<const PackJob> jobs) {
  int64_t bytes = 0;
  for (const PackJob& job : jobs) bytes += packed_bytes(job.format, job.rows(), job.source.shape[1]);
  return bytes;
}

Error place_all(std::span<const PackJob> jobs, const std::byte* first) {
  for (const PackJob& job : jobs) {
    if (Error e = check_job(job)) return e;
  }
  for (std::span<const PackJob> left = jobs; !left.empty(); left = left.subspan(left.front().interleaved)) {
    const std::span<const PackJob> together = left.first(left.front().interleaved);  // panels, then the columns' data
    const Format format = together.front().format;
    const int64_t n = together.front().rows(), k = together.front().source.shape[1], count = std::ssize(together);
    const std::byte* columns = first + count * panel_count(n) * panel_bytes(format, k);
    for (const PackJob& job : together) {
      *job.out = {.format = format, .n = n, .k = k, .panels = first, .interleaved = count, .rotation = job.rotation};
      first += panel_bytes(format, k);
      const std::byte* const scales = columns + padded_n(n) * low_bytes(format, k);
      const std::byte* const others = scales + padded_n(n) * sizeof(float);
      if (traits_of(format).has_scales) job.out->scale = reinterpret_cast<const float*>(scales);
      if (traits_of(format).has_sums) job.out->column_sum = reinterpret_cast<const int32_t*>(others);
      if (traits_of(format).is_halved) {
        job.out->low = reinterpret_cast<const uint8_t*>(columns);
        job.out->spread = reinterpret_cast<const bf16_pair*>(others);
      }
      columns += padded_n(n) * column_data_bytes(format, k);
    }
    first = columns;
  }
  return {};
}

Error pack_all(const Workers& workers, std::span<const PackJob> jobs, std::byte* destination,
               const PackOptions& options) {
  std::vector<Task> tasks;
  int64_t total_bytes = 0;
  if (Error e = place_all(jobs, destination)) return e;
  for (const PackJob& job : jobs) {
    split_job(job, &tasks);
    total_bytes += job.source.bytes * job.rows() / job.source.shape[0];
  }
  run_tasks(workers, tasks, options, total_bytes);

  // Tasks start in order and always finish, so the first bad row is the same for any number of workers.
  const auto bad = std::ranges::find_if(tasks, [](const Task& task) { return task.bad_row >= 0; });
  if (bad != tasks.end()) return bad_row_error(*bad->job, bad->bad_row);
  if (options.source_mapped) {
    for (const PackJob& job : jobs) release_pages(job.source.contents());
  }
  if (options.progress) options.progress(total_bytes, total_bytes);
  return {};
}

}  // namespace pinion
