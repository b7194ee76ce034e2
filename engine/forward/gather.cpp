#include "engine/forward/gather.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "engine/team/clock.h"

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
void exchange_columns(Exchange& exchange, const Shares& shares, std::byte* bytes, const Begins& begins,
                      bool is_for_all) {
  const std::span<const int64_t> parts = begins.of(shares);
  Exchange::Traffic& traffic = exchange.traffic;
  const int64_t start = now_ns();
  is_for_all ? exchange.gather(bytes, parts) : exchange.gather_on_first(bytes, parts);
  traffic.ns += now_ns() - start;
  const auto rank = static_cast<size_t>(shares.rank);
  ++traffic.gathers;
  if (is_for_all || exchange.is_first()) traffic.received_bytes += parts.back() - (parts[rank + 1] - parts[rank]);
  if (traffic.keeps_sizes) traffic.sizes.push_back(is_for_all ? parts.back() : -parts.back());
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
    exchange_columns(*exchange, shares, bytes, Begins(shares, columns, count), true);
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
  for (int64_t row = 0; row < count; ++row) {
    const auto to_first = [&](auto* elements, const Division& division) {
      exchange_columns(*exchange, shares, reinterpret_cast<std::byte*>(elements + row * division.count),
                       Begins(shares, division, 1), false);
    };
    to_first(p.logits, columns);
    to_first(p.activations.panel_best.data(), panels);
  }
}

int64_t gather_floats(const Model& model, int64_t tokens) {
  if (!model.exchange) return 0;
  const ModelConfig& c = model.config;
  const int64_t widest =
      std::max({c.hidden_size, c.heads * c.value_dim(), c.recurrence.value_width(), most_rows(model, MatrixRole::up),
                most_rows(model, MatrixRole::q), most_rows(model, MatrixRole::k)});
  return tokens * std::max(widest, c.experts.count > 0 ? c.experts.per_token * c.experts.inner_size : 0);
}

}  // namespace pinion
