// GGUF files written byte by byte: valid ones of both versions, malformed ones, split ones.
#include "loader/gguf/gguf.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "loader/checkpoint/number_formats.h"
#include "loader/gguf/gguf_folder.h"
#include "tests/loader/gguf_files.h"
#include "tests/loader/make_files.h"

namespace pinion {
namespace {

constexpr uint32_t kF32Tensor = 0, kF16Tensor = 1, kQ80Tensor = 8, kQ4KTensor = 12;

// An exact copy on the heap, so that sanitizers detect reads past the end.
Error parse(std::string_view file, GgufFile* out) {
  const std::vector<std::byte> exact(as_bytes(file).begin(), as_bytes(file).end());
  return parse_gguf(exact, "file", out);
}

std::string gguf_message(std::string_view file) {
  GgufFile parsed;
  return parse(file, &parsed).message();
}

GgufWriter valid_file(uint32_t version = 3) {
  GgufWriter writer{.version = version};
  writer.add("general.architecture", "llama");
  writer.add("llama.block_count", 2u);
  writer.add("llama.eps", 1e-5f);
  writer.add("general.tied", true);
  writer.add("u8", kU8, "\xff");
  writer.add("i8", kI8, "\xff");
  writer.add("u16", kU16, raw(uint16_t{65535}));
  writer.add("i16", kI16, raw(int16_t{-2}));
  writer.add("i32", kI32, raw(int32_t{-3}));
  writer.add("u64", kU64, raw(~uint64_t{0}));
  writer.add("i64", kI64, raw(int64_t{-4}));
  writer.add("f64", kF64, raw(0.1));
  writer.add("tokens", std::vector<std::string>{"a", "", "\xe2\x96\x81the", std::string("\0\n", 2)});
  writer.add("types", std::vector<int32_t>{1, -1});
  writer.add("scores", std::vector<float>{0.5f, -1000});
  writer.add("nested", kArray, gguf_array(kArray, 2, gguf_array(kBool, 1, "\1") + gguf_array(kU8, 0, "")));
  writer.add_tensor("a", {3, 2}, kF32Tensor, raw(1.f) + raw(2.f) + raw(3.f) + raw(4.f) + raw(5.f) + raw(6.f));
  writer.add_tensor("b", {32, 1, 1, 2}, kQ80Tensor, std::string(2 * 34, 'x'));
  writer.add_tensor("c", {1}, kF16Tensor, "yz");
  return writer;
}

TEST(Gguf, ReadsBothVersions) {
  for (const uint32_t version : {2u, 3u}) {
    const std::string file = valid_file(version).file();
    GgufFile parsed;
    ASSERT_EQ(parse_gguf(as_bytes(file), "file", &parsed).message(), "");
    EXPECT_EQ(parsed.metadata, Json::parse(R"({"general.architecture": "llama", "llama.block_count": 2,
      "llama.eps": 9.99999974737875163555e-06, "general.tied": true, "u8": 255, "i8": -1, "u16": 65535, "i16": -2,
      "i32": -3, "u64": 18446744073709551615, "i64": -4, "f64": 0.1, "tokens": ["a", "", "▁the", "\u0000\n"],
      "types": [1, -1], "scores": [0.5, -1000.0], "nested": [[true], []]})"));
    ASSERT_EQ(parsed.tensors.size(), 3u);
    const TensorView& a = parsed.tensors[0];
    EXPECT_EQ(a.name, "a");
    EXPECT_EQ(a.dtype, DType::f32);
    EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3})) << "outermost first";
    float row[3];
    read_row(a, 1, row);
    EXPECT_EQ(row[0], 4);
    EXPECT_EQ(dtype_name(parsed.tensors[1].dtype), "Q8_0");
    EXPECT_EQ(parsed.tensors[1].shape, (std::vector<int64_t>{2, 1, 1, 32}));
    EXPECT_EQ(parsed.tensors[1].bytes, 68);
    const std::span<const std::byte> last = parsed.tensors[2].contents();
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(last.data()), last.size()), "yz");
  }
}

// Gemma 3n's layers without sparse gates.
TEST(Gguf, CutsMayBeMinusInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto read = [](const char* key, float cut, GgufFile* out) {
    GgufWriter writer;
    writer.add(key, std::vector<float>{0.5f, cut});
    const std::string file = writer.file();
    return parse_gguf(as_bytes(file), "file", out).message();
  };
  constexpr const char* kCuts = "gemma3n.activation_sparsity_scale";
  GgufFile parsed;
  EXPECT_EQ(read(kCuts, -kInfinity, &parsed), "");
  EXPECT_EQ(parsed.metadata[kCuts], Json({0.5f, std::numeric_limits<float>::lowest()}));
  EXPECT_NE(read(kCuts, kInfinity, &parsed).find("not a finite number: inf"), std::string::npos);
  EXPECT_NE(read("gemma3n.rope.freq_base", -kInfinity, &parsed).find("not a finite number: -inf"), std::string::npos);
}

TEST(Gguf, PrefixesAreRefused) {
  const std::string file = valid_file().file();
  for (size_t bytes = 0; bytes < file.size(); ++bytes) {
    const std::string text = gguf_message(file.substr(0, bytes));
    EXPECT_NE(text.find(bytes < 4 ? "not a GGUF file" : "download it again"), std::string::npos) << bytes << text;
  }
  EXPECT_EQ(gguf_message(file + "padding"), "");
}

TEST(Gguf, OtherFilesAndVersions) {
  const auto version = [](uint32_t number) { return gguf_message(GgufWriter{.version = number}.file()); };
  EXPECT_EQ(version(2), "");
  EXPECT_EQ(version(0), "file: not a GGUF file: want version 2 or 3, have 0");
  EXPECT_EQ(version(1),
            "file: an old version of GGUF; download a newer conversion of the model: want version 2 or 3, have 1");
  EXPECT_EQ(version(4), "file: unknown version of GGUF: want version 2 or 3, have 4");
  EXPECT_EQ(version(0x03000000),
            "file: a big-endian GGUF file; download the little-endian one: want version 2 or 3, have 50331648");
  EXPECT_EQ(gguf_message("FUGG"), "file: not a GGUF file");
  EXPECT_EQ(gguf_message(""), "file: not a GGUF file");
  EXPECT_NE(gguf_message("version https://git-lfs.github.com/spec/v1\n").find("git lfs pull"), std::string::npos);
  EXPECT_NE(gguf_message("<!DOCTYPE html>").find("a web page instead of the file"), std::string::npos);
}

struct BadValue {
  uint32_t type;
  std::string bytes;
  const char* message;
};

TEST(Gguf, InvalidValuesAreErrors) {
  constexpr uint64_t kHuge = ~uint64_t{0};
  const std::string text = gguf_text("text");
  const BadValue cases[] = {
      {13, "", "file: key: unknown type of value: 13"},
      {~0u, "", "file: key: unknown type of value: 4294967295"},
      {kBool, "\2", "file: key: not a truth value: want 0 or 1, have 2"},
      {kF32, raw(std::numeric_limits<float>::quiet_NaN()), "file: key: not a finite number: nan"},
      {kF64, raw(-std::numeric_limits<double>::infinity()), "file: key: not a finite number: -inf"},
      {kString, gguf_text("a\xff"), "file: key: not valid UTF-8: \"a\\ufffd\""},
      {kString, gguf_text("\xed\xa0\x80"), "file: key: not valid UTF-8: \"\\ufffd\\ufffd\\ufffd\""},
      {kString, raw(kHuge) + "text",
       "file: key: file ends inside the header; download it again: want 18446744073709551615 bytes, have 4"},
      {kString, raw(kHuge - 7) + "text",
       "file: key: file ends inside the header; download it again: want 18446744073709551608 bytes, have 4"},
      {kArray, gguf_array(kString, 3, text + gguf_text("\xc0\xaf") + text),
       "file: key[1]: not valid UTF-8: \"\\ufffd\\ufffd\""},
      {kArray, gguf_array(kF32, 2, raw(1.f) + raw(std::numeric_limits<float>::infinity())),
       "file: key[1]: not a finite number: inf"},
      {kArray, gguf_array(13, 0, ""), "file: key: unknown type of value: 13"},
      {kArray, gguf_array(kU8, kHuge, ""),
       "file: key: too many values: want at most 8000000 in the header, have 18446744073709551615"},
      {kArray, gguf_array(kU8, 7'999'998, ""),
       "file: key: file ends inside the header; download it again: want 7999998 bytes, have 0"},
      {kArray, gguf_array(kU64, uint64_t{1} << 61, ""),
       "file: key: too many values: want at most 8000000 in the header, have 2305843009213693952"},
      {kArray, gguf_array(kArray, 1, gguf_array(kArray, 1, gguf_array(kBool, 2, "\1\3"))),
       "file: key[0][0][1]: not a truth value: want 0 or 1, have 3"},
      {kArray,
       gguf_array(kArray, 1,
                  gguf_array(kArray, 1, gguf_array(kArray, 1, gguf_array(kArray, 1, gguf_array(kU8, 0, ""))))),
       "file: key[0][0][0][0]: arrays nested too deep: want at most 4"},
  };
  for (const BadValue& c : cases) {
    GgufWriter writer;
    writer.add("before", 1u);
    writer.add("key", c.type, c.bytes);
    EXPECT_EQ(gguf_message(writer.header()), c.message);
  }
}

TEST(Gguf, InvalidKeysAreErrors) {
  const auto with_key = [](std::string_view key) {
    GgufWriter writer;
    writer.add(key, 1u);
    return gguf_message(writer.file());
  };
  EXPECT_EQ(with_key(""), "file: invalid key: \"\"");
  EXPECT_EQ(with_key("a\nb"), "file: invalid key: \"a\\nb\"");
  EXPECT_EQ(with_key("a\xff"), "file: not valid UTF-8: \"a\\ufffd\"");
  EXPECT_EQ(with_key(std::string(65'536, 'k')), "file: invalid key: \"" + std::string(79, 'k') + "...");
  EXPECT_EQ(with_key(std::string(65'535, 'k')), "");

  GgufWriter twice;
  twice.add("key", 1u);
  twice.add("key", "text");
  EXPECT_EQ(gguf_message(twice.file()), "file: key: key given twice");
}

TEST(Gguf, CountsAreBoundedByTheFile) {
  const auto with_counts = [](uint64_t tensors, uint64_t keys) {
    return gguf_message(GgufWriter{.keys = keys, .tensors = tensors}.file());
  };
  const std::string too_many = "file: too many values: want at most 8000000 in the header, have ";
  const std::string too_short = "file: file ends inside the header; download it again: want ";
  EXPECT_EQ(with_counts(0, 0), "");
  EXPECT_EQ(with_counts(~uint64_t{0}, 0), too_many + "18446744073709551615");
  EXPECT_EQ(with_counts(0, ~uint64_t{0}), too_many + "18446744073709551615");
  EXPECT_EQ(with_counts(uint64_t{1} << 63, 0), too_many + "9223372036854775808");
  EXPECT_EQ(with_counts(8'000'000, 0), too_short + "264000000 bytes, have 8");
  EXPECT_EQ(with_counts(0, 8'000'000), too_short + "112000000 bytes, have 8");
}

struct BadTensor {
  std::vector<uint64_t> sizes;
  uint32_t type;
  uint64_t offset;
  const char* message;  // after "file: t: "
};

TEST(Gguf, InvalidTensorsAreErrors) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  const BadTensor cases[] = {
      {{}, kF32Tensor, 0, "dimensions: want 1 to 4, have 0"},
      {{1, 1, 1, 1, 1}, kF32Tensor, 0, "dimensions: want 1 to 4, have 5"},
      {{0}, kF32Tensor, 0, "impossible shape: F32 [0]"},
      {{1, 0, 1}, kF32Tensor, 0, "impossible shape: F32 [1, 0, 1]"},
      {{~uint64_t{0}}, kF32Tensor, 0, "impossible shape: F32 [-1]"},
      {{uint64_t{1} << 63}, kF32Tensor, 0, "impossible shape: F32 [-9223372036854775808]"},
      // Products that wrap to small numbers: of elements, of bytes, of the end, of the end padded.
      {{uint64_t{1} << 32, uint64_t{1} << 32}, kF32Tensor, 0, "impossible shape: F32 [4294967296, 4294967296]"},
      {{uint64_t{1} << 62}, kF32Tensor, 0, "impossible shape: F32 [4611686018427387904]"},
      {{kMax}, 24, 0, "impossible shape: I8 [9223372036854775807]"},
      {{kMax - 30}, 24, 0, "impossible shape: I8 [9223372036854775777]"},
      {{256, uint64_t{1} << 57}, kQ4KTensor, 0, "impossible shape: Q4_K [144115188075855872, 256]"},
      {{255, 256}, kQ4KTensor, 0, "impossible shape: Q4_K [256, 255]"},
      {{33}, kQ80Tensor, 0, "impossible shape: Q8_0 [33]"},
      {{32}, 16, 0, "tensor type IQ2_XXS is not supported; download the model as Q4_K_M, Q8_0 or BF16"},
      {{32}, 31, 0, "tensor type Q4_0_4_4 is not supported; download the model as Q4_K_M, Q8_0 or BF16"},
      {{32}, 4, 0, "unknown type of tensor: 4"},
      {{32}, ~0u, 0, "unknown type of tensor: 4294967295"},
      {{1}, kF32Tensor, 32, "wrong offset: want 0, have 32"},
      {{1}, kF32Tensor, 1, "wrong offset: want 0, have 1"},
      {{1}, kF32Tensor, ~uint64_t{31}, "wrong offset: want 0, have -32"},
      {{kMax / 64 * 32},
       24,
       0,
       "file ends before the end of this tensor; download it again: want 4611686018427387936 "
       "bytes, have 128"},
      {{17}, kF32Tensor, 0, "file ends before the end of this tensor; download it again: want 132 bytes, have 128"},
      {{16}, kF32Tensor, 0, ""},
  };
  for (const BadTensor& c : cases) {
    GgufWriter writer;
    writer.add_info("t", c.sizes, c.type, c.offset);
    std::string file = writer.file();
    file.resize(128);  // 64 bytes of data behind a header of 57 to 89 bytes
    const std::string prefix = std::string_view(c.message).empty() ? "" : "file: t: ";
    EXPECT_EQ(gguf_message(file), prefix + c.message);
  }
}

TEST(Gguf, TensorsFollowEachOther) {
  const auto with_second = [](std::string_view name, uint64_t offset) {
    GgufWriter writer;
    writer.add_tensor("a", {3}, kF32Tensor, std::string(12, 'x'));
    writer.add_info(name, {1}, kF32Tensor, offset);
    writer.data.resize(64);
    return gguf_message(writer.file());
  };
  EXPECT_EQ(with_second("b", 32), "");
  EXPECT_EQ(with_second("a", 32), "file: a: tensor given twice");
  EXPECT_EQ(with_second("b", 0), "file: b: wrong offset: want 32, have 0") << "overlap";
  EXPECT_EQ(with_second("b", 12), "file: b: wrong offset: want 32, have 12");
  EXPECT_EQ(with_second("b", 64), "file: b: wrong offset: want 32, have 64") << "gap";
  EXPECT_EQ(with_second("", 32), "file: invalid name of a tensor: \"\"");
  EXPECT_EQ(with_second("b\t", 32), "file: invalid name of a tensor: \"b\\t\"");
  EXPECT_EQ(with_second("\x80", 32), "file: not valid UTF-8: \"\\ufffd\"");
}

TEST(Gguf, Alignment) {
  const auto aligned = [](uint32_t value, uint64_t used) {
    GgufWriter writer{.alignment = used};
    writer.add("general.alignment", value);
    writer.add_tensor("a", {1}, kF16Tensor, "12");
    writer.add_tensor("b", {1}, kF16Tensor, "34");
    return gguf_message(writer.file());
  };
  for (const uint32_t value : {1, 8, 32, 64, 4096}) EXPECT_EQ(aligned(value, value), "");
  EXPECT_EQ(aligned(64, 32), "file: b: wrong offset: want 64, have 32");
  EXPECT_EQ(aligned(24, 24), "file: general.alignment: wrong alignment: want a power of two, have 24");
  const std::string range = "file: general.alignment: out of range: want an integer from 1 to 1048576, have ";
  EXPECT_EQ(aligned(0, 32), range + "0");
  EXPECT_EQ(aligned(~0u, 32), range + "4294967295");
  EXPECT_EQ(aligned(1u << 31, 32), range + "2147483648");
  GgufWriter text;
  text.add("general.alignment", "32");
  EXPECT_NE(gguf_message(text.file()).find("general.alignment: wrong type"), std::string::npos);
}

TEST(Gguf, AHugeHeaderIsRefused) {
  GgufWriter writer;
  writer.add("key", kString, raw(kMaxGgufHeaderBytes));
  std::string file = writer.header();
  file.resize(file.size() + kMaxGgufHeaderBytes);  // the whole text
  GgufFile parsed;
  EXPECT_EQ(parse_gguf(as_bytes(file), "file", &parsed).message(),
            "file: key: GGUF header too long: want at most 134217728 bytes");
}

TEST(Gguf, ManyValuesAreNotQuadratic) {
  GgufWriter writer;
  std::vector<std::string> tokens;
  for (int i = 0; i < 200'000; ++i) tokens.push_back("token" + std::to_string(i));
  writer.add("tokens", tokens);
  for (uint64_t i = 0; i < 50'000; ++i) writer.add(tokens[i], 1u);
  for (uint64_t i = 0; i < 50'000; ++i) writer.add_info(tokens[i], {32}, 24, i * 32);
  writer.data.resize(50'000 * 32);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(gguf_message(writer.file()), "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "below 0.1 s in a release build";
}

// A file in two parts, `a` and `b`.
struct SplitFile : TempFolder {
  std::filesystem::path write_part(int part, int parts, std::string_view tensor, int32_t tensors = 2) const {
    GgufWriter writer;
    writer.add("part", static_cast<uint32_t>(part));
    writer.add("split.no", kU16, raw(static_cast<uint16_t>(part)));
    writer.add("split.count", kU16, raw(static_cast<uint16_t>(parts)));
    writer.add("split.tensors.count", kI32, raw(tensors));
    writer.add_tensor(tensor, {1}, kF32Tensor, raw(static_cast<float>(part)));
    return write("model-0000" + std::to_string(part + 1) + "-of-00002.gguf", writer.file());
  }

  std::string open(const std::filesystem::path& file) {
    std::string text = open_gguf(file, &files, &parsed).message();
    if (const size_t at = text.find(string()); at != text.npos) text.erase(at, string().size() + 1);
    return text;
  }

  std::vector<MappedFile> files = {};
  GgufFile parsed = {};
};

TEST(GgufSplit, AnyPartOpensTheWhole) {
  SplitFile folder;
  const std::filesystem::path first = folder.write_part(0, 2, "a"), second = folder.write_part(1, 2, "b");
  for (const auto& path : {first, second}) {
    ASSERT_EQ(folder.open(path), "");
    EXPECT_EQ(folder.files.size(), 2u);
    EXPECT_EQ(folder.parsed.metadata.at("part"), 0) << "metadata of the first part";
    ASSERT_EQ(folder.parsed.tensors.size(), 2u);
    for (const size_t i : {0, 1}) {
      float value = -1;
      read_floats(folder.parsed.tensors[i], &value);
      EXPECT_EQ(value, static_cast<float>(i));
    }
  }
}

TEST(GgufSplit, PartsThatDoNotFit) {
  SplitFile folder;
  const std::filesystem::path first = folder.write_part(0, 2, "a");
  EXPECT_EQ(folder.open(first),
            "model-00002-of-00002.gguf: a part of this model is missing; download it into the same folder");
  folder.write_part(1, 2, "a");
  EXPECT_EQ(folder.open(first), "model-00002-of-00002.gguf: a: tensor given twice");
  folder.write_part(1, 3, "b");
  EXPECT_EQ(folder.open(first),
            "model-00002-of-00002.gguf: split.count: out of range: want an integer from 2 to 2, have 3");
  folder.write("model-00002-of-00002.gguf", GgufWriter{}.file());
  EXPECT_EQ(folder.open(first), "model-00002-of-00002.gguf: split.count: missing field");
  folder.write("model-00002-of-00002.gguf", std::string_view("GGUF\3"));
  EXPECT_EQ(folder.open(first),
            "model-00002-of-00002.gguf: file ends inside the header; download it again: want 4 "
            "bytes, have 1");
  folder.write_part(1, 2, "b");
  folder.write_part(0, 2, "a", 3);
  EXPECT_EQ(folder.open(first),
            "model-00001-of-00002.gguf: the parts of this model do not fit together; download all "
            "of them again: want 3 tensors, have 2");
  std::filesystem::rename(first, folder / "part1.gguf");
  EXPECT_EQ(folder.open(folder / "part1.gguf"),
            "part1.gguf: a part of a split model under another name; rename it: want NAME-00001-of-00002.gguf");
  std::filesystem::copy_file(folder / "model-00002-of-00002.gguf", first);
  EXPECT_EQ(folder.open(first),
            "model-00001-of-00002.gguf: a part of a split model under another name; rename it: want "
            "NAME-00002-of-00002.gguf");
}

TEST(GgufSplit, OneFile) {
  SplitFile folder;
  GgufWriter writer = valid_file();
  EXPECT_EQ(folder.open(folder.write("model.gguf", writer.file())), "");
  EXPECT_EQ(folder.files.size(), 1u);
  writer.add("split.count", kU16, raw(uint16_t{0}));
  EXPECT_EQ(folder.open(folder.write("merged.gguf", writer.file())), "") << "as llama-gguf-split --merge writes it";
  EXPECT_EQ(folder.parsed.tensors.size(), 3u);
  EXPECT_NE(folder.open(folder / "missing.gguf").find("cannot open"), std::string::npos);
}

TEST(GgufSplit, NamesOfParts) {
  const std::vector<std::string> two = {"m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"};
  EXPECT_EQ(gguf_parts(two[0]), two);
  EXPECT_EQ(gguf_parts("m-Q8_0.gguf"), std::vector<std::string>{"m-Q8_0.gguf"});
  std::string found;
  EXPECT_EQ(choose_gguf({two[1], two[0]}, "q8_0", "here", &found).message(), "");
  EXPECT_EQ(found, two[0]);
  EXPECT_EQ(choose_gguf({"m-00000-of-00000.gguf", two[1]}, "", "here", &found).message(), "here: no GGUF file");
}

}  // namespace
}  // namespace pinion
