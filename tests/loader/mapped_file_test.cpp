#include "loader/files/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "tests/loader/make_files.h"

namespace pinion {
namespace {

TEST(MappedFile, HoldsTheBytes) {
  const TempFolder folder;
  const std::string text(100'000, 'x');
  MappedFile file;
  ASSERT_EQ(map_file(folder.write("a", text), &file).message(), "");
  ASSERT_EQ(file.contents().size(), text.size());
  EXPECT_EQ(std::memcmp(file.contents().data(), text.data(), text.size()), 0);
  prefer_huge_pages(file.contents());
  prefetch_pages(file.contents());
  release_pages(file.contents());
  EXPECT_EQ(std::memcmp(file.contents().data(), text.data(), text.size()), 0) << "released pages must come back";
  const MappedFile moved = std::move(file);
  EXPECT_TRUE(file.contents().data() == nullptr);
  EXPECT_EQ(moved.contents().size(), text.size());
}

TEST(MappedFile, FoundByAddress) {
  const TempFolder folder;
  MappedFile a, b;
  ASSERT_EQ(map_file(folder.write("a", std::string(10'000, 'x')), &a).message(), "");
  ASSERT_EQ(map_file(folder.write("b", "y"), &b).message(), "");
  const std::byte* first = a.contents().data();
  EXPECT_EQ(mapped_file_at(first), (folder.path / "a").string());
  EXPECT_EQ(mapped_file_at(first + 9'999), (folder.path / "a").string());
  EXPECT_EQ(mapped_file_at(b.contents().data()), (folder.path / "b").string());
  EXPECT_EQ(mapped_file_at(first - 1), nullptr);
  EXPECT_EQ(mapped_file_at(&first), nullptr);
  EXPECT_EQ(mapped_file_at(nullptr), nullptr);
  a = {};
  EXPECT_EQ(mapped_file_at(first), nullptr);
  ASSERT_EQ(map_file(folder.write("c", "z"), &a).message(), "");
  EXPECT_EQ(mapped_file_at(a.contents().data()), (folder.path / "c").string());
}

TEST(MappedFile, NonFilesAreErrors) {
  const TempFolder folder;
  MappedFile file;
  const auto message = [&](const std::string& name) { return map_file(folder.path / name, &file).message(); };
  const std::string at = folder.path.string() + "/";
  folder.write("empty", "");
  EXPECT_EQ(message("empty"), at + "empty: empty file");
  EXPECT_EQ(message("absent"), at + "absent: cannot open: No such file or directory");
  EXPECT_EQ(map_file(folder.path, &file).message(), folder.path.string() + ": is a folder, not a file");
  ASSERT_EQ(mkfifo((folder.path / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(message("fifo"), at + "fifo: not a regular file");
  std::filesystem::create_symlink("loop", folder.path / "loop");
  EXPECT_NE(message("loop"), "");
  EXPECT_TRUE(file.contents().empty());
}

TEST(ReadTextFile, ReadsAndLimits) {
  const TempFolder folder;
  std::string text;
  ASSERT_EQ(read_text_file(folder.write("a", "hello"), 5, &text).message(), "");
  EXPECT_EQ(text, "hello");
  EXPECT_NE(read_text_file(folder.path / "a", 4, &text).message().find("file too large: want at most 4 bytes, have 5"),
            std::string::npos);
  ASSERT_EQ(read_text_file(folder.write("empty", ""), 5, &text).message(), "");
  EXPECT_EQ(text, "");
}

TEST(Arena, IsAlignedAndZero) {
  Arena arena;
  ASSERT_EQ(allocate_arena(1'000'000, &arena).message(), "");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data) % (2 << 20), 0u);
  EXPECT_EQ(arena.bytes, 1'000'000);
  EXPECT_TRUE(std::all_of(arena.data, arena.data + arena.bytes, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(allocate_arena(0, &arena).message(), "");
  EXPECT_EQ(allocate_arena(int64_t{1} << 60, &arena).message(),
            "arena: no memory for packed weights: want 1152921504606846976 bytes");
  EXPECT_TRUE(allocate_arena(-1, &arena));
}

}  // namespace
}  // namespace pinion
