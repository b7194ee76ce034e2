// Few rows as they lie by a panel of w8: shared by all matmuls, none of which can hold the sums of all rows and columns
// in registers.
#pragma once

#include <cstdint>

#include "kernels/lanes/streams.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

constexpr int32_t kMostFewRows = 12;

// What tiles of rows and columns multiply in turn, a few KB of a panel that stay in the L1 cache meanwhile: a strip of
// each stream of the access pattern. The caches do not follow such a way by themselves. So each tile prefetches its
// share of the strips with which the streams go on, as many lines as it reads.
struct PanelPiece {
  int64_t first;        // k of the first strip
  int64_t strips;       // one in each stream
  int64_t strip_k;      // of a strip
  int64_t next_k;       // from a strip to that of the next stream
  int64_t ahead_bytes;  // from a strip to the one with which its stream goes on
};

constexpr int64_t kPieceK = 128;  // 8 KB of a panel
constexpr int64_t kLeastStripK = 8;

// In as many streams as a GEMV, but in one where a stream would have few strips: then their ends cost more than streams
// give.
constexpr int64_t kLeastStreamK = 64;

template <class Way>
int64_t streams_of(int64_t k) {
  return k / Way::kPattern.streams < kLeastStreamK ? 1 : Way::kPattern.streams;
}

// The most k of a piece.
template <class Way>
constexpr int64_t kMostPieceK =
    kLeastStripK * Way::kPattern.streams > kPieceK ? kLeastStripK* Way::kPattern.streams : kPieceK;

// f(PanelPiece) until all k are done. Multiple: of a strip's k. Behind a panel lies the next one, most often the next
// task.
template <class Way, int64_t Multiple, class F>
[[gnu::always_inline]] inline void each_piece(int64_t k, F f) {
  static_assert(kPieceK % Multiple == 0 && kMostPieceK<Way> / Way::kPattern.streams % Multiple == 0);
  const int64_t streams = streams_of<Way>(k);
  const int64_t strip_k = kPieceK / streams < kLeastStripK ? kLeastStripK : kPieceK / streams;
  const int64_t part = k / streams / Multiple * Multiple;  // in a stream
  for (int64_t i = 0; i < part; i += strip_k) {
    const int64_t left = part - i, strip = left < strip_k ? left : strip_k;
    f(PanelPiece{i, streams, strip, part, (left > strip ? strip : k - i) * kPanelColumns});
  }
  const int64_t rest = k - streams * part;
  if (rest > 0) f(PanelPiece{k - rest, 1, rest, 0, 0});
}

// f(a, b, ahead) for every strip: where the codes of the first row begin, and from `column` on the panel's, and what is
// to be prefetched while these columns are read, of each row of four k a line.
template <class F>
[[gnu::always_inline]] inline void each_strip(const PanelPiece& piece, const int8_t* a, const int8_t* panel,
                                              int64_t column, F f) {
  a += piece.first, panel += piece.first * kPanelColumns;
  for (int64_t s = 0; s < piece.strips; ++s, a += piece.next_k, panel += piece.next_k * kPanelColumns) {
    f(a, panel + column * 4, panel + piece.ahead_bytes + column * piece.strip_k);
  }
}

}  // namespace
}  // namespace pinion
