#include "engine/forward/gather.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

#include "kernels/base/clock.h"

namespace pinion {
namespace {

// Where each board's columns of one row begin, in elements of 4 bytes, or of several rows that lie board by board.
struct Begins {
  int64_t bytes[kMostBoards + 1];

  Begins(const Shares& shares, const Division& columns, int64_t rows) {
    for (int32_t board = 0; board <= shares.ranks; ++board) {
      bytes[board] = columns.begin(shares, board) * rows * static_cast<int64_t>(sizeof(float));
    }
  }
  std::span<const int64_t> of(const Shares& shares) const {
    return std::span(bytes).first(static_cast<size_t>(shares.ranks) + 1);
  }
};

// A board's columns of a row, in the buffer in which they lie board by board.
float* place_of(const Pass& p, int64_t row, int64_t rows, const RowRange& range) {
  return p.activations.gathered.data() + range.first * rows + row * range.count;
}

// One exchange of a pass, counted.
void exchange_parts(Exchange& exchange, std::byte* bytes, std::span<const int64_t> parts, bool is_for_all) {
  Exchange::Traffic& traffic = exchange.traffic;
  const int64_t start = now_ns();
  is_for_all ? exchange.gather(bytes, parts) : exchange.gather_on_first(bytes, parts);
  traffic.ns += now_ns() - start;
  const auto rank = static_cast<size_t>(exchange.shares().rank);
  ++traffic.gathers;
  if (is_for_all || exchange.is_first()) traffic.received_bytes += parts.back() - (parts[rank + 1] - parts[rank]);
  if (traffic.keeps_sizes) traffic.sizes.push_back(is_for_all ? parts.back() : -parts.back());
}

// How many candidates the draw from a row needs; 0: all logits.
int64_t candidates_of(const Pass& p, int64_t row) {
  return p.segment_of(p.activations.logit_rows[static_cast<size_t>(row)]).candidates;
}

// How many a board tells of the row. The first has its own.
int64_t told_candidates(const Pass& p, const Shares& shares, int32_t board, int64_t row) {
  return board == 0 ? 0 : std::min(candidates_of(p, row), p.model.head.rows.of(shares, board).count);
}

// The panels of the head that a board has.
RowRange panels_of(const Pass& p, const Shares& shares, int32_t board) {
  return Division{panel_count(p.model.head.rows.count), 1}.of(shares, board);
}

std::span<int32_t> panel_best_of(const Pass& p, int64_t row, const RowRange& panels) {
  return std::span(p.activations.panel_best)
      .subspan(static_cast<size_t>(row * panel_count(p.model.head.rows.count) + panels.first),
               static_cast<size_t>(panels.count));
}

std::span<float> logits_of(const Pass& p, int64_t row) {
  const int64_t vocab = p.model.head.rows.count;
  return {p.logits + row * vocab, static_cast<size_t>(vocab)};
}

// This board's likeliest of the rows, or kUnfitPanel in their place where one of its logits is no number.
void tell_candidates(const Pass& p, const Shares& shares, int64_t count, Candidate* to) {
  CandidateBuffers& buffers = p.activations.candidates;
  const RowRange panels = panels_of(p, shares, shares.rank);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t told = told_candidates(p, shares, shares.rank, row);
    if (told == 0) continue;  // all its logits travel
    const std::span<const int32_t> best = panel_best_of(p, row, panels);
    if (std::ranges::count(best, kUnfitPanel) > 0) {
      std::fill_n(to, told, Candidate{0, kUnfitPanel});
    } else {
      find_likeliest(told, logits_of(p, row), best, buffers.panel_best, buffers.found);
      std::ranges::copy(buffers.found, to);
    }
    to += told;
  }
}

// Until another board tells of its candidates.
void forget_columns(const Pass& p, const Shares& shares, int32_t board, int64_t count) {
  const RowRange columns = p.model.head.rows.of(shares, board), panels = panels_of(p, shares, board);
  for (int64_t row = 0; row < count; ++row) {
    if (candidates_of(p, row) == 0) continue;
    std::fill_n(logits_of(p, row).data() + columns.first, columns.count, -std::numeric_limits<float>::infinity());
    int64_t panel = panels.first;
    for (int32_t& best : panel_best_of(p, row, panels)) best = static_cast<int32_t>(panel++ * kPanelColumns);
  }
}

// A row's candidates of another board, which begin with the likeliest, in their places.
void place_candidates(const Pass& p, int64_t row, const RowRange& panels, std::span<const Candidate> told) {
  const std::span<int32_t> best = panel_best_of(p, row, panels);
  const std::span<float> logits = logits_of(p, row);
  for (const auto& [logit, id] : told) {
    if (id == kUnfitPanel) {
      best.front() = kUnfitPanel;
      return;
    }
    int32_t& likeliest = best[static_cast<size_t>(id / kPanelColumns - panels.first)];
    if (logits[static_cast<size_t>(likeliest)] == -std::numeric_limits<float>::infinity()) likeliest = id;
    logits[static_cast<size_t>(id)] = logit;
  }
}

void gather_candidates(Exchange& exchange, const Pass& p, int64_t count) {
  const Shares& shares = exchange.shares();
  int64_t begins[kMostBoards + 1] = {}, bytes[kMostBoards + 1] = {};
  for (int32_t board = 0; board < shares.ranks; ++board) {
    int64_t told = 0;
    for (int64_t row = 0; row < count; ++row) told += told_candidates(p, shares, board, row);
    begins[board + 1] = begins[board] + told;
    bytes[board + 1] = begins[board + 1] * static_cast<int64_t>(sizeof(Candidate));
  }
  Candidate* const of_all = p.activations.candidates.of_all.data();
  if (!exchange.is_first()) tell_candidates(p, shares, count, of_all + begins[shares.rank]);
  for (int32_t board = 1; exchange.is_first() && board < shares.ranks; ++board) forget_columns(p, shares, board, count);
  exchange_parts(exchange, reinterpret_cast<std::byte*>(of_all),
                 std::span(bytes).first(static_cast<size_t>(shares.ranks) + 1), false);
  for (int32_t board = 1; exchange.is_first() && board < shares.ranks; ++board) {
    const Candidate* from = of_all + begins[board];
    for (int64_t row = 0; row < count; ++row) {
      const int64_t told = told_candidates(p, shares, board, row);
      place_candidates(p, row, panels_of(p, shares, board), {from, static_cast<size_t>(told)});
      from += told;
    }
  }
}

}  // namespace

void gather(Worker& worker, const Pass& p, float* rows, int64_t count, const Division& columns) {
  Exchange* exchange = p.model.exchange;
  if (!exchange) return;
  const Shares& shares = exchange->shares();
  const RowRange own = columns.own(shares);
  const bool is_packed = count > 1;
  if (is_packed) {
    worker.for_each(count, [&](int64_t row) {
      std::copy_n(rows + row * columns.count + own.first, own.count, place_of(p, row, count, own));
    });
    worker.barrier();
  }
  if (worker.index == 0) {
    auto* bytes = reinterpret_cast<std::byte*>(is_packed ? p.activations.gathered.data() : rows);
    exchange_parts(*exchange, bytes, Begins(shares, columns, count).of(shares), true);
  }
  worker.barrier();
  if (!is_packed) return;
  worker.for_each(count, [&](int64_t row) {
    for (int32_t board = 0; board < shares.ranks; ++board) {
      if (board == shares.rank) continue;
      const RowRange range = columns.of(shares, board);
      std::copy_n(place_of(p, row, count, range), range.count, rows + row * columns.count + range.first);
    }
  });
  worker.barrier();
}

void gather_logits(const Worker& worker, const Pass& p, int64_t count) {
  Exchange* exchange = p.model.exchange;
  if (!exchange || worker.index != 0) return;
  const Shares& shares = exchange->shares();
  const Division& columns = p.model.head.rows;
  const Division panels = {panel_count(columns.count), 1};
  bool has_candidates = false;
  for (int64_t row = 0; row < count; ++row) {
    if (candidates_of(p, row) > 0) {
      has_candidates = true;
      continue;
    }
    const auto to_first = [&](auto* elements, const Division& division) {
      exchange_parts(*exchange, reinterpret_cast<std::byte*>(elements + row * division.count),
                     Begins(shares, division, 1).of(shares), false);
    };
    to_first(p.logits, columns);
    to_first(p.activations.panel_best.data(), panels);
  }
  if (has_candidates) gather_candidates(*exchange, p, count);
}

int64_t gather_floats(const Model& model, int64_t tokens) {
  if (!model.exchange) return 0;
  const ModelConfig& c = model.config;
  const int64_t widest =
      std::max({c.hidden_size, c.heads * c.value_dim(), c.recurrence.value_width(), most_rows(model, MatrixRole::up),
                most_rows(model, MatrixRole::q), most_rows(model, MatrixRole::k)});
  return tokens * std::max(widest, c.experts.count > 0 ? c.experts.per_token * c.experts.inner_size : 0);
}

void make_candidate_buffers(const Model& model, int64_t tokens, ScratchSizer* sizer, CandidateBuffers* out) {
  const Shares shares = model.shares();
  if (shares.ranks == 1) return;
  const Division& columns = model.head.rows;
  int64_t told = 0;
  for (int32_t board = 1; board < shares.ranks; ++board) {
    told += std::min<int64_t>(kMostCandidates, columns.of(shares, board).count);
  }
  sizer->make(&out->of_all, tokens * told);
  sizer->make(&out->found, columns.own(shares).count);
  sizer->make(&out->panel_best, panel_count(columns.own(shares).count));
}

}  // namespace pinion
