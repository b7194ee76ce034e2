#include "loader/pack/pack_cache.h"
#include "tests/crew.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include "tests/loader/make_files.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeader = R"({"a":{"dtype":"BF16","shape":[64,32],"data_offsets":[0,4096]},)"
                                     R"("b":{"dtype":"BF16","shape":[3,5],"data_offsets":[4096,4126]}})";

// A checkpoint of two matrices, packed without a cache, and a folder for the cache.
struct Packed {
  TempFolder source, folder;
  Checkpoint checkpoint;
  Matrix a, b;
  std::vector<PackJob> jobs;
  std::vector<std::byte> bytes;
  PackCache cache;

  explicit Packed(Format format = Format::w8, char fill = 1) {
    source.write("model.safetensors", safetensors_text(kHeader, std::string(4126, fill)));
    EXPECT_EQ(open_checkpoint(source.path, &checkpoint).message(), "");
    jobs = {{*checkpoint.find("a"), format, &a}, {*checkpoint.find("b"), Format::w8, &b}};
    bytes.resize(packed_bytes(jobs));
    EXPECT_EQ(pack_all(crew(1), jobs, bytes.data()).message(), "");
    cache = pack_cache_of(folder.path, checkpoint, jobs);
  }
  std::string write() const { return write_pack_cache(cache, bytes.data()).message(); }
  bool is_usable() const {
    MappedFile file;
    return !open_pack_cache(cache, &file);
  }
};

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_text(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

void set_age(const fs::path& path, std::chrono::seconds age) {
  const timespec time = {.tv_sec = std::time(nullptr) - age.count(), .tv_nsec = 0}, times[] = {time, time};
  utimensat(AT_FDCWD, path.c_str(), times, 0);
}

int64_t files_in(const fs::path& folder) { return std::distance(fs::directory_iterator(folder), {}); }

TEST(PackCache, RoundTrip) {
  Packed packed;
  EXPECT_FALSE(packed.is_usable());
  ASSERT_EQ(packed.write(), "");
  MappedFile file;
  ASSERT_EQ(open_pack_cache(packed.cache, &file).message(), "");
  const std::span<const std::byte> kept = packed_contents(packed.cache, file);
  ASSERT_EQ(kept.size(), packed.bytes.size());
  EXPECT_EQ(std::memcmp(kept.data(), packed.bytes.data(), kept.size()), 0);
  ASSERT_EQ(place_all(packed.jobs, kept.data()).message(), "");
  EXPECT_EQ(packed.a.panels, kept.data());
  EXPECT_EQ(static_cast<const std::byte*>(packed.b.panels), kept.data() + packed_bytes(Format::w8, 64, 32));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(packed.b.scale) % kAlignmentBytes, 0u);
  EXPECT_EQ(files_in(packed.folder.path), 1);
}

TEST(PackCache, InterleavingChangesTheFile) {
  Packed packed;
  std::vector<PackJob> jobs = {packed.jobs[0], packed.jobs[0]};
  const PackCache alone = pack_cache_of(packed.folder.path, packed.checkpoint, jobs);
  for (PackJob& job : jobs) job.interleaved = 2;
  const PackCache interleaved = pack_cache_of(packed.folder.path, packed.checkpoint, jobs);
  EXPECT_NE(interleaved.path, alone.path);
  EXPECT_EQ(interleaved.packed_bytes, alone.packed_bytes);
}

TEST(PackCache, PrefixesAndFlippedHeadersAreRefused) {
  const Packed packed;
  ASSERT_EQ(packed.write(), "");
  const std::string whole = text_of(packed.cache.path);
  ASSERT_EQ(std::ssize(whole), packed.cache.file_bytes());
  for (size_t bytes = 0; bytes < whole.size(); bytes += bytes < packed.cache.header.size() ? 7 : 61) {
    write_text(packed.cache.path, whole.substr(0, bytes));
    EXPECT_FALSE(packed.is_usable()) << bytes;
  }
  write_text(packed.cache.path, whole + "x");
  EXPECT_FALSE(packed.is_usable());
  for (size_t i = 0; i < packed.cache.header.size(); i++) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x10);
    write_text(packed.cache.path, flipped);
    EXPECT_FALSE(packed.is_usable()) << i;
  }
  ASSERT_EQ(packed.write(), "");
  EXPECT_TRUE(packed.is_usable());
}

TEST(PackCache, PathDependsOnSourceAndFormats) {
  const Packed packed;
  const auto name = [&](const Checkpoint& checkpoint, std::span<const PackJob> jobs) {
    return pack_cache_of(packed.folder.path, checkpoint, jobs).path;
  };
  EXPECT_EQ(name(packed.checkpoint, packed.jobs), packed.cache.path);
  std::vector<PackJob> kept = packed.jobs;
  kept[0].format = Format::bf16;
  EXPECT_NE(name(packed.checkpoint, kept), packed.cache.path);

  const fs::path file = packed.source.path / "model.safetensors";
  const fs::file_time_type time = fs::last_write_time(file);
  const auto reopened = [&] {
    Checkpoint checkpoint;
    EXPECT_EQ(open_checkpoint(packed.source.path, &checkpoint).message(), "");
    return name(checkpoint, packed.jobs);
  };
  EXPECT_EQ(reopened(), packed.cache.path);
  fs::last_write_time(file, time + std::chrono::nanoseconds(1));
  EXPECT_NE(reopened(), packed.cache.path);
  // Other weights under the same header and time.
  fs::remove(file);
  write_text(file, safetensors_text(kHeader, std::string(4126, 2)));
  fs::last_write_time(file, time);
  EXPECT_NE(reopened(), packed.cache.path);
}

// Changes one byte between the samples and restores the mtime. The ctime cannot be restored.
TEST(PackCache, EditWithRestoredMtimeIsDetected) {
  const TempFolder source;
  std::string header = R"({"a":{"dtype":"BF16","shape":[1024,512],"data_offsets":[0,1048576]}})";
  const fs::path path = source.write("model.safetensors", safetensors_text(header, std::string(1048576, 1)));
  const fs::file_time_type time = fs::last_write_time(path);
  const auto name = [&] {
    Checkpoint checkpoint;
    Matrix a;
    EXPECT_EQ(open_checkpoint(source.path, &checkpoint).message(), "");
    const std::vector<PackJob> jobs = {{*checkpoint.find("a"), Format::w8, &a}};
    return pack_cache_of("/", checkpoint, jobs).path;
  };
  const fs::path before = name();
  EXPECT_EQ(name(), before);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // longer than the resolution of file times
  const int64_t unread = std::ssize(header) + 8 + 1048576 * 3 / 63 / 2;
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(unread).put(2);
  fs::last_write_time(path, time);
  EXPECT_NE(name(), before);
}

TEST(PackCache, SamplesDetectChangesWithoutTimes) {
  const Packed packed;
  Checkpoint other;
  ASSERT_EQ(open_checkpoint(packed.source.path, &other).message(), "");
  ASSERT_EQ(pack_cache_of(packed.folder.path, other, packed.jobs).path, packed.cache.path);
  std::fstream(packed.source.path / "model.safetensors", std::ios::binary | std::ios::in | std::ios::out)
      .seekp(-1, std::ios::end)
      .put(2);  // the mapping still has the old times
  EXPECT_NE(pack_cache_of(packed.folder.path, other, packed.jobs).path, packed.cache.path);
}

TEST(PackCache, LeastRecentlyUsedFilesAreEvicted) {
  const Packed packed;
  const std::string ours = "pinion packed weights\n" + std::string(9000, 'x');
  const auto put = [&](const std::string& name, const std::string& text, int age) {
    write_text(packed.folder.path / name, text);
    set_age(packed.folder.path / name, std::chrono::hours(age));
  };
  put("0000000000000001.packed", ours, 3);
  put("0000000000000002.packed", ours, 2);
  put("0000000000000003.packed", ours, 1);
  put("0000000000000004.packed", "somebody else's", 9);
  put("notes.txt", ours, 9);
  ASSERT_EQ(write_pack_cache(packed.cache, packed.bytes.data(), packed.cache.file_bytes() + 10'000).message(), "");
  EXPECT_TRUE(packed.is_usable());
  EXPECT_FALSE(fs::exists(packed.folder.path / "0000000000000001.packed"));
  EXPECT_FALSE(fs::exists(packed.folder.path / "0000000000000002.packed"));
  for (const char* name : {"0000000000000003.packed", "0000000000000004.packed", "notes.txt"}) {
    EXPECT_TRUE(fs::exists(packed.folder.path / name)) << name;
  }
  EXPECT_TRUE(write_pack_cache(packed.cache, packed.bytes.data(), packed.cache.file_bytes() - 1));
  EXPECT_EQ(files_in(packed.folder.path), 4);
}

TEST(PackCache, AbandonedFilesAreRemoved) {
  const Packed packed;
  const auto put = [&](const std::string& end, const std::string& text, std::chrono::seconds age) {
    const fs::path path = packed.cache.path.string() + end;
    write_text(path, text);
    set_age(path, age);
    return path;
  };
  const fs::path old = put(".abcdef", "pinion packed weights\nhalf", std::chrono::hours(2));
  const fs::path empty = put(".ABCDEF", "", std::chrono::hours(2));
  const fs::path young = put(".a1b2c3", "pinion packed weights\nhalf", std::chrono::seconds(1));
  const fs::path written = put(".Z1b2c3", "pinion packed weights\nhalf", std::chrono::seconds(1));
  const int writer = open(written.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(writer, LOCK_EX), 0);
  const fs::path foreign = put(".xxxxxx", "something else, not ours", std::chrono::hours(2));
  remove_unfinished(packed.folder.path);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_FALSE(fs::exists(empty));
  EXPECT_FALSE(fs::exists(young));
  EXPECT_TRUE(fs::exists(written)) << "its writer still holds the lock";
  EXPECT_TRUE(fs::exists(foreign));
  close(writer);
  ASSERT_EQ(packed.write(), "");
  EXPECT_FALSE(fs::exists(written));
}

TEST(PackCache, WriteFailureIsAnError) {
  Packed packed;
  // A file instead of the folder, since root may write anywhere else.
  packed.cache.path = packed.source.path / "model.safetensors" / packed.cache.path.filename();
  EXPECT_NE(packed.write(), "");
  packed.cache.path = "/proc/pinion/0000000000000001.packed";
  EXPECT_NE(packed.write(), "");
}

TEST(PackCache, FileSizeLimitIsAnErrorNotASignal) {
  const Packed packed;
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {static_cast<rlim_t>(packed.cache.header.size()), before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = packed.write();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(message, "");
  EXPECT_EQ(files_in(packed.folder.path), 0);
}

// A writer may remove another writer's new file before that is locked.
TEST(PackCache, ConcurrentWriters) {
  const Packed packed;
  std::vector<std::string> messages(4);
  {
    std::vector<std::jthread> threads;
    for (std::string& message : messages) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20 && message.empty(); i++) message = packed.write();
      });
    }
  }
  EXPECT_EQ(messages, std::vector<std::string>(4));
  EXPECT_TRUE(packed.is_usable());
  EXPECT_EQ(files_in(packed.folder.path), 1);
}

}  // namespace
}  // namespace pinion
