#include "loader/gguf/gguf.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <set>
#include <type_traits>

#include "kernels/base/text.h"
#include "kernels/base/utf8.h"
#include "loader/files/hints.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

constexpr size_t kMaxNesting = 4;        // of arrays
constexpr size_t kMaxNameBytes = 65535;  // of keys and names of tensors
constexpr uint64_t kMaxListed = 4096;    // items of a list that is kept without the vocabulary
constexpr int64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;             // a name of one letter, its type, a value of one byte
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // a name of one letter, one dimension, type, offset

// Reads the header from front to back. The first failure is kept and later reads return zeros.
struct Header {
  std::span<const std::byte> file;
  std::string where;
  bool keeps_vocabulary;
  size_t at = kGgufMagic.size();
  uint64_t values = 0;               // counted so far
  std::string current = {};          // ": KEY" or ": TENSOR", for errors
  std::vector<size_t> indexes = {};  // in the arrays of a key, outermost first
  Error failure = {};

  void fail(std::string what, Shown expected = {}, Shown actual = {}) {
    if (failure) return;
    failure = error(std::move(what), where + current, std::move(expected), std::move(actual));
    for (const size_t index : indexes) failure.where += "[" + std::to_string(index) + "]";
  }

  bool has(uint64_t bytes) {
    const uint64_t limit = std::min<uint64_t>(file.size(), kMaxGgufHeaderBytes);
    if (!failure && bytes > limit - at) {
      if (limit < file.size()) fail("GGUF header too long", at_most(limit) + " bytes");
      fail("file ends inside the header; download it again", std::to_string(bytes) + " bytes",
           std::to_string(limit - at));
    }
    return !failure;
  }

  // True if the rest of the file can hold this many values; nothing is allocated before.
  bool count(uint64_t more, uint64_t min_bytes) {
    if (more > kMaxGgufValues - values) {
      fail("too many values", at_most(kMaxGgufValues) + " in the header", std::to_string(more));
    }
    values += failure ? 0 : more;
    return !failure && has(more * min_bytes);
  }

  template <class T>
  T number() {
    T value{};
    if (!has(sizeof value)) return value;
    std::memcpy(&value, file.data() + at, sizeof value);
    at += sizeof value;
    return value;
  }

  std::string_view text() {
    const auto bytes = number<uint64_t>();
    if (!has(bytes)) return {};
    const std::string_view result{reinterpret_cast<const char*>(file.data()) + at, bytes};
    at += bytes;
    if (!is_utf8(result)) fail("not valid UTF-8", {}, brief(Json(result.substr(0, kMaxNameBytes))));
    return result;
  }

  // A key, or the name of a tensor.
  std::string name(const char* failed) {
    current.clear();
    const std::string result(text().substr(0, kMaxNameBytes + 1));
    if (!is_printable(result) || result.size() > kMaxNameBytes) fail(failed, {}, brief(result));
    current = ": " + result;
    return result;
  }
};

template <class T>
Json read_number(Header& header) {
  const T value = header.number<T>();
  if constexpr (std::is_floating_point_v<T>) {
    // Gemma 3n's layers without sparse gates have cuts of minus infinity.
    const bool is_cut = header.current.ends_with(".activation_sparsity_scale");
    if (is_cut && std::isinf(value) && value < 0) return std::numeric_limits<T>::lowest();
    if (!std::isfinite(value)) header.fail("not a finite number", {}, value);
  }
  return value;
}

Json read_bool(Header& header) {
  const auto value = header.number<uint8_t>();
  if (value > 1) header.fail("not a truth value", "0 or 1", value);
  return value == 1;
}

Json read_text(Header& header) { return header.text(); }
Json read_array(Header& header);

struct ValueType {
  uint64_t min_bytes;
  Json (*read)(Header& header);
};

// By the number of the type in the file.
constexpr ValueType kValueTypes[] = {
    {1, read_number<uint8_t>},
    {1, read_number<int8_t>},
    {2, read_number<uint16_t>},
    {2, read_number<int16_t>},
    {4, read_number<uint32_t>},
    {4, read_number<int32_t>},
    {4, read_number<float>},
    {1, read_bool},
    {8, read_text},
    {12, read_array},
    {8, read_number<uint64_t>},
    {8, read_number<int64_t>},
    {8, read_number<double>},
};

ValueType read_type(Header& header) {
  const auto type = header.number<uint32_t>();
  if (type < std::size(kValueTypes)) return kValueTypes[type];
  header.fail("unknown type of value", {}, type);
  return kValueTypes[0];
}

Json read_array(Header& header) {
  const ValueType type = read_type(header);
  const auto count = header.number<uint64_t>();
  if (header.indexes.size() == kMaxNesting) header.fail("arrays nested too deep", "at most 4");
  Json::array_t items;
  if (!header.count(count, type.min_bytes)) return items;
  const bool is_kept = header.keeps_vocabulary || count <= kMaxListed;
  items.reserve(is_kept ? count : 0);
  header.indexes.push_back(0);
  for (uint64_t i = 0; i < count && !header.failure; ++i) {
    header.indexes.back() = i;
    if (is_kept) items.push_back(type.read(header));
    if (!is_kept) type.read == read_text ? void(header.text()) : void(type.read(header));
  }
  header.indexes.pop_back();
  return items;
}

void check_version(Header& header) {
  const auto version = header.number<uint32_t>();
  if (version == 2 || version == 3) return;
  header.fail(version == 0           ? "not a GGUF file"
              : version % 65536 == 0 ? "a big-endian GGUF file; download the little-endian one"
              : version == 1         ? "an old version of GGUF; download a newer conversion of the model"
                                     : "unknown version of GGUF",
              "version 2 or 3", version);
}

// `offset`: of this tensor in the data, then of the next one.
void read_tensor(Header& header, int64_t alignment, int64_t* offset, TensorView* out) {
  out->name = header.name("invalid name of a tensor");
  const auto dimensions = header.number<uint32_t>();
  if (dimensions < 1 || dimensions > 4) return header.fail("dimensions", "1 to 4", dimensions);
  int64_t elements = 1, end = *offset;
  bool is_possible = true;
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = header.number<int64_t>();
    out->shape.insert(out->shape.begin(), size);
    is_possible &= size > 0 && !__builtin_mul_overflow(elements, size, &elements);
  }
  const auto id = header.number<uint32_t>();
  const auto stored_offset = header.number<int64_t>();
  if (header.failure) return;

  const BlockFormat* format = ggml_type(id);
  if (!format) return header.fail("unknown type of tensor", {}, id);
  const std::string type(format->name);
  if (format->elements == 0) {
    return header.fail("tensor type " + type + " is not supported; download the model as Q4_K_M, Q8_0 or BF16");
  }
  out->dtype = format->dtype;
  is_possible = is_possible && out->shape.back() % format->elements == 0 &&
                !__builtin_mul_overflow(elements / format->elements, format->bytes, &out->bytes) &&
                !__builtin_add_overflow(end, out->bytes, &end) && !__builtin_add_overflow(end, alignment - 1, &end);
  if (!is_possible) return header.fail("impossible shape", {}, type + " " + shape_text(out->shape));
  // llama.cpp, too, refuses tensors with other gaps between them than those of the alignment.
  if (stored_offset != *offset) header.fail("wrong offset", std::to_string(*offset), stored_offset);
  *offset = end & -alignment;
}

Error open_part(const std::filesystem::path& path, std::vector<MappedFile>* files, GgufFile* out,
                bool keeps_vocabulary) {
  if (Error e = map_file(path, &files->emplace_back())) return e;
  return parse_gguf(files->back().contents(), path.string(), out, keeps_vocabulary);
}

}  // namespace

Error parse_gguf(std::span<const std::byte> file, const std::string& where, GgufFile* out, bool keeps_vocabulary) {
  const std::string_view begin{reinterpret_cast<const char*>(file.data()), std::min(file.size(), size_t{64})};
  if (!begin.starts_with(kGgufMagic)) return with_foreign_hint(error("not a GGUF file", where), begin);
  Header header{file, where, keeps_vocabulary};
  check_version(header);
  const auto tensors = header.number<uint64_t>(), keys = header.number<uint64_t>();
  if (!header.count(tensors, kMinTensorBytes) || !header.count(keys, kMinKeyBytes)) return header.failure;
  GgufFile result;
  for (uint64_t i = 0; i < keys && !header.failure; ++i) {
    const std::string key = header.name("invalid key");
    const bool is_new = result.metadata.emplace(key, read_type(header).read(header)).second;
    if (!is_new) header.fail("key given twice");
  }
  if (header.failure) return header.failure;
  JsonFields fields{result.metadata, where};
  const int64_t alignment = fields.integer("general.alignment", 32, 1, kMaxAlignment);
  if (!std::has_single_bit(static_cast<uint64_t>(alignment))) {
    fields.fail("general.alignment", "wrong alignment", "a power of two", alignment);
  }
  if (fields.error) return fields.error;

  result.tensors.resize(tensors);
  std::set<std::string_view> names;
  int64_t offset = 0;
  for (TensorView& tensor : result.tensors) {
    read_tensor(header, alignment, &offset, &tensor);
    if (!names.insert(tensor.name).second) header.fail("tensor given twice");
    if (header.failure) return header.failure;
  }
  int64_t start = static_cast<int64_t>(header.at);
  for (TensorView& tensor : result.tensors) {
    start = (start + alignment - 1) & -alignment;
    if (tensor.bytes > std::ssize(file) - start) {
      return error("file ends before the end of this tensor; download it again", where + ": " + tensor.name,
                   std::to_string(static_cast<uint64_t>(start) + tensor.bytes) + " bytes", file.size());
    }
    tensor.data = file.data() + start;
    start += tensor.bytes;
  }
  *out = std::move(result);
  return {};
}

double bits_per_weight(const GgufFile& gguf) {
  int64_t bytes = 0, elements = 0;
  for (const TensorView& tensor : gguf.tensors) {
    if (!tensor.name.starts_with("blk.") || tensor.shape.size() < 2) continue;
    bytes += tensor.bytes;
    elements += tensor.elements();
  }
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, elements));
}

Error open_gguf(const std::filesystem::path& path, std::vector<MappedFile>* files, GgufFile* out,
                bool keeps_vocabulary) {
  files->clear();
  if (Error e = open_part(path, files, out, keeps_vocabulary)) return e;
  JsonFields given{out->metadata, path.string()};
  const int64_t parts = given.integer("split.count", 0, 0, 99'999);  // a merged file has 0
  if (given.error || parts <= 1) return given.error;
  const int64_t tensors = given.integer("split.tensors.count", {}, 0),
                part_index = given.integer("split.no", {}, 0, parts - 1);
  const std::vector<std::string> paths = gguf_parts(path.string());
  if (given.error) return given.error;
  if (std::ssize(paths) != parts || paths[part_index] != path.string()) {
    return error("a part of a split model under another name; rename it", path.string(),
                 formatted("NAME-%05d-of-%05d.gguf", static_cast<int>(part_index + 1), static_cast<int>(parts)));
  }
  files->clear();
  GgufFile whole;
  std::set<std::string> names;
  for (int64_t part = 0; part < parts; ++part) {
    const std::string& part_path = paths[part];
    std::error_code code;
    if (!std::filesystem::exists(part_path, code)) {
      return error("a part of this model is missing; download it into the same folder", part_path);
    }
    GgufFile piece;
    if (Error e = open_part(part_path, files, &piece, keeps_vocabulary)) return e;
    JsonFields split{piece.metadata, part_path};
    split.integer("split.count", {}, parts, parts);
    split.integer("split.no", {}, part, part);
    if (split.error) return split.error;
    if (part == 0) whole.metadata = std::move(piece.metadata);
    for (TensorView& tensor : piece.tensors) {
      if (!names.insert(tensor.name).second) return error("tensor given twice", part_path + ": " + tensor.name);
      whole.tensors.push_back(std::move(tensor));
    }
  }
  if (std::ssize(whole.tensors) != tensors) {
    return error("the parts of this model do not fit together; download all of them again", path.string(),
                 std::to_string(tensors) + " tensors", whole.tensors.size());
  }
  *out = std::move(whole);
  return {};
}

}  // namespace pinion
