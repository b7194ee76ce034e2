#include "loader/checkpoint/safetensors.h"

#include <cstring>
#include <iterator>

#include "loader/files/hints.h"
#include "loader/files/json.h"
#include "loader/gguf/gguf.h"

namespace pinion {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bits;
};

constexpr DTypeRow kDTypes[] = {
    {DType::bf16, "BF16", 16},      {DType::f16, "F16", 16},        {DType::f32, "F32", 32},
    {DType::f64, "F64", 64},        {DType::i8, "I8", 8},           {DType::i16, "I16", 16},
    {DType::i32, "I32", 32},        {DType::i64, "I64", 64},        {DType::u8, "U8", 8},
    {DType::u16, "U16", 16},        {DType::u32, "U32", 32},        {DType::u64, "U64", 64},
    {DType::boolean, "BOOL", 8},    {DType::f8_e4m3, "F8_E4M3", 8}, {DType::f8_e5m2, "F8_E5M2", 8},
    {DType::f8_e8m0, "F8_E8M0", 8}, {DType::f4, "F4", 4},           {DType::f6_e2m3, "F6_E2M3", 6},
    {DType::f6_e3m2, "F6_E3M2", 6}, {DType::c64, "C64", 64},
};

constexpr size_t kLengthBytes = 8;

// The header's JSON text, between the length and the data.
Error split_header(std::span<const std::byte> file, const std::string& where, std::string_view* header) {
  if (file.size() < kLengthBytes) return error("not a safetensors file", where, "at least 8 bytes", file.size());
  uint64_t bytes;
  std::memcpy(&bytes, file.data(), sizeof bytes);
  if (bytes > kMaxSafetensorsHeaderBytes) {
    return error("safetensors header too long", where, at_most(kMaxSafetensorsHeaderBytes) + " bytes", bytes);
  }
  if (bytes > file.size() - kLengthBytes) {
    return error("file ends inside the safetensors header; download it again", where, std::to_string(bytes) + " bytes",
                 file.size() - kLengthBytes);
  }
  *header = {reinterpret_cast<const char*>(file.data()) + kLengthBytes, bytes};
  // Padding is allowed only at the end, so no other format can hide in the file.
  const size_t last = header->find_last_not_of(' ');
  if (last == std::string_view::npos || header->front() != '{' || (*header)[last] != '}') {
    return error("safetensors header is not a JSON object", where);
  }
  return {};
}

// Bytes of a tensor of this shape; false if the count overflows or leaves a byte unfilled.
bool shape_bytes(std::span<const int64_t> shape, int64_t bits, int64_t* bytes) {
  int64_t total_bits = bits;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(total_bits, size, &total_bits)) return false;
  }
  *bytes = total_bits / 8;
  return total_bits % 8 == 0;
}

// One entry of the header. Its offsets are checked against the file's size; check_coverage compares neighbours.
Error parse_tensor(const std::string& name, const Json& entry, const std::string& where,
                   std::span<const std::byte> data, TensorView* out) {
  JsonFields fields{entry, where + ": " + name};
  const std::string dtype = fields.text("dtype");
  out->name = name;
  const Json* shape = fields.find("shape");
  if (!shape || !shape->is_array()) fields.fail("shape", "wrong type", "an array");
  out->shape = fields.integers("shape", 0);
  const std::vector<int64_t> offsets = fields.integers("data_offsets", 0);
  if (offsets.size() != 2) fields.fail("data_offsets", "wrong length", "2", offsets.size());
  if (const auto unknown = fields.unread(); !unknown.empty()) fields.fail(brief(unknown[0]), "unknown field");
  if (fields.error) return fields.error;

  const auto row = std::ranges::find(kDTypes, dtype, &DTypeRow::name);
  if (row == std::end(kDTypes)) return error("unknown dtype", fields.where, {}, brief(dtype));
  out->dtype = row->dtype;
  if (offsets[0] > offsets[1]) return error("data_offsets are reversed", fields.where);
  if (offsets[1] > std::ssize(data)) {
    return error("file ends before this tensor; download it again", fields.where,
                 std::to_string(offsets[1]) + " bytes of data", data.size());
  }
  out->data = data.data() + offsets[0];
  if (!shape_bytes(out->shape, row->bits, &out->bytes)) {
    return error("impossible shape", fields.where, {}, dtype + " " + shape_text(out->shape));
  }
  if (out->bytes != offsets[1] - offsets[0]) {
    return error("shape and data_offsets disagree", fields.where,
                 dtype + " " + shape_text(out->shape) + " in " + std::to_string(out->bytes) + " bytes",
                 offsets[1] - offsets[0]);
  }
  return {};
}

Error parse_metadata(const Json& entry, const std::string& where, std::map<std::string, std::string>* out) {
  JsonFields fields{entry, where + ": __metadata__"};
  if (!entry.is_object()) return error("wrong type", fields.where, "an object", brief(entry));
  for (const auto& [name, value] : entry.items()) (*out)[name] = fields.text(name);
  return fields.error;
}

// The tensors, in order, must cover the data from its first byte to its last.
Error check_coverage(std::span<const TensorView> tensors, std::span<const std::byte> data, const std::string& where) {
  const std::byte* next = data.data();
  for (const TensorView& tensor : tensors) {
    if (tensor.data != next) {
      return error(tensor.data < next ? "tensors overlap" : "gap between tensors", where + ": " + tensor.name,
                   "offset " + std::to_string(next - data.data()), tensor.data - data.data());
    }
    next += tensor.bytes;
  }
  const std::byte* end = data.data() + data.size();
  if (next == end) return {};
  return error("bytes after the last tensor", where, std::to_string(next - data.data()) + " bytes of data",
               data.size());
}

}  // namespace

std::string_view dtype_name(DType dtype) {
  if (const BlockFormat* format = block_format(dtype)) return format->name;
  return std::ranges::find(kDTypes, dtype, &DTypeRow::dtype)->name;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (const int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

Error parse_safetensors(std::span<const std::byte> file, const std::string& where, Safetensors* out) {
  std::string_view header;
  if (Error e = split_header(file, where, &header)) {
    return with_foreign_hint(std::move(e), {reinterpret_cast<const char*>(file.data()), file.size()});
  }
  Json json;
  if (Error e = parse_json(header, where, &json)) return e;
  const std::span<const std::byte> data = file.subspan(kLengthBytes + header.size());

  Safetensors result;
  result.tensors.reserve(json.size());
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      if (Error e = parse_metadata(entry, where, &result.metadata)) return e;
      continue;
    }
    if (!is_printable(name)) return error("invalid tensor name", where, {}, brief(name));
    if (Error e = parse_tensor(name, entry, where, data, &result.tensors.emplace_back())) return e;
  }
  // An empty tensor sorts before the one that starts at the same byte.
  std::ranges::sort(result.tensors, [](const TensorView& a, const TensorView& b) {
    return a.data != b.data ? a.data < b.data : a.bytes < b.bytes;
  });
  if (Error e = check_coverage(result.tensors, data, where)) return e;
  *out = std::move(result);
  return {};
}

}  // namespace pinion
