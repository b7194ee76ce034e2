// Block allocation of the scheduler. If blocks run short, cached prefixes are evicted first; then the request that was
// admitted last loses its blocks and is evaluated again later.
#include <algorithm>
#include <utility>

#include "engine/session/scheduler.h"

namespace pinion {
namespace {

// A shared partial block with fewer tokens is not copied: evaluating them again is faster.
constexpr int64_t kMinCopiedTokens = 16;

void evict_oldest(Scheduler& s) {
  release_blocks(&s.prefix_cache.front().cache, 0);
  s.prefix_cache.erase(s.prefix_cache.begin());
}

// Moves the blocks of a finished request to the prefix cache. A text that is the prefix of another one is not cached.
void cache_prefix(Scheduler& s, Sequence& sequence) {
  const auto includes_it = [&](const CachedPrefix& old) {
    return old.long_factors == sequence.long_factors &&
           common_prefix(old.ids, sequence.ids) == std::ssize(sequence.ids);
  };
  if (std::ranges::any_of(s.prefix_cache, includes_it)) return;
  std::erase_if(s.prefix_cache, [&](CachedPrefix& old) {
    if (old.long_factors != sequence.long_factors) return false;
    if (common_prefix(old.ids, sequence.ids) < std::ssize(old.ids)) return false;
    release_blocks(&old.cache, 0);
    return true;
  });
  CachedPrefix& prefix = s.prefix_cache.emplace_back(CachedPrefix{sequence.ids, sequence.cache, sequence.long_factors});
  release_blocks(&prefix.cache, std::ssize(prefix.ids));
  sequence.cache.blocks.clear();
}

// Moves a cached prefix to a sequence. It returns to the cache as part of the request's text when the request ends.
void take_over(Scheduler& s, int64_t cached, Sequence* sequence) {
  const auto prefix = s.prefix_cache.begin() + cached;
  sequence->ids = std::move(prefix->ids);
  sequence->cache.blocks.swap(prefix->cache.blocks);
  s.prefix_cache.erase(prefix);
}

}  // namespace

void clear(Sequence& sequence) {
  release_blocks(&sequence.cache, 0);
  restore_snapshot(&sequence.snapshots, 0, &sequence.state);
  sequence.ids.clear();
}

void preempt_last(Scheduler& s) {
  std::unique_ptr<ScheduledRequest> request = std::move(s.running.back());
  s.running.pop_back();
  clear(request->sequence);
  s.free_sequences.push_back(std::move(request->sequence));
  s.waiting.push_front(std::move(request));
  ++s.preempted;
}

bool free_blocks_for(Scheduler& s, const ScheduledRequest& request, int64_t positions) {
  const int64_t missing = missing_blocks(request.sequence.cache, positions);
  while (std::ssize(s.pool.unused) < missing) {
    if (!s.prefix_cache.empty()) {
      evict_oldest(s);
    } else if (s.running.back().get() != &request) {
      preempt_last(s);
    } else {
      return false;
    }
  }
  return true;
}

PrefixSource find_prefix(const Scheduler& s, const ScheduledRequest& request, bool long_factors) {
  const std::span<const int32_t> text = std::span(request.text.history).first(request.text.history.size() - 1);
  PrefixSource best;
  for (const auto& other : s.running) {
    if (other->sequence.long_factors != long_factors) continue;
    const int64_t tokens = common_prefix(other->sequence.ids, text);
    if (tokens > best.tokens) best = {&other->sequence.cache, tokens, -1, best.pending};
    best.pending = std::max(best.pending, common_prefix(other->text.history, text));
  }
  for (int64_t i = 0; i < std::ssize(s.prefix_cache); ++i) {
    if (s.prefix_cache[i].long_factors != long_factors) continue;
    const int64_t tokens = common_prefix(s.prefix_cache[i].ids, text);
    if (tokens > best.tokens) best = {nullptr, tokens, i, best.pending};
  }
  return best;
}

void share_prefix(Scheduler& s, const PrefixSource& source, Sequence* sequence, std::span<const int32_t> text) {
  const bool is_cached = source.cached >= 0;
  if (is_cached && source.tokens == std::ssize(s.prefix_cache[source.cached].ids)) {
    return take_over(s, source.cached, sequence);
  }
  if (is_cached) {  // becomes the most recently used
    const auto used = s.prefix_cache.begin() + source.cached;
    std::rotate(used, used + 1, s.prefix_cache.end());
  }
  const int64_t whole = source.whole_blocks();
  int64_t tokens = whole * kAttentionChunk;
  const bool copies = source.tokens - tokens >= kMinCopiedTokens;
  const size_t in_use = is_cached ? 1 : 0;
  while (copies && s.pool.unused.empty() && s.prefix_cache.size() > in_use) evict_oldest(s);

  const KvCache& cache = is_cached ? s.prefix_cache.back().cache : *source.cache;
  for (int64_t i = 0; i < whole; ++i) {
    ++s.pool.holders[cache.blocks[i]];
    sequence->cache.blocks.push_back(cache.blocks[i]);
  }
  if (copies && !s.pool.unused.empty()) {
    tokens = source.tokens;
    take_blocks(&sequence->cache, tokens);
    copy_block(s, s.pool, cache.blocks[whole], sequence->cache.blocks.back());
  }
  sequence->ids.assign(text.begin(), text.begin() + tokens);
}

bool has_room(const Scheduler& s, const ScheduledRequest& request, const PrefixSource& source) {
  int64_t blocks = std::ssize(s.pool.unused);
  for (const CachedPrefix& prefix : s.prefix_cache) {
    for (const int32_t block : prefix.cache.blocks) blocks += s.pool.holders[block] == 1;
  }
  if (source.cached < 0) blocks += source.whole_blocks();  // shared with a running request: not taken from the pool
  return KvShape::chunks_of(request.total()) <= blocks;
}

void release(Scheduler& s, ScheduledRequest& request, bool is_sound) {
  if (is_sound && can_truncate(s.model->config) && request.evaluated() > 0) cache_prefix(s, request.sequence);
  clear(request.sequence);
  s.free_sequences.push_back(std::move(request.sequence));
}

}  // namespace pinion
