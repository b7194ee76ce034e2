// Evaluated prompts on disk, so that a later process continues them. The files of one model are the same bytes on every
// kind of machine:
//
//   FOLDER/KEY/CHAIN.block      keys and values of 256 tokens, a block of the cache
//   FOLDER/KEY/CHAIN-TAIL.end   the block after these, of up to 255 tokens, and the recurrent state behind them
//
// KEY hashes the weights and config of the model, the type of the cache and the version of this format. CHAIN hashes
// all tokens up to the end of the block, or before the end's. A file holds the ids of its tokens, which are compared,
// and a checksum. It is complete or absent, and only its owner may read it. A damaged, foreign or missing file costs a
// re-read of tokens.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <stop_token>
#include <thread>

#include "engine/session/pass_runner.h"

namespace pinion {

// A prefix on disk that is not this much longer than the one in memory is not worth loading.
constexpr int64_t kMinLoadedTokens = 64;

struct PromptCacheOptions {
  std::filesystem::path folder;                    // created if it is missing
  int64_t limit_bytes = int64_t{8} << 30;          // of the model's files; the least recently used ones go
  std::function<void(const Error&)> on_failure{};  // a write failed, and no more are tried; called by the writer
};

struct PromptCacheCounts {
  int64_t bytes = 0;          // of the model's files
  int64_t loaded_tokens = 0;  // since the cache was opened
  int64_t stored_files = 0;
  int64_t damaged_files = 0;
};

// The files of one model. Not thread-safe; its own thread writes in the background.
class PromptCache {
 public:
  // Fails if the folder cannot be created, or if the model is divided among several boards. pool, state: their shapes.
  static Error open(const PromptCacheOptions& options, const Model& model, const KvPool& pool,
                    const RecurrentState& state, std::unique_ptr<PromptCache>* out);

  // Length of the longest stored prefix of `text` that load() can give to a sequence; 0: none.
  int64_t find(std::span<const int32_t> text, bool long_factors);

  // Replaces the tokens of a sequence by the first `tokens`, a result of find(). Its pool must have blocks for them.
  // Returns false, with an empty sequence, if a file is damaged or missing; find() no longer returns it then.
  bool load(std::span<const int32_t> text, int64_t tokens, Sequence* sequence);

  // Stores the blocks that the tokens from position `from` to `end` have filled.
  void store_blocks(const Sequence& sequence, int64_t from, int64_t end);
  // Stores the tokens after the last whole block, if they are at least kMinEndTokens or there is a recurrent state,
  // which must be that behind all tokens and hold no drafts.
  void store_end(const Sequence& sequence);

  PromptCacheCounts counts() const { return counts_; }
  void resume(PromptCacheCounts before) { before.bytes = counts_.bytes, counts_ = before; }  // goes on counting

 private:
  static constexpr int64_t kMinEndTokens = 16;

  struct File {
    std::string name;
    int64_t bytes = 0;
    int64_t used = 0;                           // order of last use
    std::optional<std::vector<int32_t>> ids{};  // of an end, once they are read; empty: it is that of a block
  };
  struct Job {
    std::string name;
    int64_t tokens;                   // ids in it
    std::vector<std::byte> contents;  // empty: remove the file
  };
  using Key = std::pair<uint64_t, bool>;  // CHAIN; true: an end
  using Files = std::multimap<Key, File>;

  PromptCache() = default;
  uint64_t chain_of(std::span<const int32_t> ids, bool long_factors) const;
  void list_files();
  bool read(const File& file, std::span<const int32_t> ids, std::span<const std::span<std::byte>> parts);
  bool read_ids(File& file) const;
  void store(Key key, std::string name, std::span<const int32_t> ids,
             std::span<const std::span<const std::byte>> parts);
  void make_room(int64_t bytes);
  void forget(Files::iterator file);
  void put(Job job);
  void write_jobs(const std::stop_token& ends);

  PromptCacheOptions options_;
  std::filesystem::path folder_;  // FOLDER/KEY
  uint64_t key_ = 0;
  int64_t block_bytes_ = 0, state_bytes_ = 0;
  Files files_;
  int64_t uses_ = 0;
  PromptCacheCounts counts_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable_any changed_;
  std::deque<Job> jobs_;
  int64_t queued_bytes_ = 0;
  std::atomic<bool> has_failed_{false};
  std::jthread writer_;  // the last member: its destructor waits for queued files
};

}  // namespace pinion
