// What nobody uses goes first, then the stream that came last, which is read again later.
#include "engine/session/stream_memory.h"

#include <algorithm>
#include <utility>

namespace pinion {
namespace {

// A beginning that is shorter than this is read again: copying the block that it ends in would take longer.
constexpr int64_t kLeastCopied = 16;

void forget_oldest(Scheduler& s) {
  release_blocks(&s.ended.front().cache, 0);
  s.ended.erase(s.ended.begin());
}

// Keeps what the model holds of a text that has ended. Of two texts of which one begins with the other, the longer one
// is enough.
void keep_beginning(Scheduler& s, Sequence& sequence) {
  const auto begins_with_it = [&](const EndedText& old) {
    return old.long_factors == sequence.long_factors &&
           common_prefix(old.ids, sequence.ids) == std::ssize(sequence.ids);
  };
  if (std::ranges::any_of(s.ended, begins_with_it)) return;
  std::erase_if(s.ended, [&](EndedText& old) {
    if (old.long_factors != sequence.long_factors) return false;
    if (common_prefix(old.ids, sequence.ids) < std::ssize(old.ids)) return false;
    release_blocks(&old.cache, 0);
    return true;
  });
  EndedText& text = s.ended.emplace_back(EndedText{sequence.ids, sequence.cache, sequence.long_factors});
  release_blocks(&text.cache, std::ssize(text.ids));
  sequence.cache.blocks.clear();
}

// Moves the ended text's blocks to the stream. Nothing is lost: when the stream ends, its text, which begins with this
// one, is kept.
void take_over(Scheduler& s, int64_t ended, Sequence* sequence) {
  const auto text = s.ended.begin() + ended;
  sequence->ids = std::move(text->ids);
  sequence->cache.blocks.swap(text->cache.blocks);
  s.ended.erase(text);
}

}  // namespace

void empty(Sequence& sequence) {
  release_blocks(&sequence.cache, 0);
  restore(&sequence.snapshots, 0, &sequence.state);
  sequence.ids.clear();
}

void take_back_last(Scheduler& s) {
  std::unique_ptr<Stream> stream = std::move(s.running.back());
  s.running.pop_back();
  empty(stream->sequence);
  s.unused.push_back(std::move(stream->sequence));
  s.waiting.push_front(std::move(stream));
  ++s.preempted;
}

bool make_room(Scheduler& s, const Stream& stream, int64_t positions) {
  const int64_t missing = missing_blocks(stream.sequence.cache, positions);
  while (std::ssize(s.pool.unused) < missing) {
    if (!s.ended.empty()) {
      forget_oldest(s);
    } else if (s.running.back().get() != &stream) {
      take_back_last(s);
    } else {
      return false;
    }
  }
  return true;
}

Donor find_donor(const Scheduler& s, const Stream& stream, bool long_factors) {
  const std::span<const int32_t> wants = std::span(stream.text.history).first(stream.text.history.size() - 1);
  Donor best;
  for (const auto& other : s.running) {
    if (other->sequence.long_factors != long_factors) continue;
    const int64_t tokens = common_prefix(other->sequence.ids, wants);
    if (tokens > best.tokens) best = {&other->sequence.cache, tokens, -1, best.coming};
    best.coming = std::max(best.coming, common_prefix(other->text.history, wants));
  }
  for (size_t i = 0; i < s.ended.size(); ++i) {
    if (s.ended[i].long_factors != long_factors) continue;
    const int64_t tokens = common_prefix(s.ended[i].ids, wants);
    if (tokens > best.tokens) best = {nullptr, tokens, static_cast<int64_t>(i), best.coming};
  }
  return best;
}

void share(Scheduler& s, const Donor& donor, Sequence* sequence, std::span<const int32_t> text) {
  if (donor.ended >= 0 && donor.tokens == std::ssize(s.ended[static_cast<size_t>(donor.ended)].ids)) {
    return take_over(s, donor.ended, sequence);
  }
  const size_t kept = donor.ended < 0 ? 0 : 1;  // the donor, which was used now, becomes the last
  if (kept > 0) std::rotate(s.ended.begin() + donor.ended, s.ended.begin() + donor.ended + 1, s.ended.end());
  const auto whole = static_cast<size_t>(donor.whole_blocks());
  int64_t tokens = donor.whole_blocks() * kAttentionChunk;
  const bool copies = donor.tokens - tokens >= kLeastCopied;
  while (copies && s.pool.unused.empty() && s.ended.size() > kept) forget_oldest(s);

  const KvCache& cache = kept > 0 ? s.ended.back().cache : *donor.cache;
  for (size_t i = 0; i < whole; ++i) {
    ++s.pool.holders[static_cast<size_t>(cache.blocks[i])];
    sequence->cache.blocks.push_back(cache.blocks[i]);
  }
  if (copies && !s.pool.unused.empty()) {
    tokens = donor.tokens;
    take_blocks(&sequence->cache, tokens);
    copy_block(s, s.pool, cache.blocks[whole], sequence->cache.blocks.back());
  }
  sequence->ids.assign(text.begin(), text.begin() + tokens);
}

bool has_room(const Scheduler& s, const Stream& stream, const Donor& donor) {
  int64_t blocks = std::ssize(s.pool.unused);
  for (const EndedText& text : s.ended) {
    for (const int32_t block : text.cache.blocks) blocks += s.pool.holders[static_cast<size_t>(block)] == 1;
  }
  // The donor's own stay where they are.
  if (donor.ended < 0) blocks += donor.whole_blocks();
  return KvShape::chunks_of(wanted(stream)) <= blocks;
}

void leave(Scheduler& s, Stream& stream, bool is_sound) {
  if (is_sound && can_be_cut(s.model->config) && held(stream) > 0) keep_beginning(s, stream.sequence);
  empty(stream.sequence);
  s.unused.push_back(std::move(stream.sequence));
}

}  // namespace pinion
