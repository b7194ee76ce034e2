#include "engine/forward/pass.h"

namespace pinion {
namespace {

// Offsets in bytes of the boards' shares in rows that are stored board by board. Elements have 4 bytes.
struct ShareBegins {
  int64_t bytes[kMaxBoards + 1];

  ShareBegins(const Shares& shares, const Division& columns, int64_t rows) {
    for (int32_t board = 0; board <= shares.ranks; ++board) {
      bytes[board] = columns.begin(shares, board) * rows * sizeof(float);
    }
  }
  std::span<const int64_t> of(const Shares& shares) const { return std::span(bytes).first(shares.ranks + 1); }
};

// A board's columns of one row in Activations::gathered, where rows are stored board by board.
float* columns_in_buffer(const Pass& p, int64_t row, int64_t rows, const RowRange& range) {
  return p.activations.gathered.data() + range.first * rows + row * range.count;
}

// One exchange of a pass, counted as traffic.
void exchange_counted(Exchange& exchange, std::byte* bytes, std::span<const int64_t> begins, bool on_all) {
  Exchange::Traffic& traffic = exchange.traffic;
  const int64_t start = now_ns();
  on_all ? exchange.gather(bytes, begins) : exchange.gather_on_first(bytes, begins);
  traffic.ns += now_ns() - start;
  const int32_t rank = exchange.shares().rank;
  ++traffic.gathers;
  if (on_all || exchange.is_first()) traffic.received_bytes += begins.back() - (begins[rank + 1] - begins[rank]);
  if (traffic.records_sizes) traffic.sizes.push_back(on_all ? begins.back() : -begins.back());
}

// Number of candidates that a board sends for a row. Board 0 sends none, since it receives them.
int64_t sent_candidates(const Pass& p, const Shares& shares, int32_t board, int64_t row) {
  return board == 0 ? 0 : std::min(candidates_of(p, row), p.model.head.rows.of(shares, board).count);
}

// The panels of the head that a board has.
RowRange head_panels(const Pass& p, const Shares& shares, int32_t board) {
  return Division{panel_count(p.model.head.rows.count), 1}.of(shares, board);
}

std::span<int32_t> panel_best_of(const Pass& p, int64_t row, const RowRange& panels) {
  const int64_t first = row * panel_count(p.model.head.rows.count) + panels.first;
  return std::span(p.activations.panel_best).subspan(first, panels.count);
}

std::span<float> logits_of(const Pass& p, int64_t row) {
  const int64_t vocab = p.model.head.rows.count;
  return std::span(p.logits + row * vocab, vocab);
}

// Writes this board's candidates. Rows with NaN or infinity have kNonFinitePanel in place of all ids.
void write_candidates(const Pass& p, const Shares& shares, int64_t count, Candidate* to) {
  CandidateBuffers& buffers = p.activations.candidates;
  const RowRange panels = head_panels(p, shares, shares.rank);
  for (int64_t row = 0; row < count; ++row) {
    const int64_t sent = sent_candidates(p, shares, shares.rank, row);
    if (sent == 0) continue;  // gather_logits() gathers all logits of this row
    const std::span<const int32_t> best = panel_best_of(p, row, panels);
    if (std::ranges::count(best, kNonFinitePanel) > 0) {
      std::fill_n(to, sent, Candidate{0, kNonFinitePanel});
    } else {
      find_likeliest(sent, logits_of(p, row), best, buffers.panel_logits, buffers.found);
      std::ranges::copy(buffers.found, to);
    }
    to += sent;
  }
}

// Sets another board's logits to -inf in the rows for which it sends candidates.
void clear_columns(const Pass& p, const Shares& shares, int32_t board, int64_t count) {
  const RowRange columns = p.model.head.rows.of(shares, board), panels = head_panels(p, shares, board);
  for (int64_t row = 0; row < count; ++row) {
    if (candidates_of(p, row) == 0) continue;
    std::fill_n(logits_of(p, row).data() + columns.first, columns.count, kMinusInfinity);
    int64_t panel = panels.first;
    for (int32_t& best : panel_best_of(p, row, panels)) best = static_cast<int32_t>(panel++ * kPanelColumns);
  }
}

// Stores another board's candidates of a row as logits. candidates: in descending order.
void store_candidates(const Pass& p, int64_t row, const RowRange& panels, std::span<const Candidate> candidates) {
  const std::span<int32_t> panel_best = panel_best_of(p, row, panels);
  const std::span<float> logits = logits_of(p, row);
  for (const auto& [logit, id] : candidates) {
    if (id == kNonFinitePanel) {
      panel_best.front() = kNonFinitePanel;
      return;
    }
    int32_t& best = panel_best[id / kPanelColumns - panels.first];
    if (logits[best] == kMinusInfinity) best = id;
    logits[id] = logit;
  }
}

void gather_candidates(Exchange& exchange, const Pass& p, int64_t count) {
  const Shares& shares = exchange.shares();
  int64_t begins[kMaxBoards + 1] = {}, bytes[kMaxBoards + 1] = {};
  for (int32_t board = 0; board < shares.ranks; ++board) {
    int64_t sent = 0;
    for (int64_t row = 0; row < count; ++row) sent += sent_candidates(p, shares, board, row);
    begins[board + 1] = begins[board] + sent;
    bytes[board + 1] = begins[board + 1] * sizeof(Candidate);
  }
  Candidate* const all = p.activations.candidates.all.data();
  if (!exchange.is_first()) write_candidates(p, shares, count, all + begins[shares.rank]);
  for (int32_t board = 1; exchange.is_first() && board < shares.ranks; ++board) clear_columns(p, shares, board, count);
  exchange_counted(exchange, reinterpret_cast<std::byte*>(all), std::span(bytes).first(shares.ranks + 1), false);
  for (int32_t board = 1; exchange.is_first() && board < shares.ranks; ++board) {
    const Candidate* from = all + begins[board];
    for (int64_t row = 0; row < count; ++row) {
      const int64_t sent = sent_candidates(p, shares, board, row);
      store_candidates(p, row, head_panels(p, shares, board), std::span(from, sent));
      from += sent;
    }
  }
}

}  // namespace

void gather(Worker& worker, const Pass& p, float* rows, int64_t count, const Division& columns) {
  Exchange* exchange = p.model.exchange;
  if (!exchange) return;
  const Shares& shares = exchange->shares();
  const RowRange own = columns.own(shares);
  // Several rows are first stored board by board, so that each board's share is contiguous and one exchange is enough.
  const bool is_packed = count > 1;
  if (is_packed) {
    worker.for_each(count, [&](int64_t row) {
      std::copy_n(rows + row * columns.count + own.first, own.count, columns_in_buffer(p, row, count, own));
    });
    worker.barrier();
  }
  if (worker.index == 0) {
    auto* bytes = reinterpret_cast<std::byte*>(is_packed ? p.activations.gathered.data() : rows);
    exchange_counted(*exchange, bytes, ShareBegins(shares, columns, count).of(shares), true);
  }
  worker.barrier();
  if (!is_packed) return;
  worker.for_each(count, [&](int64_t row) {
    for (int32_t board = 0; board < shares.ranks; ++board) {
      if (board == shares.rank) continue;
      const RowRange range = columns.of(shares, board);
      std::copy_n(columns_in_buffer(p, row, count, range), range.count, rows + row * columns.count + range.first);
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
      exchange_counted(*exchange, reinterpret_cast<std::byte*>(elements + row * division.count),
                       ShareBegins(shares, division, 1).of(shares), false);
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
      std::max({c.hidden_size, c.largest(&LayerConfig::attended), c.recurrence.value_width(),
                max_rows(model, MatrixRole::up), max_rows(model, MatrixRole::q), max_rows(model, MatrixRole::k)});
  return tokens * std::max(widest, c.experts.count > 0 ? c.experts.per_token * c.experts.inner_size : 0);
}

void make_candidate_buffers(const Model& model, int64_t tokens, ScratchSizer* sizer, CandidateBuffers* out) {
  const Shares shares = model.shares();
  if (shares.ranks == 1) return;
  const Division& columns = model.head.rows;
  int64_t sent = 0;
  for (int32_t board = 1; board < shares.ranks; ++board) {
    sent += std::min<int64_t>(kMaxCandidates, columns.of(shares, board).count);
  }
  sizer->make(&out->all, tokens * sent);
  sizer->make(&out->found, columns.own(shares).count);
  sizer->make(&out->panel_logits, panel_count(columns.own(shares).count));
}

}  // namespace pinion
