// Packed weights on disk: a later start maps them instead of packing again, and processes share the pages.
//
// A file is a text header, padded with zeros to a whole page, then the bytes of pack_all, then a seal: a hash of each
// segment of the weights, a hash of these hashes, and the boot during which the weights were last verified. The header
// lists everything that the bytes depend on. A file is used only if its header is, byte for byte, the expected one, its
// length is right and the seal's hashes are intact; nothing in it is ever interpreted, so nothing in it can mislead.
// Comparing the weights with the seal reads all of them, so cache_check.cpp does that in the background. The weights
// are on the disk before the file gets its name.
#pragma once

#include "loader/checkpoint/checkpoint.h"
#include "loader/files/mapped_file.h"
#include "loader/pack/pack.h"

namespace pinion {

constexpr int64_t kMaxCacheBytes = 64'000'000'000;
constexpr int64_t kSegmentBytes = int64_t{1} << 20;
constexpr int64_t kBootIdBytes = 64;  // at the end of a seal

constexpr int64_t segment_count(int64_t bytes) { return (bytes + kSegmentBytes - 1) / kSegmentBytes; }
constexpr int64_t seal_bytes(int64_t bytes) {
  return (segment_count(bytes) + 1) * static_cast<int64_t>(sizeof(uint64_t)) + kBootIdBytes;
}

// The path of a checkpoint's packed weights and the expected header of that file.
struct PackCache {
  std::filesystem::path path = {};  // FOLDER/HASH.packed, with the hash of the header
  std::string header = {};          // a whole number of pages
  int64_t packed_bytes = 0;

  int64_t file_bytes() const { return std::ssize(header) + packed_bytes + seal_bytes(packed_bytes); }
};

// A shard is identified by its size, its inode, mtime (which tools set back) and ctime (which they cannot), a hash of
// its safetensors header and a hash of samples of its tensors; not by its path, so a folder may move. The samples tell
// fine-tunes apart on file systems that invent inodes and times.
// calibration: a name of the text that the weights were quantised for; empty: none.
PackCache pack_cache_of(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                        std::span<const PackJob> jobs, const std::string& calibration = {});

// The mtime of a file whose weights are verified: any later write changes it. The atime records the last use.
constexpr timespec kVerifiedTime = {.tv_sec = 946'684'800, .tv_nsec = 0};  // the year 2000

// Maps the file and marks it as used now. The error states why the file is missing or not usable.
Error open_pack_cache(const PackCache& cache, MappedFile* out);

// The packed bytes of a file from open_pack_cache, a segment of them (the last may be shorter), and the seal.
std::span<const std::byte> packed_contents(const PackCache& cache, const MappedFile& file);
std::span<const std::byte> segment_at(std::span<const std::byte> bytes, int64_t index);
std::span<const std::byte> seal_in(const PackCache& cache, const MappedFile& file);

// Removes unfinished files of writers that were killed, but not those of running writers.
void remove_unfinished(const std::filesystem::path& folder);

// Writes the file under a temporary name and renames it, so that it is either complete or absent. First removes
// unfinished files, and the least recently used ones until all fit into max_bytes and into half of the space that would
// be free without them. `packed` holds packed_bytes.
Error write_pack_cache(const PackCache& cache, const std::byte* packed, int64_t max_bytes = kMaxCacheBytes);

// --- Packed models: folders that travel. Their model.safetensors has the parts of a cache file: the safetensors header
// is the header, the first tensor holds the packed matrices, others are read as they are, and the last one is the seal.

// The file's metadata: how the model was packed, and the layout of its matrices.
using PackRecord = std::map<std::string, std::string>;

// Names of tensors: packed matrices of the model and of its MTP layer, also for their layouts in the record; the row of
// a reranker that scores by logits.
inline constexpr const char *kPackedPrefix = "pinion.", *kSeal = "pinion.seal", *kPackedScore = "pinion.score";
inline constexpr const char *kPacked = "pinion.packed", *kPackedMtp = "pinion.packed_mtp";

std::string layout_text(std::span<const PackJob> jobs);  // formats, shapes and order of the matrices, one a line
Format format_named(std::string_view name);              // bf16 if there is none

// Reads the record; it is empty for other models and absent ones. The error names another version of the layout.
Error read_pack_record(const std::filesystem::path& folder, PackRecord* out);

// Counts bytes while a file is written. An error ends the writing and is returned.
using WriteProgress = std::function<Error(int64_t done, int64_t total)>;

// tensors: in the file's order, except the seal.
Error write_packed_model(const std::filesystem::path& path, const PackRecord& record, std::vector<TensorView> tensors,
                         const WriteProgress& progress);

// --- The seal.

// XXH3 (Yann Collet), 64 bits: as fast as memory, not secure against attackers.
uint64_t fast_hash(std::span<const std::byte> bytes, uint64_t seed = 0);

// The seal of segments with these hashes. boot: during which they were verified.
std::vector<std::byte> make_seal(std::span<const uint64_t> hashes, std::span<const std::byte> boot);

// True if the hashes match the hash of the hashes.
bool is_intact(std::span<const std::byte> seal);
uint64_t segment_hash(std::span<const std::byte> seal, int64_t index);

// Identifies the current boot of the machine; zeros if the system does not provide it.
std::vector<std::byte> boot_id();

// True if the seal was made or renewed during the current boot.
bool is_of_this_boot(std::span<const std::byte> seal);

// --- cache_check.cpp: damage by a disk or memory, detected with the seal.

// True if a segment differs from its hash.
bool is_segment_damaged(const PackCache& cache, const MappedFile& file, int64_t segment);

// Number of damaged segments. Reads all packed weights, as fast as the workers can.
int64_t damaged_segments(const Workers& workers, const PackCache& cache, const MappedFile& file);

// Removes the file, unless another file has its name by now.
void remove_damaged(const PackCache& cache, const MappedFile& file);

// Renews the seal, so that no further check is needed until the next boot or the next write into the file. No effect if
// the file is read-only or another file has its name by now.
void mark_checked(const PackCache& cache, const MappedFile& file);
bool was_checked(const PackCache& cache, const MappedFile& file);

}  // namespace pinion
