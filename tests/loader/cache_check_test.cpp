// Damage to packed weights on disk: detection and removal.
#include "loader/pack/pack_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <vector>

#include "tests/crew.h"
#include "tests/loader/make_files.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRows = 704, kColumns = 1024;  // packed as w8 a little less than 0.7 segments
constexpr size_t kMatrices = 5;

std::string random_bf16(size_t count) {
  std::string text(2 * count, '\0');
  uint32_t state = 1;
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    text[2 * i] = static_cast<char>(state >> 24);
    text[2 * i + 1] = static_cast<char>(0x3c | (state >> 8 & 0x80));
  }
  return text;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Five matrices in a mapped cache file; the second and the third are interleaved.
struct Cached {
  TempFolder source, folder;
  Checkpoint checkpoint;
  Matrix matrices[kMatrices];
  std::vector<PackJob> jobs;
  PackCache cache;
  MappedFile file;
  std::string whole;  // the file as written

  Cached() {
    const size_t bytes = 2 * kRows * kColumns;
    std::string header = "{";
    for (size_t i = 0; i < kMatrices; i++) {
      header += std::string(i == 0 ? "" : ",") + "\"" + static_cast<char>('a' + i) +
                R"(":{"dtype":"BF16","shape":[704,1024],"data_offsets":[)" + std::to_string(i * bytes) + "," +
                std::to_string((i + 1) * bytes) + "]}";
    }
    source.write("model.safetensors", safetensors_text(header + "}", random_bf16(kMatrices * kRows * kColumns)));
    EXPECT_EQ(open_checkpoint(source.path, &checkpoint).message(), "");
    for (size_t i = 0; i < kMatrices; i++) {
      jobs.push_back({*checkpoint.find(std::string(1, static_cast<char>('a' + i))), Format::w8, &matrices[i]});
    }
    jobs[1].interleaved = jobs[2].interleaved = 2;
    std::vector<std::byte> packed(packed_bytes(jobs) + kAlignmentBytes);
    std::byte* first = packed.data() + (-reinterpret_cast<uintptr_t>(packed.data())) % kAlignmentBytes;
    EXPECT_EQ(pack_all(crew(1), jobs, first).message(), "");
    cache = pack_cache_of(folder.path, checkpoint, jobs);
    EXPECT_EQ(write_pack_cache(cache, first).message(), "");
    EXPECT_EQ(open_pack_cache(cache, &file).message(), "");
    whole = text_of(cache.path);
  }
  void flip(int64_t byte, int bit) const {
    std::fstream out(cache.path, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(byte).put(static_cast<char>(whole[byte] ^ 1 << bit));
  }
  int64_t first() const { return std::ssize(cache.header); }
};

TEST(CacheCheck, FlippedBitsAreFound) {
  const Cached cached;
  ASSERT_EQ(segment_count(cached.cache.packed_bytes), 4);
  for (const int32_t count : kCrews) EXPECT_EQ(damaged_segments(crew(count), cached.cache, cached.file), 0);
  const int64_t last = cached.cache.packed_bytes - 1;
  for (int64_t i = 0; i < 24; i++) {
    const int64_t byte = last * i / 23;
    cached.flip(cached.first() + byte, static_cast<int>(i % 8));
    EXPECT_EQ(damaged_segments(crew(2), cached.cache, cached.file), 1) << byte;
    for (int64_t s = 0; s < 4; s++) {
      EXPECT_EQ(is_segment_damaged(cached.cache, cached.file, s), s == byte / kSegmentBytes) << byte;
    }
    std::fstream(cached.cache.path, std::ios::binary | std::ios::in | std::ios::out)
        .seekp(cached.first() + byte)
        .put(cached.whole[cached.first() + byte]);
  }
  std::string text = cached.whole;
  std::fill_n(text.begin() + cached.first() + 5, cached.cache.packed_bytes - 10, '\x55');
  std::fstream(cached.cache.path, std::ios::binary | std::ios::in | std::ios::out) << text;
  for (const int32_t count : kCrews) EXPECT_EQ(damaged_segments(crew(count), cached.cache, cached.file), 4);
}

TEST(CacheCheck, DamagedHashesMakeTheFileUnusable) {
  const Cached cached;
  MappedFile file;
  const int64_t hashes = cached.first() + cached.cache.packed_bytes;
  for (int64_t byte = hashes; byte < cached.cache.file_bytes() - kBootIdBytes; byte++) {
    cached.flip(byte, 3);
    EXPECT_NE(open_pack_cache(cached.cache, &file).message().find("damaged hashes"), std::string::npos) << byte;
    std::fstream(cached.cache.path, std::ios::binary | std::ios::in | std::ios::out)
        .seekp(byte)
        .put(cached.whole[byte]);
  }
  EXPECT_EQ(open_pack_cache(cached.cache, &file).message(), "");
}

// Another process may have replaced the file: the new one is neither removed nor marked as checked.
TEST(CacheCheck, ReplacedFileIsNotTouched) {
  const Cached cached;
  const fs::path other = cached.folder.path / "other";
  fs::copy_file(cached.cache.path, other);
  fs::rename(other, cached.cache.path);
  cached.flip(cached.cache.file_bytes() - kBootIdBytes, 0);
  const std::string before = text_of(cached.cache.path);
  mark_checked(cached.cache, cached.file);
  remove_damaged(cached.cache, cached.file);
  EXPECT_TRUE(text_of(cached.cache.path) == before);
}

TEST(CacheCheck, RemovesTheMappedFile) {
  const Cached cached;
  remove_damaged(cached.cache, cached.file);
  EXPECT_FALSE(fs::exists(cached.cache.path));
}

TEST(CacheCheck, CheckHoldsUntilTheNextBootOrWrite) {
  const Cached cached;
  if (boot_id()[0] == std::byte{0}) GTEST_SKIP() << "this system has no boot id";
  const auto is_checked = [&] { return was_checked(cached.cache, cached.file); };
  EXPECT_TRUE(is_checked()) << "just written";
  cached.flip(cached.cache.file_bytes() - kBootIdBytes, 0);
  EXPECT_FALSE(is_checked());
  mark_checked(cached.cache, cached.file);
  EXPECT_TRUE(is_checked());
  EXPECT_TRUE(text_of(cached.cache.path) == cached.whole);
  cached.flip(cached.first(), 0);
  EXPECT_FALSE(is_checked());
  mark_checked(cached.cache, cached.file);
  EXPECT_TRUE(is_checked());
}

}  // namespace
}  // namespace pinion
