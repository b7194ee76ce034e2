#include "kernels/ops/ops.h"

#include <atomic>
#include <cstring>
#include <initializer_list>

#include "kernels/ops/operands.h"

namespace pinion {
namespace {

const Kernels& table(const OpOptions& options) { return options.kernels ? *options.kernels : best_kernels(); }

// Checks the sizes of the packed layout, and the pointers unless n is 0.
Error check_packed(const char* op, int64_t k, int64_t n, std::initializer_list<const void*> pointers) {
  if (k < 0 || k % 4 != 0) return argument_error(op, "k", "a multiple of 4", k);
  if (k > kMaxK) return argument_error(op, "k", at_most(kMaxK) + ", or int32 may overflow", k);
  if (n < 0 || n % 4 != 0) return argument_error(op, "n", "a multiple of 4", n);
  const bool missing = std::ranges::any_of(pointers, [](const void* p) { return p == nullptr; });
  if (n > 0 && missing) return error("wrong argument", op, "pointers that are not null");
  return {};
}

// acc [64] = sums over k inputs of the columns of one strip of 64 columns. b: the flat matrix, from the first of these
// inputs on. The last strip may have fewer columns than the kernel reads, so it is copied.
void strip_sums(const Kernels& kernels, const int8_t* a, const int8_t* b, int64_t n, int64_t strip, int64_t k,
                int32_t* acc) {
  const int64_t columns = std::min(kPanelColumns, n - strip * kPanelColumns);
  const int8_t* from = b + strip * kPanelColumns * 4;
  if (columns == kPanelColumns) return kernels.gemv_s8(a, from, 4 * n, k, acc);
  constexpr int64_t kStripK = 128;  // k that are copied at a time
  int8_t copy[kStripK * kPanelColumns] = {};
  int32_t partial[kPanelColumns];
  std::fill_n(acc, kPanelColumns, 0);
  for (int64_t i = 0; i < k; i += kStripK) {
    const int64_t count = std::min(kStripK, k - i);
    for (int64_t r = 0; r < count / 4; ++r) {
      std::memcpy(copy + r * 4 * kPanelColumns, from + (i / 4 + r) * 4 * n, 4 * columns);
    }
    kernels.gemv_s8(a + i, copy, 4 * kPanelColumns, count, partial);
    for (int64_t c = 0; c < kPanelColumns; ++c) acc[c] += partial[c];
  }
}

// Calls f(first, count) for strips of n columns, at most max_count each, in four pieces per worker for balance.
template <class F>
void run_strips(const OpOptions& options, int64_t n, int64_t max_count, F f) {
  const int64_t wanted = options.workers.count <= 1 ? 1 : 4 * options.workers.count;
  const int64_t step = std::clamp<int64_t>((panel_count(n) + wanted - 1) / wanted, 1, max_count);
  run_pieces(options.workers, (panel_count(n) + step - 1) / step,
             [&](int64_t piece) { f(piece * step, std::min(step, panel_count(n) - piece * step)); });
}

constexpr int64_t kStackCodes = 16384;  // codes of a row that the stack holds at a time
constexpr int64_t kQueryRows = 16;      // query rows of one call of the kernel

// Sizes of one call of flash_attn_decode, and the layout of its scratch.
template <class T>
struct AttentionScratch {
  const FlashAttnDecode<T>& args;
  int64_t group;           // query heads per kv head
  int64_t padded;          // head_dim, a multiple of kKeyLanes
  int64_t chunks;          // chunks of seq_len positions
  int64_t lanes;           // workers; each has buffers of its own
  int64_t k_head, v_head;  // elements from one kv head to the next
  bool copies_values;      // the values need a copy in the layout of a cache
  // Byte offsets: queries, softmax states of all chunks, and the lanes' buffers.
  int64_t q, max, sum, acc, keys, values, scores, total;
};

template <class T>
constexpr KvType kTypeOf = std::is_same_v<T, float>  ? KvType::f32
                           : std::is_same_v<T, bf16> ? KvType::bf16
                                                     : KvType::q8;

// Bytes of a lane's buffer for keys, and of the one for copied values. A q8 chunk holds both.
template <class T>
int64_t chunk_bytes(int64_t padded) {
  if (std::is_same_v<T, int8_t>) return q8_chunk_bytes(padded);
  return kAttentionChunk * padded * static_cast<int64_t>(sizeof(T));
}

template <class T>
AttentionScratch<T> attention_scratch(const FlashAttnDecode<T>& args, const OpOptions& options) {
  AttentionScratch<T> p{args, 0, 0, 0, 0, 0, 0, false, 0, 0, 0, 0, 0, 0, 0, 0};
  p.group = args.num_heads / args.num_kv_heads;
  p.padded = round_up(args.head_dim, kKeyLanes);
  p.chunks = (args.seq_len + kAttentionChunk - 1) / kAttentionChunk;
  p.lanes = std::clamp<int64_t>(options.workers.count, 1, args.num_kv_heads * p.chunks);
  p.k_head = args.stride_kh ? args.stride_kh : args.seq_len * args.stride_kn;
  p.v_head = args.stride_vh ? args.stride_vh : args.seq_len * args.stride_vn;
  p.copies_values = std::is_same_v<T, bf16> || (std::is_same_v<T, float> && p.padded != args.head_dim);
  const auto reserve = [&p](int64_t* offset, int64_t bytes) { *offset = p.total, p.total += aligned(bytes); };
  const int64_t states = p.chunks * args.num_heads;
  const int64_t chunk = chunk_bytes<T>(p.padded);
  reserve(&p.q, args.num_heads * p.padded * 4);
  reserve(&p.max, states * 4);
  reserve(&p.sum, states * 4);
  reserve(&p.acc, states * p.padded * 4);
  reserve(&p.keys, p.lanes * chunk);
  reserve(&p.values, p.copies_values ? p.lanes * chunk : 0);
  reserve(&p.scores, p.lanes * kQueryRows * kScoreFloats * 4);
  return p;
}

void widen(const Kernels& kernels, const bf16* x, int64_t n, float* out) { kernels.to_float(x, n, out); }
void widen(const Kernels&, const float* x, int64_t n, float* out) { std::copy_n(x, n, out); }
void narrow(const Kernels& kernels, const float* x, int64_t n, bf16* out) { kernels.to_bf16(x, n, out); }
void narrow(const Kernels&, const float* x, int64_t n, float* out) { std::copy_n(x, n, out); }

float operand(float x) { return x; }
bf16 operand(bf16 x) { return to_operand(to_float(x)); }

// Copies keys [positions][stride] to a cache's layout of `padded` elements per head. Missing ones are zero.
template <class T>
void copy_keys(const T* keys, int64_t stride, int64_t positions, int64_t head_dim, int64_t padded, T* out) {
  std::fill_n(out, round_up(positions, kKeyLanes) * padded, T{});
  for (int64_t first = 0; first < positions; first += kKeyLanes) {
    const int64_t end = std::min(positions, first + kKeyLanes);
    for (int64_t i = 0; i < head_dim; ++i) {
      for (int64_t p = first; p < end; ++p) out[key_at<T>(p, i, padded)] = operand(keys[p * stride + i]);
    }
  }
}

// The same for values; the number of positions is padded to an even one.
template <class T>
void copy_values(const T* values, int64_t stride, int64_t positions, int64_t head_dim, int64_t padded, T* out) {
  std::fill_n(out, round_up(positions, 2) * padded, T{});
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < head_dim; ++i) out[value_at<T>(p, i, padded)] = operand(values[p * stride + i]);
  }
}

// Positions [first, first + positions) of a kv head as a chunk of the cache, copied into the lane's buffers.
template <class T>
AttentionChunk make_chunk(const AttentionScratch<T>& p, std::byte* base, int64_t lane, int64_t kv_head, int64_t first,
                          int64_t positions) {
  const FlashAttnDecode<T>& a = p.args;
  T* keys = reinterpret_cast<T*>(base + p.keys + lane * chunk_bytes<T>(p.padded));
  copy_keys(a.k + kv_head * p.k_head + first * a.stride_kn, a.stride_kn, positions, a.head_dim, p.padded, keys);
  const T* values = a.v + kv_head * p.v_head + first * a.stride_vn;
  int64_t value_stride = a.stride_vn;
  if (p.copies_values) {
    T* copy = reinterpret_cast<T*>(base + p.values + lane * chunk_bytes<T>(p.padded));
    copy_values(values, a.stride_vn, positions, a.head_dim, p.padded, copy);
    values = copy, value_stride = p.padded;
  }
  return {kTypeOf<T>, keys, values, value_stride, static_cast<int32_t>(p.padded)};
}

template <>
AttentionChunk make_chunk(const AttentionScratch<int8_t>& p, std::byte* base, int64_t lane, int64_t kv_head,
                          int64_t first, int64_t positions) {
  const FlashAttnDecode<int8_t>& a = p.args;
  std::byte* chunk = base + p.keys + lane * chunk_bytes<int8_t>(p.padded);
  std::fill_n(chunk, chunk_bytes<int8_t>(p.padded), std::byte{0});  // the centre is zero, too
  const auto codes = q8_chunk(chunk, p.padded);
  const float* key_scales = a.k_scale + kv_head * a.seq_len + first;
  const float* value_scales = a.v_scale + kv_head * a.seq_len + first;
  for (int64_t position = 0; position < positions; ++position) {
    const int8_t* key = a.k + kv_head * p.k_head + (first + position) * a.stride_kn;
    const int8_t* value = a.v + kv_head * p.v_head + (first + position) * a.stride_vn;
    const int sign = value_scales[position] < 0 ? -1 : 1;  // the value scales of a cache are not negative
    for (int64_t i = 0; i < a.head_dim; ++i) {
      codes.keys[key_code_at(position, i, p.padded)] = key[i];
      codes.values[value_code_at(position, i, p.padded)] = static_cast<int8_t>(sign * value[i]);
    }
    codes.key_scales[position] = key_scales[position];
    codes.value_scales[position] = std::abs(value_scales[position]);
  }
  return {KvType::q8, chunk, nullptr, 0, static_cast<int32_t>(p.padded)};
}

// Computes the softmax states of all query heads of a kv head over one chunk.
template <class T>
void attend_group(const Kernels& kernels, const AttentionScratch<T>& p, std::byte* base, int64_t lane, int64_t kv_head,
                  int64_t chunk) {
  const FlashAttnDecode<T>& a = p.args;
  const int64_t first = chunk * kAttentionChunk;
  const int64_t positions = std::min<int64_t>(kAttentionChunk, a.seq_len - first);
  const AttentionChunk cache = make_chunk(p, base, lane, kv_head, first, positions);
  float* scores = reinterpret_cast<float*>(base + p.scores) + lane * kQueryRows * kScoreFloats;
  AttentionSpan spans[kQueryRows];
  std::fill_n(spans, kQueryRows, AttentionSpan{0, static_cast<int32_t>(positions)});
  for (int64_t row = 0; row < p.group; row += kQueryRows) {
    const int64_t head = kv_head * p.group + row;
    const int64_t state = chunk * a.num_heads + head;
    attend_chunk(kernels, cache, reinterpret_cast<float*>(base + p.q) + head * p.padded,
                 std::min(kQueryRows, p.group - row), spans, scores,
                 {reinterpret_cast<float*>(base + p.max) + state, reinterpret_cast<float*>(base + p.sum) + state,
                  reinterpret_cast<float*>(base + p.acc) + state * p.padded});
  }
}

// Merges the states of a head's chunks in order and writes acc / sum to the result.
template <class T>
void finish_head(const Kernels& kernels, const AttentionScratch<T>& p, std::byte* base, int64_t head) {
  const auto state = [&](int64_t chunk) {
    const int64_t at = chunk * p.args.num_heads + head;
    return AttentionState{reinterpret_cast<float*>(base + p.max) + at, reinterpret_cast<float*>(base + p.sum) + at,
                          reinterpret_cast<float*>(base + p.acc) + at * p.padded};
  };
  const AttentionState all = state(0);
  for (int64_t chunk = 1; chunk < p.chunks; ++chunk) kernels.merge_attention(all, state(chunk), 1, p.padded);
  for (int64_t i = 0; i < p.args.head_dim; ++i) all.acc[i] = all.acc[i] / *all.sum;
  narrow(kernels, all.acc, p.args.head_dim, p.args.out + head * p.args.head_dim);
}

template <class T>
void decode(const Kernels& kernels, const AttentionScratch<T>& p, const Workers& workers, std::byte* base) {
  const FlashAttnDecode<T>& a = p.args;
  auto* q = reinterpret_cast<float*>(base + p.q);
  std::fill_n(q, a.num_heads * p.padded, 0.0f);
  for (int64_t h = 0; h < a.num_heads; ++h) {
    widen(kernels, a.q + h * a.head_dim, a.head_dim, q + h * p.padded);
    make_query_row(kernels, q + h * p.padded, p.padded, a.sm_scale, kTypeOf<T>);
  }
  std::atomic<int64_t> next{0};
  run_pieces(workers, p.lanes, [&](int64_t lane) {
    const int64_t tasks = a.num_kv_heads * p.chunks;
    for (int64_t t = next.fetch_add(1, std::memory_order_relaxed); t < tasks;
         t = next.fetch_add(1, std::memory_order_relaxed)) {
      attend_group(kernels, p, base, lane, t / p.chunks, t % p.chunks);
    }
  });
  run_pieces(workers, a.num_heads, [&](int64_t head) { finish_head(kernels, p, base, head); });
}

template <class T>
Error check_attention(const FlashAttnDecode<T>& a) {
  const auto wrong = [](const char* name, const std::string& expected, int64_t actual) {
    return argument_error("flash_attn_decode", name, expected, actual);
  };
  for (const auto& [name, size] :
       {std::pair{"seq_len", a.seq_len}, {"head_dim", a.head_dim}, {"num_kv_heads", a.num_kv_heads}}) {
    if (size < 1) return wrong(name, "at least 1", size);
  }
  if (a.num_heads < 1 || a.num_heads % a.num_kv_heads != 0) {
    return wrong("num_heads", "a multiple of num_kv_heads = " + std::to_string(a.num_kv_heads), a.num_heads);
  }
  for (const auto& [name, stride] : {std::pair{"stride_kn", a.stride_kn}, {"stride_vn", a.stride_vn}}) {
    if (stride < a.head_dim) return wrong(name, "at least head_dim = " + std::to_string(a.head_dim), stride);
  }
  for (const auto& [name, stride] : {std::pair{"stride_kh", a.stride_kh}, {"stride_vh", a.stride_vh}}) {
    if (stride < 0) return wrong(name, "0 or more", stride);
  }
  const bool has_scales = !std::is_same_v<T, int8_t> || (a.k_scale && a.v_scale);
  if (!a.q || !a.k || !a.v || !a.out || !has_scales) {
    return error("wrong argument", "flash_attn_decode", "pointers that are not null");
  }
  return {};
}

}  // namespace

Error sdot_pack_weights(const int8_t* b, int8_t* b_packed, int64_t k, int64_t n, const OpOptions& options) {
  if (Error e = check_packed("sdot_pack_weights", k, n, {b, b_packed})) return e;
  run_pieces(options.workers, k / 4, [&](int64_t row) {
    const int8_t* from = b + row * 4 * n;
    int8_t* to = b_packed + row * 4 * n;
    for (int64_t c = 0; c < n; ++c, to += 4) {
      for (int64_t i = 0; i < 4; ++i) to[i] = from[i * n + c];
    }
  });
  return {};
}

Error sdot_gemv(const int8_t* a, const int8_t* b_packed, int32_t* c, int64_t k, int64_t n, const OpOptions& options) {
  if (Error e = check_packed("sdot_gemv", k, n, {a, b_packed, c})) return e;
  run_strips(options, n, 16, [&](int64_t first, int64_t count) {
    for (int64_t strip = first; strip < first + count; ++strip) {
      int32_t acc[kPanelColumns];
      strip_sums(table(options), a, b_packed, n, strip, k, acc);
      std::copy_n(acc, std::min(kPanelColumns, n - strip * kPanelColumns), c + strip * kPanelColumns);
    }
  });
  return {};
}

Error sdot_gemv_fused_bf16(const bf16* x, const int8_t* b_packed, const float* w_scale, bf16* out, int64_t k, int64_t n,
                           const OpOptions& options) {
  if (Error e = check_packed("sdot_gemv_fused_bf16", k, n, {x, b_packed, w_scale, out})) return e;
  const Kernels& kernels = table(options);
  const float x_scale = row_scale(kernels, x, k);
  constexpr int64_t kStrips = 16;
  run_strips(options, n, kStrips, [&](int64_t first, int64_t count) {
    int32_t acc[kStrips * kPanelColumns] = {};
    int8_t codes[kStackCodes];
    for (int64_t i = 0; i < k; i += kStackCodes) {
      const int64_t coded = std::min(kStackCodes, k - i);
      encode_row(kernels, x + i, coded, x_scale, codes);
      for (int64_t s = 0; s < count; ++s) {
        int32_t sums[kPanelColumns];
        strip_sums(kernels, codes, b_packed + i * n, n, first + s, coded, sums);
        for (int64_t c = 0; c < kPanelColumns; ++c) acc[s * kPanelColumns + c] += sums[c];
      }
    }
    for (int64_t s = 0; s < count; ++s) {
      const int64_t column = (first + s) * kPanelColumns;
      const int64_t columns = std::min(kPanelColumns, n - column);
      float values[kPanelColumns];
      kernels.epilogue_s32(acc + s * kPanelColumns, 1, columns,
                           {.row_scale = &x_scale, .column_scale = w_scale + column}, values, kPanelColumns);
      kernels.to_bf16(values, columns, out + column);
    }
  });
  return {};
}

Error rms_norm(const bf16* x, const bf16* weight, bf16* out, int64_t d, float eps, const OpOptions& options) {
  if (d < 1) return argument_error("rms_norm", "d", "at least 1", d);
  if (!x || !weight || !out) return error("wrong argument", "rms_norm", "pointers that are not null");
  table(options).rms_norm_bf16(x, weight, d, eps, out);
  return {};
}

Error swiglu(const bf16* gate, const bf16* up, bf16* out, int64_t n, const OpOptions& options) {
  if (n < 0) return argument_error("swiglu", "n", "0 or more", n);
  if (n > 0 && (!gate || !up || !out)) return error("wrong argument", "swiglu", "pointers that are not null");
  const Workers workers = n > kSwigluSharedElements ? options.workers : Workers{};
  constexpr int64_t kPieceElements = 8192;
  run_pieces(workers, (n + kPieceElements - 1) / kPieceElements, [&](int64_t piece) {
    const int64_t at = piece * kPieceElements;
    table(options).silu_mul_bf16(gate + at, up + at, std::min(kPieceElements, n - at), out + at);
  });
  return {};
}

template <class T>
int64_t flash_attn_decode_scratch_bytes(const FlashAttnDecode<T>& args, const OpOptions& options) {
  return check_attention(args) ? 0 : attention_scratch(args, options).total;
}

template <class T>
Error flash_attn_decode(const FlashAttnDecode<T>& args, std::span<std::byte> scratch, const OpOptions& options) {
  if (Error e = check_attention(args)) return e;
  const AttentionScratch<T> p = attention_scratch(args, options);
  if (std::ssize(scratch) < p.total || reinterpret_cast<uintptr_t>(scratch.data()) % kAlignmentBytes != 0) {
    return argument_error("flash_attn_decode", "scratch",
                          std::to_string(p.total) + " bytes, aligned to " + std::to_string(kAlignmentBytes),
                          std::ssize(scratch));
  }
  decode(table(options), p, options.workers, scratch.data());
  return {};
}

template int64_t flash_attn_decode_scratch_bytes(const FlashAttnDecode<bf16>&, const OpOptions&);
template int64_t flash_attn_decode_scratch_bytes(const FlashAttnDecode<float>&, const OpOptions&);
template int64_t flash_attn_decode_scratch_bytes(const FlashAttnDecode<int8_t>&, const OpOptions&);
template Error flash_attn_decode(const FlashAttnDecode<bf16>&, std::span<std::byte>, const OpOptions&);
template Error flash_attn_decode(const FlashAttnDecode<float>&, std::span<std::byte>, const OpOptions&);
template Error flash_attn_decode(const FlashAttnDecode<int8_t>&, std::span<std::byte>, const OpOptions&);

}  // namespace pinion
