#include "loader/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>

#include "kernels/half.h"
#include "loader/checkpoint/number_formats.h"
#include "tests/loader/make_files.h"

namespace pinion {
namespace {

// An exact copy on the heap, so that sanitizers detect reads past the end.
std::string message(std::string_view file) {
  const std::vector<std::byte> exact(as_bytes(file).begin(), as_bytes(file).end());
  Safetensors parsed;
  return parse_safetensors(exact, "file", &parsed).message();
}

std::string header_message(std::string_view header, std::string_view data = {}) {
  return message(safetensors_text(header, data));
}

std::string valid_file() {
  return safetensors_text(R"({"__metadata__": {"format": "pt"},
    "b": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [8, 20]},
    "empty": {"dtype": "F32", "shape": [0, 7], "data_offsets": [8, 8]},
    "a": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}}   )",
                          "01234567abcdefghijkl");
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string file = valid_file();
  Safetensors parsed;
  ASSERT_EQ(parse_safetensors(as_bytes(file), "file", &parsed).message(), "");
  ASSERT_EQ(parsed.tensors.size(), 3u);
  EXPECT_EQ(parsed.metadata.at("format"), "pt");
  EXPECT_EQ(parsed.tensors[0].name, "a");
  EXPECT_TRUE(parsed.tensors[0].shape.empty());
  EXPECT_EQ(parsed.tensors[1].name, "empty");
  const TensorView& b = parsed.tensors[2];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype, DType::bf16);
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(b.data), b.bytes), "abcdefghijkl");
}

TEST(Safetensors, PrefixesAndExtraBytesAreRefused) {
  const std::string file = valid_file();
  for (size_t bytes = 0; bytes < file.size(); bytes++) EXPECT_NE(message(file.substr(0, bytes)), "") << bytes;
  EXPECT_EQ(message(file + "x"), "file: bytes after the last tensor: want 20 bytes of data, have 21");
  EXPECT_EQ(message(file.substr(0, 5)), "file: not a safetensors file: want at least 8 bytes, have 5");
}

TEST(Safetensors, InvalidHeadersAreErrors) {
  EXPECT_EQ(message(std::string(8, '\0')), "file: safetensors header is not a JSON object");
  EXPECT_EQ(message(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)),
            "file: safetensors header too long: want at most 100000000 bytes, have 18446744073709551615");
  EXPECT_EQ(message(std::string("\xe8\x03\0\0\0\0\0\0{}", 10)),
            "file: file ends inside the safetensors header; download it again: want 1000 bytes, have 2");
  for (const char* header : {" {}", "[]", "{}\n", "{}\t", "        ", "{} x", "null"}) {
    EXPECT_EQ(header_message(header), "file: safetensors header is not a JSON object") << header;
  }
  EXPECT_EQ(header_message("{}"), "");
  EXPECT_EQ(header_message("{}   "), "");
  EXPECT_NE(header_message("{\"a\xff\": 1}").find("invalid JSON at byte"), std::string::npos);
  EXPECT_EQ(header_message("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}"),
            "file: JSON nested too deep: want at most 64 levels");
  EXPECT_EQ(header_message(R"({"a\nb": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]}})", "x"),
            "file: invalid tensor name: \"a\\nb\"");
  EXPECT_EQ(header_message(R"({"__metadata__": {"a": 1}})"),
            "file: __metadata__: a: wrong type: want a string, have 1");
}

struct Corrupt {
  const char* entry;  // of tensor "a", with 4 bytes of data
  const char* message;
};

TEST(Safetensors, InvalidTensorsAreErrors) {
  const Corrupt cases[] = {
      {R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})", ""},
      {R"(7)", "file: a: wrong type: want an object, have 7"},
      {R"({"shape": [1], "data_offsets": [0, 4]})", "file: a: dtype: missing field"},
      {R"({"dtype": "F33", "shape": [1], "data_offsets": [0, 4]})", "file: a: unknown dtype: \"F33\""},
      {R"({"dtype": "F32", "data_offsets": [0, 4]})", "file: a: shape: wrong type: want an array"},
      {R"({"dtype": "F32", "shape": 1, "data_offsets": [0, 4]})", "file: a: shape: wrong type: want an array"},
      {R"({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]})",
       "file: a: shape: out of range: want an integer from 0 to 9.22337203685e+18, have -1"},
      {R"({"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]})",
       "file: a: shape: wrong type: want an integer from 0 to 9.22337203685e+18, have 1.0"},
      {R"({"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 4]})",
       "file: a: impossible shape: F32 [4294967296, 4294967296]"},
      {R"({"dtype": "U8", "shape": [9223372036854775807, 3], "data_offsets": [0, 4]})",
       "file: a: impossible shape: U8 [9223372036854775807, 3]"},
      {R"({"dtype": "F4", "shape": [3], "data_offsets": [0, 4]})", "file: a: impossible shape: F4 [3]"},
      {R"({"dtype": "F4", "shape": [8], "data_offsets": [0, 4]})", ""},
      {R"({"dtype": "F32", "shape": [1]})", "file: a: data_offsets: wrong length: want 2, have 0"},
      {R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 4]})",
       "file: a: data_offsets: wrong length: want 2, have 3"},
      {R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 18446744073709551615]})",
       "file: a: data_offsets: out of range: want an integer from 0 to 9.22337203685e+18, have 18446744073709551615"},
      {R"({"dtype": "F32", "shape": [1], "data_offsets": [1, 5]})",
       "file: a: file ends before this tensor; download it again: want 5 bytes of data, have 4"},
      {R"({"dtype": "F32", "shape": [1], "data_offsets": [4, 0]})", "file: a: data_offsets are reversed"},
      {R"({"dtype": "F16", "shape": [1], "data_offsets": [0, 4]})",
       "file: a: shape and data_offsets disagree: want F16 [1] in 2 bytes, have 4"},
      {R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "strides": [1]})",
       "file: a: \"strides\": unknown field"},
      {R"({"dtype": "U8", "shape": [3], "data_offsets": [1, 4]})",
       "file: a: gap between tensors: want offset 0, have 1"},
      {R"({"dtype": "U8", "shape": [3], "data_offsets": [0, 3]})",
       "file: bytes after the last tensor: want 3 bytes of data, have 4"},
      {R"({"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "b": {"dtype": "U8", "shape": [1], "data_offsets": [3, 4]})",
       "file: b: tensors overlap: want offset 4, have 3"},
      {R"({"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, "b": {"dtype": "U8", "shape": [2], "data_offsets": [2, 4]})",
       "file: b: gap between tensors: want offset 1, have 2"},
      {R"({"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "a": {"dtype": "U8", "shape": [0], "data_offsets": [4, 4]})",
       "file: JSON key given twice: \"a\""},
  };
  for (const Corrupt& c : cases) EXPECT_EQ(header_message(std::string("{\"a\": ") + c.entry + "}", "1234"), c.message);
}

TEST(Safetensors, ManyTensorsAreNotQuadratic) {
  constexpr int kTensors = 100'000;
  std::string header = "{";
  for (int i = 0; i < kTensors; i++) {
    header += (i ? ", \"t" : "\"t") + std::to_string(i) + R"(": {"dtype": "U8", "shape": [1], "data_offsets": [)" +
              std::to_string(kTensors - 1 - i) + ", " + std::to_string(kTensors - i) + "]}";
  }
  const std::string file = safetensors_text(header + "}", std::string(kTensors, 'x'));
  Safetensors parsed;
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(parse_safetensors(as_bytes(file), "file", &parsed).message(), "");
  EXPECT_EQ(parsed.tensors.size(), kTensors);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "about 0.3 s in a release build";
}

TEST(NumberFormats, F16IsExact) {
  EXPECT_EQ(to_float(f16{0x3c00}), 1.0f);
  EXPECT_EQ(to_float(f16{0xc500}), -5.0f);
  EXPECT_EQ(to_float(f16{0x7bff}), 65504.0f);
  EXPECT_EQ(to_float(f16{0x0001}), 0x1p-24f);
  EXPECT_EQ(to_float(f16{0x83ff}), -0x3ffp-24f);
  EXPECT_EQ(to_float(f16{0x0400}), 0x1p-14f);
  EXPECT_EQ(to_float(f16{0x7c00}), std::numeric_limits<float>::infinity());
  EXPECT_NE(to_float(f16{0x7e00}), to_float(f16{0x7e00})) << "NaN";
  EXPECT_TRUE(std::signbit(to_float(f16{0x8000})));
}

TEST(NumberFormats, ReadsFloatsOfEveryType) {
  const uint16_t bf16s[] = {0x3f80, 0xc040};
  const uint16_t f16s[] = {0x3c00, 0xc200};
  const float f32s[] = {1.0f, -3.0f};
  const std::pair<DType, const void*> sources[] = {{DType::bf16, bf16s}, {DType::f16, f16s}, {DType::f32, f32s}};
  for (const auto& [dtype, data] : sources) {
    float out[2] = {};
    read_floats({"t", dtype, {2}, static_cast<const std::byte*>(data), dtype == DType::f32 ? 8 : 4}, out);
    EXPECT_EQ(out[0], 1.0f) << dtype_name(dtype);
    EXPECT_EQ(out[1], -3.0f) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace pinion
