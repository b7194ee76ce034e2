#include "loader/pack/pack_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <bit>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "kernels/base/hash.h"
#include "kernels/base/text.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/gguf/gguf.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "pinion packed weights\n";
// Increase with every change of the layouts in kernels/layout.h or of pack_all's rules that the header does not show,
// so that old files no longer match.
constexpr int kVersion = 4;
constexpr size_t kPageBytes = 4096;
constexpr std::string_view kCacheSuffix = ".packed";
constexpr size_t kHashDigits = 16;
// The record begins the header, so that other models are told apart without parsing theirs.
constexpr const char* kVersionEntry = "pinion_pack";
constexpr std::string_view kRecordStart = R"({"__metadata__":{"pinion_pack":)";

// Pages spread evenly over the file, including its first and last bytes. Few, since a cold disk seeks for each.
uint64_t hash_samples(std::span<const std::byte> file) {
  constexpr size_t kSamples = 64, kSampleBytes = 4096;
  const size_t bytes = std::min(kSampleBytes, file.size());
  uint64_t hash = fast_hash(file.last(bytes));
  for (size_t i = 0; i + 1 < kSamples; i++) {
    hash = fast_hash(file.subspan((file.size() - bytes) / (kSamples - 1) * i, bytes), hash);
  }
  return hash;
}

std::string order_text(const RowOrder& order) {
  std::string text;
  for (const RowOrder& section : order.sections) text += order_text(section);
  if (order.is_identity() || !text.empty()) return text;
  text = ", heads of " + std::to_string(order.head_rows) + " with " + std::to_string(order.pairs) + " pairs parted";
  if (order.tail_rows > 0) text += ", the last " + std::to_string(order.tail_rows) + " first";
  if (!order.selects_rows()) return text;
  if (order.run > 1) text += ", in runs of " + std::to_string(order.run);
  return text + ", from row " + std::to_string(order.first + order.skipped * order.step) + " on every " +
         std::to_string(order.step);
}

// "w8 [1024, 3072], rotated in 1024"
std::string layout_text(const PackJob& job) {
  const int64_t sizes[] = {job.rows(), job.source.shape[1]};
  return std::string(traits_of(job.format).name) + " " + shape_text(sizes) + order_text(job.order) +
         (traits_of(job.format).has_zero_points ? ", zeros in eighths" : "") +
         (job.interleaved > 1 ? ", interleaved by " + std::to_string(job.interleaved) : "") +
         (job.rotation > 1 ? ", rotated in " + std::to_string(job.rotation) : "") + "\n";
}

std::string layout_version() {
  return "version " + std::to_string(kVersion) +
         (std::endian::native == std::endian::little ? ", little-endian" : ", big-endian") + ", panels of " +
         std::to_string(kPanelColumns) + ", k in " + std::to_string(kGroupK);
}

// All before the tensors of a GGUF file; the length field and the JSON of others, which were parsed before.
std::span<const std::byte> header_of(const Checkpoint& checkpoint, std::span<const std::byte> file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  if (std::memcmp(&length, kGgufMagic.data(), kGgufMagic.size()) != 0) return file.first(sizeof length + length);
  size_t bytes = file.size();
  for (const TensorView& tensor : checkpoint.tensors) {
    const bool is_inside = tensor.data >= file.data() && tensor.data < file.data() + file.size();
    if (is_inside) bytes = std::min(bytes, static_cast<size_t>(tensor.data - file.data()));
  }
  return file.first(bytes);
}

std::string header_text(const Checkpoint& checkpoint, std::span<const PackJob> jobs, const std::string& calibration) {
  std::string text = std::string(kMagic) + layout_version() + "\nbytes " + std::to_string(packed_bytes(jobs)) + "\n";
  for (const MappedFile& file : checkpoint.files) {
    const std::span<const std::byte> contents = file.contents();
    text += "from bytes " + std::to_string(contents.size()) + ", inode " + std::to_string(file.inode) + ", changed " +
            std::to_string(file.mtime_ns) + " and " + std::to_string(file.ctime_ns) + ", header " +
            hash_text(hash_bytes(header_of(checkpoint, contents))) + ", samples " + hash_text(hash_samples(contents)) +
            "\n";
    release_pages(contents);  // each sample maps up to a huge page
  }
  for (const std::string& tensor : checkpoint.overlaid) text += "overlaid " + tensor + "\n";
  if (!calibration.empty()) text += "calibrated by " + calibration + "\n";
  int64_t offset = 0;
  for (const PackJob& job : jobs) {
    for (const LowRankUpdate& update : job.updates) {
      text += "plus " + formatted("%.9g ", static_cast<double>(update.scale)) + update.b.name + "\n";
    }
    text += "at " + std::to_string(offset) + " " + job.source.name + (job.scale.data ? " * " + job.scale.name : "") +
            (job.reader.read ? ", " + job.reader.stored_as : "") + ": " + layout_text(job);
    offset += packed_bytes({&job, 1});
  }
  return text;
}

// "0123456789abcdef.packed"
bool is_cache_name(std::string_view name) {
  return name.ends_with(kCacheSuffix) && is_hexadecimal(name.substr(0, name.size() - kCacheSuffix.size()), kHashDigits);
}

// "0123456789abcdef.packed.a1B2c3"
bool is_temporary_name(std::string_view name) {
  const size_t end = std::min(name.rfind('.'), name.size());
  return name.size() - end == kTemporarySuffix.size() && is_cache_name(name.substr(0, end));
}

struct CacheFile {
  fs::path path;
  int64_t bytes, used_seconds;  // since 1970
};

// The finished or unfinished files of a folder, which begin with kMagic. An unfinished one may be empty: a writer may
// die before it writes the header.
std::vector<CacheFile> cache_files(const fs::path& folder, bool unfinished) {
  std::vector<CacheFile> files;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().native();
    if (!(unfinished ? is_temporary_name(name) : is_cache_name(name))) continue;
    const FileDescriptor file(open(it->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat status = {};
    if (!file.is_open() || fstat(file.number, &status) != 0 || !S_ISREG(status.st_mode)) continue;
    std::string first(kMagic.size(), '\0');
    const bool has_magic = file.read(std::as_writable_bytes(std::span(first)), 0) && first == kMagic;
    const bool is_cache = has_magic || (unfinished && status.st_size == 0);
    if (is_cache) files.push_back({it->path(), status.st_size, std::max(status.st_atime, status.st_mtime)});
  }
  return files;
}

Error make_room(const PackCache& cache, int64_t max_bytes) {
  const fs::path folder = cache.path.parent_path();
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) return error("cannot make the folder", folder.string(), {}, code.message());
  remove_unfinished(folder);
  std::vector<CacheFile> files = cache_files(folder, false);
  std::erase_if(files, [&](const CacheFile& file) { return file.path == cache.path; });
  int64_t used_bytes = 0;
  for (const CacheFile& file : files) used_bytes += file.bytes;
  std::ranges::sort(files, {}, &CacheFile::used_seconds);  // the least recently used first
  const fs::space_info space = fs::space(folder, code);
  if (code) return error("cannot read the free space", folder.string(), {}, code.message());
  const auto free_bytes = static_cast<int64_t>(std::min<uintmax_t>(space.available, INT64_MAX / 2));
  const int64_t limit = std::min(max_bytes, (free_bytes + used_bytes) / 2);
  if (cache.file_bytes() > limit) {
    return error("no room for packed weights", folder.string(), at_most(limit) + " bytes", cache.file_bytes());
  }
  for (const CacheFile& file : files) {
    if (used_bytes + cache.file_bytes() <= limit) break;
    if (unlink(file.path.c_str()) == 0) used_bytes -= file.bytes;
  }
  return {};
}

void pad_to_pages(std::string* header, char padding) {
  header->resize((header->size() + kPageBytes - 1) / kPageBytes * kPageBytes, padding);
}

// Writes the file with these parts of its packed bytes. boot: see make_seal().
Error write_sealed(const PackCache& cache, std::span<const std::span<const std::byte>> parts,
                   std::span<const std::byte> boot, const WriteProgress& progress = {}) {
  // Large writes: the page cache then uses large folios, which a later start maps in half the time.
  constexpr size_t kWriteBytes = size_t{1} << 26;
  TemporaryFile file(cache.path.string(), "packed weights");
  if (!file.file.is_open()) return file.failure(errno);
  // The header comes first, so that the file of a killed process is recognised.
  if (Error e = file.append(std::as_bytes(std::span(cache.header)))) return e;
  if (Error e = file.reserve(cache.file_bytes())) return e;
  for (std::span<const std::byte> part : parts) {
    for (; !part.empty(); part = part.subspan(std::min(part.size(), kWriteBytes))) {
      if (Error e = file.append(part.first(std::min(part.size(), kWriteBytes)))) return e;
      if (Error e = progress ? progress(file.written, cache.file_bytes()) : Error{}) return e;
    }
  }
  MappedFile written;  // segments cross the borders of parts
  std::span<const std::byte> contents = parts[0];
  if (parts.size() > 1) {
    if (Error e = map_file(file.path, &written)) return e;
    contents = written.contents().subspan(cache.header.size(), cache.packed_bytes);
  }
  std::vector<uint64_t> hashes;
  for (int64_t i = 0; i < segment_count(cache.packed_bytes); i++) hashes.push_back(fast_hash(segment_at(contents, i)));
  if (Error e = file.append(make_seal(hashes, boot))) return e;
  return file.finish({{.tv_sec = 0, .tv_nsec = UTIME_NOW}, kVerifiedTime});
}

}  // namespace

PackCache pack_cache_of(const fs::path& folder, const Checkpoint& checkpoint, std::span<const PackJob> jobs,
                        const std::string& calibration) {
  PackCache cache;
  cache.header = header_text(checkpoint, jobs, calibration);
  cache.path = folder / (hash_text(hash_bytes(std::as_bytes(std::span(cache.header)))) + std::string(kCacheSuffix));
  pad_to_pages(&cache.header, '\0');
  cache.packed_bytes = packed_bytes(jobs);
  return cache;
}

Error open_pack_cache(const PackCache& cache, MappedFile* out) {
  MappedFile file;
  if (Error e = map_file(cache.path, &file)) return e;
  const std::span<const std::byte> contents = file.contents();
  if (std::ssize(contents) != cache.file_bytes()) {
    return error("not these weights: length differs", cache.path.string(), cache.file_bytes(), contents.size());
  }
  if (std::memcmp(contents.data(), cache.header.data(), cache.header.size()) != 0) {
    return error("not these weights: header differs", cache.path.string());
  }
  if (!is_intact(seal_in(cache, file))) return error("not these weights: damaged hashes", cache.path.string());
  constexpr timespec kUsed[] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW}, {.tv_sec = 0, .tv_nsec = UTIME_OMIT}};
  utimensat(AT_FDCWD, cache.path.c_str(), kUsed, 0);  // fails in a read-only folder, without harm
  *out = std::move(file);
  return {};
}

std::span<const std::byte> packed_contents(const PackCache& cache, const MappedFile& file) {
  return file.contents().subspan(cache.header.size(), cache.packed_bytes);
}

std::span<const std::byte> segment_at(std::span<const std::byte> bytes, int64_t index) {
  const int64_t first = index * kSegmentBytes;
  return bytes.subspan(first, std::min(kSegmentBytes, std::ssize(bytes) - first));
}

std::span<const std::byte> seal_in(const PackCache& cache, const MappedFile& file) {
  return file.contents().last(seal_bytes(cache.packed_bytes));
}

void remove_unfinished(const fs::path& folder) {
  for (const CacheFile& file : cache_files(folder, true)) remove_if_abandoned(file.path);
}

Error write_pack_cache(const PackCache& cache, const std::byte* packed, int64_t max_bytes) {
  if (Error e = make_room(cache, max_bytes)) return e;
  const std::span<const std::byte> contents(packed, cache.packed_bytes);
  return write_sealed(cache, {&contents, 1}, boot_id());
}

std::string layout_text(std::span<const PackJob> jobs) {
  std::string text;
  for (const PackJob& job : jobs) text += layout_text(job);
  return text;
}

Format format_named(std::string_view name) {
  const auto row = std::ranges::find_if(kFormats, [&](const FormatTraits& traits) { return name == traits.name; });
  return row == std::end(kFormats) ? Format::bf16 : static_cast<Format>(row - std::begin(kFormats));
}

Error read_pack_record(const fs::path& folder, PackRecord* out) {
  MappedFile file;
  const std::string path = (folder / kSingleFile).string();
  if (map_file(path, &file)) return {};  // opening the checkpoint reports it
  const auto contents = file.contents();
  const std::string_view text(reinterpret_cast<const char*>(contents.data()), contents.size());
  if (!text.substr(std::min(text.size(), sizeof(uint64_t))).starts_with(kRecordStart)) return {};
  Safetensors parsed;
  if (Error e = parse_safetensors(contents, path, &parsed)) return e;
  const std::string version = parsed.metadata[kVersionEntry];
  if (version != layout_version()) {
    return error("packed by " + parsed.metadata["made_by"] + " in another layout; pack its source again", path,
                 layout_version(), version);
  }
  *out = std::move(parsed.metadata);
  return {};
}

Error write_packed_model(const fs::path& path, const PackRecord& record, std::vector<TensorView> tensors,
                         const WriteProgress& progress) {
  PackCache file = {.path = path};
  for (const TensorView& tensor : tensors) file.packed_bytes += tensor.bytes;
  const int64_t own_bytes = seal_bytes(file.packed_bytes);
  tensors.push_back({kSeal, DType::u8, {own_bytes}, nullptr, own_bytes});
  nlohmann::ordered_json json = {{"__metadata__", {{kVersionEntry, layout_version()}}}};
  json["__metadata__"].update(record);
  std::vector<std::span<const std::byte>> parts;
  for (int64_t at = 0; const TensorView& tensor : tensors) {
    const std::vector<int64_t> offsets = {at, at + tensor.bytes};
    json[tensor.name] = {{"dtype", dtype_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", offsets}};
    at += tensor.bytes;
    if (tensor.data) parts.push_back(tensor.contents());
  }
  // A folder's name may be no UTF-8.
  file.header =
      std::string(sizeof(uint64_t), '\0') + json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  pad_to_pages(&file.header, ' ');
  const uint64_t length = file.header.size() - sizeof length;
  std::memcpy(file.header.data(), &length, sizeof length);
  return write_sealed(file, parts, std::vector<std::byte>(kBootIdBytes), progress);
}

uint64_t fast_hash(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::vector<std::byte> make_seal(std::span<const uint64_t> hashes, std::span<const std::byte> boot) {
  const uint64_t hash_of_hashes = fast_hash(std::as_bytes(hashes));
  std::vector<std::byte> seal;
  for (const auto& bytes : {std::as_bytes(hashes), std::as_bytes(std::span(&hash_of_hashes, 1)), boot}) {
    seal.insert(seal.end(), bytes.begin(), bytes.end());
  }
  return seal;
}

bool is_intact(std::span<const std::byte> seal) {
  const std::span<const std::byte> hashes = seal.first(seal.size() - sizeof(uint64_t) - kBootIdBytes);
  return fast_hash(hashes) == segment_hash(seal, hashes.size() / sizeof(uint64_t));
}

uint64_t segment_hash(std::span<const std::byte> seal, int64_t index) {
  uint64_t hash = 0;
  std::memcpy(&hash, seal.data() + index * sizeof hash, sizeof hash);
  return hash;
}

std::vector<std::byte> boot_id() {
  std::string text(kBootIdBytes, '\0');
  std::ifstream("/proc/sys/kernel/random/boot_id").getline(text.data(), kBootIdBytes);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

bool is_of_this_boot(std::span<const std::byte> seal) {
  const std::vector<std::byte> boot = boot_id();
  return boot[0] != std::byte{0} && std::ranges::equal(seal.last(kBootIdBytes), boot);
}

}  // namespace pinion
