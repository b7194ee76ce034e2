#include "engine/forward/head.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace pinion {
namespace {

constexpr int64_t kMinRotation = 64, kPanelsPerTask = 32;  // panels of a task that decides about few of them
constexpr int32_t kUndecidedPanel = -2;                    // in panel_best: a panel that may have candidates

// The part of a column's low halves that does not follow its high halves (Matrix::spread) has the mean 7.5 sum(x) in
// products with a row x, and the standard deviation |x| times the column's: rotation turns x by signs that no weight
// depends on. It is no proof; tools/head_margin measures a model. Heads with small rotations are read whole. Drafts of
// an MTP layer are checked, so one deviation suffices.
constexpr float kLowMean = 7.5f, kDeviations = 8.0f, kDraftDeviations = 1.0f;

struct Bounds {
  float mean = 0, margin = 0;  // Kernels::bounds
};

struct HeadPass {
  const Pass& p;
  const Kernels& kernels;
  const Input& in;
  const Linear& linear;
  const Epilogue& after;
  int32_t workers;
  Projection to;

  const Matrix& w() const { return linear.weight; }
  int64_t panels() const { return panel_count(w().n); }
  int64_t columns_of(int64_t panel) const { return std::min(kPanelColumns, w().n - panel * kPanelColumns); }
  const int8_t* codes(int64_t row) const { return in.codes_for(w()).codes + row * padded_k(in.k); }

  // The largest lower bounds that the workers have found, one of each panel: a heap of k for each worker, the least of
  // its bounds first. A row has at least k logits that are not less.
  std::span<float> largest_bounds(int64_t row) const {
    return {p.activations.head_bounds.data() + row * workers * kMaxCandidates,
            static_cast<size_t>(workers * candidates_of(p, row))};
  }
  std::span<float> largest_bounds(int64_t row, int32_t worker) const {
    return largest_bounds(row).subspan(worker * candidates_of(p, row), candidates_of(p, row));
  }

  // A scale that is not finite makes all logits NaN, which only a whole row shows.
  bool is_ranked(int64_t row) const {
    return row < kMaxRankedRows && candidates_of(p, row) > 0 && !linear.bias && after.alpha * linear.alpha > 0 &&
           w().rotation >= kMinRotation && std::isfinite(in.codes_for(w()).scales[row]);
  }

  Bounds bounds_of_sums(int64_t row) const {
    int32_t sum = 0, squares = 0;
    for (int64_t i = 0; i < in.k; ++i) sum += codes(row)[i], squares += codes(row)[i] * codes(row)[i];
    const float deviations = p.model.reads_hidden() ? kDraftDeviations : kDeviations;
    return {kLowMean * static_cast<float>(sum), deviations * std::sqrt(static_cast<float>(squares))};
  }

  // out [64] = upper (+1) or lower (-1) bounds of a panel's products, of which alpha and cap keep the order. Returns
  // the largest. high [64]: the sums of the high halves.
  float bound(const float* high, int64_t panel, const Bounds& of, float sign, float* out) const {
    bounds(high, panel, of, sign, out);
    return out[kernels.argmax(out, columns_of(panel))];
  }
  // The same, but padding may be the largest, which only raises an upper bound.
  float bounds(const float* high, int64_t panel, const Bounds& of, float sign, float* out) const {
    const int64_t first = panel * kPanelColumns;
    return kernels.bounds(high, w().spread + first, w().scale + first, of.mean, sign * of.margin, out);
  }

  // The sum of a column from that of its high half.
  int32_t whole_sum(float high, int64_t row, int64_t column) const {
    const uint8_t* low = w().low + column * low_bytes(w().format, in.k);
    return 16 * static_cast<int32_t>(high) + kernels.dot_low(codes(row), low, padded_k(in.k));
  }

  // Stores the logits of a panel whose high halves have these sums: of the columns whose upper bounds reach `least`,
  // else -inf; without bounds of all columns.
  void store(const float* high, int64_t row, int64_t panel, const float* upper = nullptr, float least = 0) const {
    const int64_t columns = columns_of(panel), first = panel * kPanelColumns;
    const auto is_candidate = [&](int64_t c) { return !upper || upper[c] >= least; };
    float* const out = to.at(row, panel);
    int32_t sums[kPanelColumns] = {}, &best = to.best_of(row, panel);
    for (int64_t c = 0; c < columns; ++c) sums[c] = is_candidate(c) ? whole_sum(high[c], row, first + c) : 0;
    kernels.epilogue_s32(sums, 1, columns, epilogue_of(after, linear, first, in, row), out, to.stride());
    store_panel_best(kernels, to, {panel, 1}, row);
    if (!upper || best == kNonFinitePanel) return;
    for (int64_t c = 0; c < columns; ++c) out[c] = is_candidate(c) ? out[c] : kMinusInfinity;
    best = static_cast<int32_t>(linear.first + first + kernels.argmax(out, columns));
  }

  void exclude(int64_t row, int64_t panel) const {
    std::fill_n(to.at(row, panel), columns_of(panel), kMinusInfinity);
    to.best_of(row, panel) = static_cast<int32_t>(linear.first + panel * kPanelColumns);
  }

  // Excludes a ranked row's panel, or keeps its sums in the place of its logits until all bounds are known.
  void rank(const float* high, int64_t row, int64_t panel, const Bounds& of, int32_t worker) const {
    float out[kPanelColumns];
    const std::span<float> heap = largest_bounds(row, worker);
    if (bounds(high, panel, of, 1.0f, out) < heap.front()) return exclude(row, panel);
    std::copy_n(high, columns_of(panel), to.at(row, panel));
    to.best_of(row, panel) = kUndecidedPanel;
    const float largest = bound(high, panel, of, -1.0f, out);
    if (!(largest > heap.front())) return;
    std::ranges::pop_heap(heap, std::greater());
    heap.back() = largest;
    std::ranges::push_heap(heap, std::greater());
  }

  // Replaces the sums of an undecided panel by logits.
  void decide(int64_t row, int64_t panel, const Bounds& of, float least) const {
    float high[kPanelColumns] = {}, upper[kPanelColumns];
    std::copy_n(to.at(row, panel), columns_of(panel), high);
    if (bound(high, panel, of, 1.0f, upper) < least) return exclude(row, panel);
    store(high, row, panel, upper, least);
  }
};

// The sums of the high halves of all rows by all panels, and what follows from them: logits of whole rows, panels that
// have no candidates. As in project(), the stream of weights is interrupted only when the sums of a tile are complete.
void multiply_high(Worker& worker, const HeadPass& head, std::span<const Bounds> bounds) {
  alignas(kAlignmentBytes) float high[kTileRows * kPanelColumns];
  PanelRange runs[kTileRows];
  const int64_t few = std::max(1, head.kernels.few_rows), rows = head.in.rows;
  const int64_t max_panels = rows <= few ? kTileRows / rows : 1;
  int64_t count = 0, panels = 0;
  const auto add_sums = [&](PanelRange run, int64_t row, int64_t n, float* to) {
    const GroupedPanel first = {panel_of(head.w(), run.first), padded_k(head.in.k), head.w().format};
    if (n == 1) return head.kernels.gemv_grouped(head.codes(row), first, run.count, to);
    head.kernels.rows_grouped(head.codes(row), first.k, n, first, run.count, to);
  };
  const auto use_sums = [&](int64_t row, int64_t n) {
    const float* sums = high;
    for (const PanelRange& run : std::span(runs, count)) {
      for (int64_t panel = run.first; panel < run.first + run.count; ++panel) {
        for (int64_t r = row; r < row + n; ++r, sums += kPanelColumns) {
          head.is_ranked(r) ? head.rank(sums, r, panel, bounds[r], worker.index) : head.store(sums, r, panel);
        }
      }
    }
  };
  worker.for_each_run(head.panels(), std::min(panels_per_claim(rows), max_panels), [&](PanelRange run) {
    if (panels + run.count > max_panels) use_sums(0, std::min(rows, few)), count = panels = 0;
    runs[count++] = run;
    if (rows <= few) add_sums(run, 0, rows, high + panels * rows * kPanelColumns);
    for (int64_t row = 0; rows > few && row < rows; row += few) {
      add_sums(run, row, std::min(few, rows - row), high);
      use_sums(row, std::min(few, rows - row));
    }
    panels += run.count;
    if (rows > few) count = panels = 0;
  });
  if (rows <= few) use_sums(0, rows);
  worker.barrier();
}

}  // namespace

void project_head(const Multiplier& m, const Pass& p, const Input& in, const Epilogue& after) {
  const Linear& linear = p.model.head;
  const HeadPass head = {
      p, m.table(), in, linear, after, m.worker.count, {&linear, p.logits, p.activations.panel_best.data()}};
  const int64_t rows = std::min(in.rows, kMaxRankedRows);
  Bounds bounds[kMaxRankedRows];
  bool has_ranked = false;
  for (int64_t row = 0; row < rows; ++row) {
    if (!head.is_ranked(row)) continue;
    bounds[row] = head.bounds_of_sums(row);
    std::ranges::fill(head.largest_bounds(row, m.worker.index), kMinusInfinity);
    has_ranked = true;
  }
  multiply_high(m.worker, head, bounds);
  if (!has_ranked) return;
  m.worker.for_each(rows, [&](int64_t row) {
    if (!head.is_ranked(row)) return;
    const std::span<float> all = head.largest_bounds(row);
    std::ranges::nth_element(all, all.begin() + (candidates_of(p, row) - 1), std::greater());
  });
  m.worker.barrier();
  m.worker.for_each_run(rows * head.panels(), kPanelsPerTask, [&](TaskRange run) {
    for (int64_t task = run.first; task < run.first + run.count; ++task) {
      const int64_t row = task / head.panels(), panel = task % head.panels();
      if (!head.is_ranked(row) || head.to.best_of(row, panel) != kUndecidedPanel) continue;
      head.decide(row, panel, bounds[row], head.largest_bounds(row)[candidates_of(p, row) - 1]);
    }
  });
  m.worker.barrier();
}

}  // namespace pinion
