// Memory of the scheduler's requests: cached prefixes are evicted first, then the last admitted request is preempted.

#include "engine/session/scheduler.h"

namespace pinion {
namespace {

// Returns false if all cached prefixes are pinned, or used: the last `in_use` are.
bool evict_oldest(Scheduler& s, size_t in_use = 0) {
  const auto end = s.prefix_cache.end() - in_use;
  const auto oldest = std::find_if(s.prefix_cache.begin(), end, [](const auto& prefix) { return !prefix.is_pinned; });
  if (oldest == end) return false;
  release_blocks(&oldest->cache, 0);
  s.prefix_cache.erase(oldest);
  return true;
}

bool has_recurrent_state(const Scheduler& s) { return recurrent_layers(s.model->config) > 0; }

// A shared partial block with fewer tokens is not copied: evaluating them again is faster. A recurrent state needs all.
int64_t min_copied_tokens(const Scheduler& s) { return has_recurrent_state(s) ? 1 : 16; }

// Number of the first tokens whose bits are the same in a text with another length.
int64_t shareable_tokens(const ModelConfig& c, const ScheduledRequest& request, int64_t tokens) {
  const int64_t fixed = fixed_rope_positions(c);
  return request.text.sampler.prompt_tokens <= fixed ? std::min(tokens, fixed) : 0;
}

// The blocks that are not pinned must hold a whole context.
bool can_pin(const Scheduler& s, int64_t tokens) {
  int64_t pinned = KvShape::chunks_of(tokens);
  for (const CachedPrefix& prefix : s.prefix_cache) pinned += prefix.is_pinned ? std::ssize(prefix.cache.blocks) : 0;
  return s.pool.blocks() - pinned >= KvShape::chunks_of(s.options.context);
}

// Takes a snapshot of a finished request, unless the sequence keeps its state, and writes tokens before `end` to the
// prompt cache.
void keep_end(Scheduler& s, Sequence& sequence, int64_t end) {
  apply_drafts(*s.kernels, s.model->layers, std::ssize(sequence.ids), &sequence.state);
  const bool is_whole = end == std::ssize(sequence.ids);
  if (is_whole && !s.options.keeps_last_text) take_snapshot(&sequence.snapshots, sequence.state, end);
  if (!s.prompt_cache) return;
  s.prompt_cache->store_blocks(sequence, 0, end);
  if (is_whole) s.prompt_cache->store_end(sequence);
}

// Moves a finished request's blocks and snapshots before `end` to the prefix cache; of a known prefix only snapshots.
void cache_prefix(Scheduler& s, Sequence& sequence, int64_t end, bool is_pinned) {
  sequence.ids.resize(end);
  if (end == 0 || (has_recurrent_state(s) && latest_snapshot(sequence.snapshots, end) == 0)) return;
  for (CachedPrefix& old : s.prefix_cache) {
    if (old.long_factors != sequence.long_factors || common_prefix(old.ids, sequence.ids) < end) continue;
    if (is_pinned && !old.is_pinned) continue;
    return share_snapshots(sequence.snapshots, end, &old.snapshots);
  }
  std::erase_if(s.prefix_cache, [&](CachedPrefix& old) {
    if (old.long_factors != sequence.long_factors || old.is_pinned) return false;
    if (common_prefix(old.ids, sequence.ids) < std::ssize(old.ids)) return false;
    share_snapshots(old.snapshots, std::ssize(old.ids), &sequence.snapshots);
    release_blocks(&old.cache, 0);
    return true;
  });
  CachedPrefix& prefix = s.prefix_cache.emplace_back(
      CachedPrefix{sequence.ids, sequence.cache, sequence.snapshots, sequence.long_factors, is_pinned});
  for (const auto& snapshot : prefix.snapshots.saved) snapshot->is_pinned |= is_pinned;
  release_blocks(&prefix.cache, end);
  sequence.cache.blocks.clear();
}

// Moves a cached prefix to a sequence. It returns to the cache as part of the request's text when the request ends.
void take_over(Scheduler& s, int64_t cached, Sequence* sequence) {
  const auto prefix = s.prefix_cache.begin() + cached;
  sequence->ids = std::move(prefix->ids);
  sequence->cache.blocks.swap(prefix->cache.blocks);
  sequence->snapshots.saved.swap(prefix->snapshots.saved);
  s.prefix_cache.erase(prefix);
}

// Gives the sequence the first `tokens` tokens of `text`: shares whole blocks of `cache` and copies the last, partial
// one if it pays. Recurrent layers need all tokens or none: without a block for the copy they get none.
void share_blocks(Scheduler& s, const KvCache& cache, int64_t tokens, std::span<const int32_t> text,
                  Sequence* sequence) {
  const int64_t whole = tokens / kAttentionChunk, partial = tokens % kAttentionChunk;
  const bool needs_all = has_recurrent_state(s);
  const bool copies = partial >= min_copied_tokens(s) && !s.pool.unused.empty();
  if (needs_all && partial > 0 && !copies) return;
  for (int64_t i = 0; i < whole; ++i) {
    ++s.pool.holders[cache.blocks[i]];
    sequence->cache.blocks.push_back(cache.blocks[i]);
  }
  if (copies) {
    take_blocks(&sequence->cache, tokens);
    copy_block(s, s.pool, cache.blocks[whole], sequence->cache.blocks.back());
  }
  const auto end = text.begin() + (copies ? tokens : whole * kAttentionChunk);
  sequence->ids.assign(text.begin(), end);
}

// The longest prefix of a text that a running request or prefix_cache has, with recurrent layers up to a snapshot.
struct PrefixSource {
  static constexpr int64_t kRunning = -1;  // a running request
  static constexpr int64_t kOwn = -2;      // the sequence that the request will have: see keeps_last_text

  const KvCache* cache = nullptr;        // null: no prefix
  const Snapshots* snapshots = nullptr;  // of the same text
  int64_t tokens = 0;                    // length of the prefix; 0: none
  int64_t cached = kRunning;             // index in prefix_cache, kRunning or kOwn
  int64_t common = 0;                    // longest common prefix with any text, with or without a snapshot
  int64_t pending = 0;                   // longest prefix that a running request has evaluated or will evaluate
  ScheduledRequest* pending_request = nullptr;
};

// A prefix never includes the text's last token, which gives the logits. own: the sequence that the request gets.
PrefixSource find_prefix(const Scheduler& s, const ScheduledRequest& request, const Sequence& own) {
  const ModelConfig& c = s.model->config;
  const int64_t shareable = shareable_tokens(c, request, request.total() - 1);
  const std::span<const int32_t> text = std::span(request.text.history).first(shareable);
  PrefixSource best;
  const auto offer = [&](std::span<const int32_t> ids, const KvCache& cache, const Snapshots& snapshots, int64_t at) {
    const int64_t common = common_prefix(ids, text);
    const int64_t tokens = has_recurrent_state(s) ? latest_snapshot(snapshots, common) : common;
    best.common = std::max(best.common, common);
    if (tokens > best.tokens) best.cache = &cache, best.snapshots = &snapshots, best.tokens = tokens, best.cached = at;
  };
  offer(own.ids, own.cache, own.snapshots, PrefixSource::kOwn);
  if (best.common > 0 && best.common == std::ssize(own.ids)) best.tokens = best.common, best.cached = best.kOwn;
  for (const auto& other : s.running) {
    if (other->sequence.long_factors != own.long_factors) continue;
    const std::span<const int32_t> history = other->text.history;
    const int64_t evaluated = other->evaluated();
    offer(history.first(shareable_tokens(c, *other, evaluated)), other->sequence.cache, other->sequence.snapshots,
          PrefixSource::kRunning);
    const int64_t pending = common_prefix(history.first(shareable_tokens(c, *other, other->total())), text);
    if (pending <= best.pending) continue;
    const bool can_follow = pending > evaluated && can_take_snapshot(other->sequence.snapshots, other->sequence.state);
    if (has_recurrent_state(s) && !can_follow) continue;
    best.pending = pending, best.pending_request = other.get();
  }
  for (int64_t i = 0; i < std::ssize(s.prefix_cache); ++i) {
    const CachedPrefix& prefix = s.prefix_cache[i];
    if (prefix.long_factors == own.long_factors) offer(prefix.ids, prefix.cache, prefix.snapshots, i);
  }
  return best;
}

// Gives `sequence` the blocks and the recurrent state of a prefix, and drops its own tokens if it is another one's.
// Takes over a cached prefix if `text` begins with all of it. Otherwise shares whole blocks and copies the last,
// partial block, for which other cached prefixes may be evicted.
void share_prefix(Scheduler& s, const PrefixSource& source, Sequence* sequence, std::span<const int32_t> text) {
  if (source.cached == PrefixSource::kOwn) {
    rewind(*sequence, source.tokens);
    return;
  }
  if (!sequence->ids.empty()) clear(*sequence);
  if (source.tokens == 0) return;
  const bool is_cached = source.cached >= 0;
  if (is_cached && !s.prefix_cache[source.cached].is_pinned &&
      source.tokens == std::ssize(s.prefix_cache[source.cached].ids)) {
    take_over(s, source.cached, sequence);
  } else {
    KvCache cache = *source.cache;  // the entries of prefix_cache move below
    share_snapshots(*source.snapshots, source.tokens, &sequence->snapshots);
    if (is_cached) {  // becomes the most recently used
      const auto used = s.prefix_cache.begin() + source.cached;
      std::rotate(used, used + 1, s.prefix_cache.end());
    }
    const bool copies = source.tokens % kAttentionChunk >= min_copied_tokens(s);
    while (copies && s.pool.unused.empty() && evict_oldest(s, is_cached ? 1 : 0)) {
    }
    share_blocks(s, cache, source.tokens, text, sequence);
  }
  restore_snapshot(&sequence->snapshots, std::ssize(sequence->ids), &sequence->state);
}

// Gives `sequence` a prefix of the prompt cache longer than `tokens`, the longest in memory. May evict prefixes.
bool load_prefix(Scheduler& s, const ScheduledRequest& request, int64_t tokens, Sequence* sequence) {
  if (request.needs_all_rows()) return false;
  const int64_t shareable = shareable_tokens(s.model->config, request, request.total() - 1);
  const std::span<const int32_t> text = std::span(request.text.history).first(shareable);
  for (;;) {
    const int64_t stored = s.prompt_cache->find(text, sequence->long_factors);
    if (stored < tokens + kMinLoadedTokens) return false;
    const int64_t blocks = missing_blocks(sequence->cache, stored);
    while (std::ssize(s.pool.unused) < blocks && evict_oldest(s)) {
    }
    if (std::ssize(s.pool.unused) < blocks) return false;
    if (s.prompt_cache->load(text, stored, sequence)) return true;
  }
}

// True if the blocks for the request's present text can be taken without preemption.
bool has_room(const Scheduler& s, const ScheduledRequest& request, const PrefixSource& source) {
  int64_t blocks = std::ssize(s.pool.unused);
  for (const CachedPrefix& prefix : s.prefix_cache) {
    for (const int32_t block : prefix.cache.blocks) blocks += !prefix.is_pinned && s.pool.holders[block] == 1;
  }
  if (source.cached < 0)
    blocks += source.tokens / kAttentionChunk;  // shared with a running request: not taken from the pool
  return KvShape::chunks_of(request.total()) <= blocks;
}

// Chooses the snapshots of a request's prompt: at the end of its first message, which often is a system message with
// tools that other texts share; at `common`, where it departs from an earlier text, since later texts may do so, too;
// and before the opening of the answer, since templates may render that turn in another way later.
void plan_snapshots(const Scheduler& s, ScheduledRequest& request, int64_t common) {
  std::vector<int64_t>& positions = request.snapshot_positions;
  positions.clear();
  if (!can_take_snapshot(request.sequence.snapshots, request.sequence.state)) return;
  const std::vector<int32_t>& text = request.text.history;
  const auto ends_message = [&](int32_t id) { return std::ranges::binary_search(s.model->eos_ids, id); };
  const int64_t total = request.total();
  const int64_t named = request.spec.first_message_tokens;
  const int64_t first_end = named > 0 ? named : std::ranges::find_if(text, ends_message) - text.begin() + 1;
  int64_t opening = total - kAnswerOpening;
  for (int64_t i = total - 1; i > std::max<int64_t>(0, total - kAnswerOpening); --i) {
    if (!ends_message(text[i - 1])) continue;
    opening = i;
    break;
  }
  int64_t last = latest_snapshot(request.sequence.snapshots, request.evaluated());
  int64_t candidates[] = {first_end, common, opening};
  std::ranges::sort(candidates);
  for (const int64_t position : candidates) {
    if (position <= request.evaluated() || position >= total) continue;
    if (position < last + kAnswerOpening && position != opening) continue;
    positions.push_back(position);
    last = position;
  }
  // The next turn may depart from this text anywhere behind the tokens that a session already holds.
  if (positions.empty()) take_snapshot(&request.sequence.snapshots, request.sequence.state, request.evaluated());
}

// Reserves memory for all tokens, so that no pass allocates. Not for waiting requests: thousands may wait.
void reserve_tokens(Scheduler& s, ScheduledRequest& request) {
  const int64_t room = s.options.context + 1 - request.total();
  const int64_t count = std::clamp<int64_t>(request.spec.options.max_tokens, 0, room);
  request.text.history.reserve(request.text.history.size() + count);
  request.text.result.ids.reserve(count);
  if (request.spec.options.logprobs) request.text.result.logprobs.reserve(count);
}

enum class Admission : uint8_t { admitted, deferred, no_room };

// Admits a request if its text has room. Defers it while a running request evaluates a common prefix.
Admission admit(Scheduler& s, std::unique_ptr<ScheduledRequest>& request) {
  const ModelConfig& c = s.model->config;
  Sequence& sequence = s.free_sequences.back();
  const bool long_factors = uses_long_factors(c, request->total());
  if (sequence.long_factors != long_factors && !sequence.ids.empty()) clear(sequence);
  sequence.long_factors = long_factors;
  sequence.ropes = rope_frequencies(c, request->total());
  const auto find = [&] { return request->needs_all_rows() ? PrefixSource{} : find_prefix(s, *request, sequence); };
  PrefixSource source = find();
  int64_t loaded = 0;
  if (source.pending >= source.tokens + kAttentionChunk) {
    // The running request takes a snapshot where this one departs from it.
    std::vector<int64_t>& positions = source.pending_request->snapshot_positions;
    const auto at = std::ranges::lower_bound(positions, source.pending);
    if (at == positions.end() || *at != source.pending) positions.insert(at, source.pending);
    return Admission::deferred;
  }
  if (!s.running.empty() && !has_room(s, *request, source)) return Admission::no_room;
  if (s.prompt_cache && load_prefix(s, *request, source.tokens, &sequence)) {
    loaded = std::ssize(sequence.ids);
  } else {
    if (s.prompt_cache) source = find();
    share_prefix(s, source, &sequence, request->text.history);
  }
  request->sequence = std::move(sequence);
  s.free_sequences.pop_back();
  plan_snapshots(s, *request, source.common);
  if (request->text.result.ids.empty()) {
    reserve_tokens(s, *request);
    request->text.result.reused_tokens = request->evaluated();
    request->text.result.loaded_tokens = loaded;
    request->text.result.prefilled_tokens = request->total() - request->evaluated();
  }
  take_drafts(s, *request);
  s.running.push_back(std::move(request));
  return Admission::admitted;
}

}  // namespace

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
    if (evict_oldest(s)) continue;
    if (s.running.back().get() == &request) return false;
    preempt_last(s);
  }
  return true;
}

void keep_evaluated(Scheduler& s, ScheduledRequest& request, int64_t from) {
  const bool is_due = std::ranges::binary_search(request.snapshot_positions, request.evaluated());
  if (is_due) take_snapshot(&request.sequence.snapshots, request.sequence.state, request.evaluated());
  if (!s.prompt_cache || request.spec.on_hidden) return;
  const int64_t end = shareable_tokens(s.model->config, request, request.evaluated());
  s.prompt_cache->store_blocks(request.sequence, from, end);
  const bool ends_prompt = request.evaluated() == request.text.sampler.prompt_tokens && !has_recurrent_state(s);
  if (end == request.evaluated() && (is_due || ends_prompt)) s.prompt_cache->store_end(request.sequence);
}

void release(Scheduler& s, ScheduledRequest& request, bool is_sound) {
  const int64_t shareable = shareable_tokens(s.model->config, request, request.evaluated());
  is_sound &= !request.spec.on_hidden;  // keeping them would fault in new pages for each
  if (is_sound) keep_end(s, request.sequence, shareable);
  if (!is_sound || !s.options.keeps_last_text) {
    if (is_sound) cache_prefix(s, request.sequence, shareable, request.spec.is_pinned && can_pin(s, shareable));
    clear(request.sequence);
  }
  s.free_sequences.push_back(std::move(request.sequence));
  drop_drafts(s, request);
}

void take_drafts(Scheduler& s, ScheduledRequest& request) {
  const bool speculates = request.spec.speculates;
  const bool may_draft = (speculates || request.text.rules) && !frequencies_follow_length(s.model->config);
  if (!may_draft || allocate_state_drafts(kMaxDrafts, &request.sequence.state)) return drop_drafts(s, request);
  if (request.drafts) return;
  auto found = std::ranges::find_if(s.free_drafts, [](const auto& drafts) { return !drafts->model; });
  for (auto at = s.free_drafts.begin(); at != s.free_drafts.end() && speculates; ++at) {
    if ((*at)->model && !(*at)->failure) found = at;  // the last one: it has read the latest text
  }
  if (found == s.free_drafts.end()) {
    request.drafts = std::make_unique<Speculation>();
  } else {
    request.drafts = std::move(*found);
    s.free_drafts.erase(found);
  }
  SuffixAutomaton& text = request.drafts->text;
  if (!speculates || common_prefix(text.text, request.text.history) < std::ssize(text.text)) text = {};
  request.drafts->jump_forward.clear();
  request.drafts->tokens.reserve(kMaxDrafts + 1);
  request.drafts->buckets.reserve(kMaxDrafts);
}

void drop_drafts(Scheduler& s, ScheduledRequest& request) {
  if (!request.drafts) return;
  const auto at = request.drafts->model ? s.free_drafts.end() : s.free_drafts.begin();
  s.free_drafts.insert(at, std::move(request.drafts));
}

void admit_waiting(Scheduler& s) {
  for (auto at = s.waiting.begin(); at != s.waiting.end() && !s.free_sequences.empty();) {
    const Admission admission = admit(s, *at);
    if (admission == Admission::no_room) return;
    at = admission == Admission::admitted ? s.waiting.erase(at) : at + 1;
  }
}

}  // namespace pinion
