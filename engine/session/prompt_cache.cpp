#include "engine/session/prompt_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "kernels/base/hash.h"
#include "kernels/base/text.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

// Increase when a change of the engine changes bits of keys, values or states, or their layout.
constexpr uint64_t kPromptFormatVersion = 1;
constexpr std::string_view kBlockSuffix = ".block", kEndSuffix = ".end";
constexpr int64_t kMaxQueuedBytes = int64_t{512} << 20;
constexpr size_t kHashDigits = 16;
constexpr int64_t kSmallTensorBytes = int64_t{4} << 20;

// A file: this header, ids [256] padded with zeros, then keys, values and state.
struct FileHeader {
  char magic[8] = {'p', 'i', 'n', 'i', 'o', 'n', 'P', '1'};
  uint64_t key;
  int64_t tokens;         // ids
  int64_t content_bytes;  // behind the ids
  uint64_t checksum;      // of the ids and the content
};
constexpr int64_t kIdsBytes = kAttentionChunk * sizeof(int32_t);
constexpr int64_t kHeadBytes = sizeof(FileHeader) + kIdsBytes;

uint64_t combine(uint64_t hash, std::span<const std::byte> bytes) { return fast_hash(bytes, hash); }
uint64_t combine(uint64_t hash, int64_t value) { return combine(hash, std::as_bytes(std::span(&value, 1))); }

// Hashes everything that keys and values depend on. The packed matrices are read only if they have no seal.
uint64_t hash_model(const Model& model, const KvShape& kv, const RecurrentState& state) {
  uint64_t hash = kPromptFormatVersion;
  const std::span<const std::byte> packed = model.packed();
  const int64_t segments = segment_count(model.from_cache() ? model.cache.packed_bytes : std::ssize(packed));
  if (model.from_cache()) {
    hash = combine(hash, seal_in(model.cache, model.cached).first(segments * sizeof(uint64_t)));
  } else {
    std::vector<uint64_t> hashes;
    for (int64_t i = 0; i < segments; ++i) hashes.push_back(fast_hash(segment_at(packed, i)));
    hash = combine(hash, std::as_bytes(std::span(hashes)));
  }
  hash = combine(hash, model.embedding.contents());
  if (model.positions.data) hash = combine(hash, model.positions.contents());
  for (const TensorView& tensor : model.checkpoint.tensors) {
    if (tensor.bytes <= kSmallTensorBytes) hash = combine(hash, tensor.contents());
  }
  std::string config;
  if (!read_model_text(model.checkpoint.folder, "config.json", int64_t{1} << 24, &config)) {
    hash = combine(hash, std::as_bytes(std::span(config)));
  }
  const KvLayerShape& first = kv.layers[0];  // the config, whose text is hashed, determines the others
  const int64_t sizes[] = {static_cast<int64_t>(first.type), std::ssize(kv.layers), first.kv_heads, first.head_dim,
                           kAttentionChunk};
  for (const int64_t size : sizes) hash = combine(hash, size);
  return combine(hash, state.bytes());
}

// "0123456789abcdef.block" or "0123456789abcdef-0123456789abcdef.end"; false: another name.
bool parse_name(std::string_view name, uint64_t* chain, bool* is_end) {
  *is_end = name.ends_with(kEndSuffix);
  const size_t digits = *is_end ? 2 * kHashDigits + 1 : kHashDigits;
  if (!*is_end && !name.ends_with(kBlockSuffix)) return false;
  if (name.size() != digits + (*is_end ? kEndSuffix : kBlockSuffix).size()) return false;
  std::from_chars(name.data(), name.data() + kHashDigits, *chain, 16);
  return is_hexadecimal(name.substr(0, kHashDigits), kHashDigits);
}

// Reads the header and the bytes behind it.
bool read_file(const FileDescriptor& file, FileHeader* head, std::span<std::byte> body) {
  return file.is_open() && file.read(std::as_writable_bytes(std::span(head, 1)), 0) && file.read(body, sizeof *head);
}

// body: ids and content.
FileHeader header_of(uint64_t key, int64_t tokens, std::span<const std::byte> body) {
  return {.key = key, .tokens = tokens, .content_bytes = std::ssize(body) - kIdsBytes, .checksum = fast_hash(body)};
}

// Writes a file. contents: ids and content, behind room for the header.
Error write_file(const std::string& path, uint64_t key, int64_t tokens, std::span<std::byte> contents) {
  const FileHeader header = header_of(key, tokens, contents.subspan(sizeof header));
  std::memcpy(contents.data(), &header, sizeof header);
  TemporaryFile file(path, "an evaluated prompt");
  if (!file.file.is_open()) return file.failure(errno);
  if (Error e = file.reserve(std::ssize(contents))) return e;
  if (Error e = file.append(contents)) return e;
  return file.finish({{.tv_sec = 0, .tv_nsec = UTIME_NOW}, {.tv_sec = 0, .tv_nsec = UTIME_NOW}});
}

// The name of an end with these ids, after CHAIN.
std::string end_suffix(std::span<const int32_t> ids) {
  return "-" + hash_text(fast_hash(std::as_bytes(ids), ids.size())) + std::string(kEndSuffix);
}

}  // namespace

Error PromptCache::open(const PromptCacheOptions& options, const Model& model, const KvPool& pool,
                        const RecurrentState& state, std::unique_ptr<PromptCache>* out) {
  const std::string where = options.folder.string();
  if (model.exchange) return error("not possible with several boards", "prompt cache " + where);
  std::unique_ptr<PromptCache> cache(new PromptCache);
  cache->options_ = options;
  cache->key_ = hash_model(model, pool.shape, state);
  cache->block_bytes_ = pool.shape.block_bytes();
  cache->state_bytes_ = state.bytes();
  cache->folder_ = options.folder / hash_text(cache->key_);
  std::error_code code;
  fs::create_directories(cache->folder_, code);
  if (code) return error("cannot make the folder", where, {}, code.message());
  cache->list_files();
  cache->writer_ = std::jthread([writer = cache.get()](const std::stop_token& ends) { writer->write_jobs(ends); });
  *out = std::move(cache);
  return {};
}

void PromptCache::list_files() {
  std::vector<std::pair<fs::file_time_type, Files::iterator>> by_time;
  std::error_code code;
  for (fs::directory_iterator it(folder_, code), end; !code && it != end; it.increment(code)) {
    uint64_t chain = 0;
    bool is_end = false;
    std::error_code missing;
    const std::string name = it->path().filename();
    const auto bytes = static_cast<int64_t>(it->file_size(missing));
    const fs::file_time_type time = it->last_write_time(missing);
    if (const size_t dot = name.rfind('.');
        dot != std::string::npos && parse_name(name.substr(0, dot), &chain, &is_end)) {
      remove_if_abandoned(it->path());
    }
    if (missing || !parse_name(name, &chain, &is_end)) continue;
    by_time.emplace_back(time, files_.emplace(Key(chain, is_end), File{name, bytes}));
    counts_.bytes += bytes;
  }
  std::ranges::sort(by_time, {}, [](const auto& file) { return file.first; });
  for (const auto& [time, file] : by_time) file->second.used = ++uses_;
}

uint64_t PromptCache::chain_of(std::span<const int32_t> ids, bool long_factors) const {
  uint64_t chain = combine(key_, long_factors);
  for (; std::ssize(ids) >= kAttentionChunk; ids = ids.subspan(kAttentionChunk)) {
    chain = combine(chain, std::as_bytes(ids.first(kAttentionChunk)));
  }
  return chain;
}

// Reads the ids of an end, once. False: they are not those of its name.
bool PromptCache::read_ids(File& file) const {
  if (file.ids) return true;
  const FileDescriptor descriptor(::open((folder_ / file.name).c_str(), O_RDONLY | O_CLOEXEC));
  FileHeader header = {};
  std::vector<int32_t> ids(kAttentionChunk);
  if (!read_file(descriptor, &header, std::as_writable_bytes(std::span(ids)))) return false;
  ids.resize(std::clamp<int64_t>(header.tokens, 0, kAttentionChunk));
  if (!std::string_view(file.name).ends_with(end_suffix(ids))) return false;
  file.ids = std::move(ids);
  return true;
}

int64_t PromptCache::find(std::span<const int32_t> text, bool long_factors) {
  uint64_t chain = chain_of({}, long_factors);
  int64_t best = 0;
  for (int64_t held = 0;; held += kAttentionChunk) {
    if (state_bytes_ == 0) best = held;
    const std::span<const int32_t> rest = text.subspan(held);
    auto [at, end] = files_.equal_range({chain, true});
    while (at != end) {
      const auto file = at++;
      if (!read_ids(file->second)) {
        ++counts_.damaged_files;
        forget(file);
        continue;
      }
      const int64_t common = common_prefix(*file->second.ids, rest);
      if (state_bytes_ == 0 || common == std::ssize(*file->second.ids)) best = std::max(best, held + common);
    }
    if (std::ssize(rest) < kAttentionChunk) return best;
    chain = combine(chain, std::as_bytes(rest.first(kAttentionChunk)));
    if (!files_.contains({chain, false})) return best;
  }
}

// Reads a file's content into `parts`, the last maybe shorter in an end without a state. False: another content.
bool PromptCache::read(const File& file, std::span<const int32_t> ids, std::span<const std::span<std::byte>> parts) {
  const FileDescriptor descriptor(::open((folder_ / file.name).c_str(), O_RDONLY | O_CLOEXEC));
  int64_t content_bytes = 0;
  for (const std::span<std::byte> part : parts) content_bytes += std::ssize(part);
  if (file.bytes != kHeadBytes + content_bytes) return false;
  std::vector<std::byte> body(kIdsBytes + content_bytes);
  FileHeader header = {};
  if (!read_file(descriptor, &header, body)) return false;
  std::vector<int32_t> stored(std::clamp<int64_t>(header.tokens, 0, kAttentionChunk));
  std::memcpy(stored.data(), body.data(), stored.size() * sizeof(int32_t));
  const FileHeader expected = header_of(key_, header.tokens, body);
  if (std::memcmp(&header, &expected, sizeof header) != 0) return false;
  if (common_prefix(stored, ids) < std::ssize(ids)) return false;
  const std::byte* from = body.data() + kIdsBytes;
  for (const std::span<std::byte> part : parts) from = std::ranges::copy_n(from, std::ssize(part), part.data()).in;
  futimens(descriptor.number, nullptr);  // used now
  return true;
}

bool PromptCache::load(std::span<const int32_t> text, int64_t tokens, Sequence* sequence) {
  const auto fail = [&](Files::iterator file) {
    ++counts_.damaged_files;
    if (file != files_.end()) forget(file);
    clear(*sequence);
    return false;
  };
  const int64_t whole = tokens / kAttentionChunk;
  release_blocks(&sequence->cache, 0);
  take_blocks(&sequence->cache, tokens);
  const auto memory = [&](int64_t block) {
    return std::span(sequence->cache.pool->block(sequence->cache.blocks[block]), static_cast<size_t>(block_bytes_));
  };
  uint64_t chain = chain_of({}, sequence->long_factors);
  for (int64_t i = 0; i < whole; ++i) {
    const std::span<const int32_t> ids = text.subspan(i * kAttentionChunk, kAttentionChunk);
    chain = combine(chain, std::as_bytes(ids));
    const auto file = files_.find({chain, false});
    const std::span<std::byte> parts[] = {memory(i)};
    if (file == files_.end() || !read(file->second, ids, parts)) return fail(file);
    file->second.used = ++uses_;
  }
  const std::span<const int32_t> rest = text.subspan(whole * kAttentionChunk, tokens % kAttentionChunk);
  if (!rest.empty() || state_bytes_ > 0) {
    const auto [begin, end] = files_.equal_range({chain, true});
    const auto fits = [&](const auto& file) {
      const std::vector<int32_t>& ids = *file.second.ids;
      const int64_t common = common_prefix(ids, rest);
      return common == std::ssize(rest) && (state_bytes_ == 0 || common == std::ssize(ids));
    };
    const auto file = std::find_if(begin, end, fits);
    if (file == end) return fail(files_.end());
    const std::span<std::byte> state(sequence->state.memory.data, state_bytes_);
    std::vector<std::byte> unused;
    if (rest.empty()) unused.resize(block_bytes_);
    const std::span<std::byte> parts[] = {rest.empty() ? std::span(unused) : memory(whole), state};
    if (!read(file->second, rest, parts)) return fail(file);
    file->second.used = ++uses_;
  }
  sequence->ids.assign(text.begin(), text.begin() + tokens);
  sequence->state.drafts.held = 0;
  sequence->snapshots.saved.clear();
  take_snapshot(&sequence->snapshots, sequence->state, tokens);
  counts_.loaded_tokens += tokens;
  return true;
}

void PromptCache::store_blocks(const Sequence& sequence, int64_t from, int64_t end) {
  for (int64_t i = from / kAttentionChunk; i < end / kAttentionChunk; ++i) {
    const std::span<const int32_t> before = std::span(sequence.ids).first((i + 1) * kAttentionChunk);
    const Key key = {chain_of(before, sequence.long_factors), false};
    if (files_.contains(key)) continue;
    const std::span<const std::byte> parts[] = {
        {sequence.cache.pool->block(sequence.cache.blocks[i]), static_cast<size_t>(block_bytes_)}};
    store(key, hash_text(key.first) + std::string(kBlockSuffix), before.last(kAttentionChunk), parts);
  }
}

void PromptCache::store_end(const Sequence& sequence) {
  const int64_t tokens = std::ssize(sequence.ids), whole = tokens / kAttentionChunk;
  const std::span<const int32_t> rest = std::span(sequence.ids).subspan(whole * kAttentionChunk);
  if (tokens == 0 || (state_bytes_ == 0 && std::ssize(rest) < kMinEndTokens)) return;
  const Key key = {chain_of(sequence.ids, sequence.long_factors), true};
  const std::string name = hash_text(key.first) + end_suffix(rest);
  const auto [begin, end] = files_.equal_range(key);
  if (std::any_of(begin, end, [&](const auto& file) { return file.second.name == name; })) return;
  const std::vector<std::byte> zeros(rest.empty() ? block_bytes_ : 0);
  const std::span<const std::byte> block(
      rest.empty() ? zeros.data() : sequence.cache.pool->block(sequence.cache.blocks[whole]),
      static_cast<size_t>(block_bytes_));
  const std::span<const std::byte> parts[] = {block, {sequence.state.memory.data, static_cast<size_t>(state_bytes_)}};
  store(key, name, rest, parts);
}

// Copies the parts, which change later, and lets the writer write them. A full queue drops the file.
void PromptCache::store(Key key, std::string name, std::span<const int32_t> ids,
                        std::span<const std::span<const std::byte>> parts) {
  int64_t bytes = kHeadBytes;
  for (const std::span<const std::byte> part : parts) bytes += std::ssize(part);
  {
    const std::lock_guard lock(mutex_);
    if (has_failed_ || queued_bytes_ + bytes > kMaxQueuedBytes) return;
  }
  if (bytes > options_.limit_bytes) return;
  make_room(bytes);
  std::vector<std::byte> contents(bytes);
  std::ranges::copy(std::as_bytes(ids), contents.data() + sizeof(FileHeader));
  std::byte* to = contents.data() + kHeadBytes;
  for (const std::span<const std::byte> part : parts) to = std::ranges::copy(part, to).out;
  File file = {.name = std::move(name), .bytes = bytes, .used = ++uses_};
  if (key.second) file.ids.emplace(ids.begin(), ids.end());
  counts_.bytes += bytes;
  ++counts_.stored_files;
  put({file.name, std::ssize(ids), std::move(contents)});  // the writer adds the header
  files_.emplace(key, std::move(file));
}

void PromptCache::make_room(int64_t bytes) {
  while (counts_.bytes + bytes > options_.limit_bytes && !files_.empty()) {
    forget(std::ranges::min_element(files_, {}, [](const auto& file) { return file.second.used; }));
  }
}

void PromptCache::forget(Files::iterator file) {
  counts_.bytes -= file->second.bytes;
  put({std::move(file->second.name), 0, {}});
  files_.erase(file);
}

void PromptCache::put(Job job) {
  {
    const std::lock_guard lock(mutex_);
    queued_bytes_ += std::ssize(job.contents);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

// The writer's thread.
void PromptCache::write_jobs(const std::stop_token& ends) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!changed_.wait(lock, ends, [&] { return !jobs_.empty(); })) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    queued_bytes_ -= std::ssize(job.contents);
    lock.unlock();
    const std::string path = folder_ / job.name;
    if (job.contents.empty()) {
      unlink(path.c_str());
    } else if (!has_failed_) {
      if (const Error e = write_file(path, key_, job.tokens, job.contents)) {
        has_failed_ = true;
        if (options_.on_failure) options_.on_failure(e);
      }
    }
    lock.lock();
  }
}

}  // namespace pinion
