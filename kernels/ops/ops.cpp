#include "kernels/ops/ops.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <initializer_list>
#include <string>

#include "kernels/ops/arguments.h"
#include "kernels/ops/row_codes.h"

namespace pinion {
namespace {

const Kernels& table(const OpOptions& options) { return options.kernels ? *options.kernels : best_kernels(); }

// Sizes of the packed layout, and pointers that must be there when there is something to read.
Error check_packed(const char* operation, int64_t k, int64_t n, std::initializer_list<const void*> pointers) {
  if (k < 0 || k % 4 != 0) return argument(operation, "k", "a multiple of 4", k);
  if (k > kMaxK) return argument(operation, "k", "at most " + std::to_string(kMaxK) + ", or int32 may overflow", k);
  if (n < 0 || n % 4 != 0) return argument(operation, "n", "a multiple of 4", n);
  const bool missing = std::ranges::any_of(pointers, [](const void* p) { return p == nullptr; });
  if (n > 0 && missing) return error("wrong argument", operation, "pointers that are not null");
  return {};
}

// acc[c] = sums of the strip's columns, from row 0 of `k` rows at b on. The flat layout's last strip may be narrower
// than a kernel: it goes through a copy.
void strip_sums(const Kernels& kernels, const int8_t* a, const int8_t* b, int64_t n, int64_t strip, int64_t k,
                int32_t* acc) {
  const int64_t columns = std::min(kPanelColumns, n - strip * kPanelColumns);
  const int8_t* from = b + strip * kPanelColumns * 4;
  if (columns == kPanelColumns) return kernels.gemv_s8(a, from, 4 * n, k, acc);
  constexpr int64_t kPiece = 128;  // of k
  int8_t copy[kPiece * kPanelColumns] = {};
  int32_t part[kPanelColumns];
  std::fill_n(acc, kPanelColumns, 0);
  for (int64_t i = 0; i < k; i += kPiece) {
    const int64_t count = std::min(kPiece, k - i);
    for (int64_t r = 0; r < count / 4; ++r) {
      std::memcpy(copy + r * 4 * kPanelColumns, from + (i / 4 + r) * 4 * n, static_cast<size_t>(4 * columns));
    }
    kernels.gemv_s8(a + i, copy, 4 * kPanelColumns, count, part);
    for (int64_t c = 0; c < kPanelColumns; ++c) acc[c] += part[c];
  }
}

// f(first, count) over the strips of n columns, several at a time: enough pieces that no worker idles.
template <class F>
void share_strips(const OpOptions& options, int64_t n, int64_t most, F f) {
  const int64_t wanted = options.workers.count <= 1 ? 1 : 4 * options.workers.count;
  const int64_t step = std::clamp<int64_t>((panel_count(n) + wanted - 1) / wanted, 1, most);
  run_pieces(options.workers, (panel_count(n) + step - 1) / step,
             [&](int64_t piece) { f(piece * step, std::min(step, panel_count(n) - piece * step)); });
}

constexpr int64_t kCodes = 16384;  // of a row that are kept at a time, on the stack

// --- attention
// ---------------------------------------------------------------------------------------------------------

constexpr int64_t kRows = 16;  // query rows that one call of the kernel takes

// Where everything lies in the scratch.
template <class T>
struct AttentionPlan {
  const FlashAttnDecode<T>& args;
  int64_t group, padded, chunks, lanes;
  int64_t k_head, v_head;
  bool copies_values;  // the caller's do not lie as a cache's
  // In bytes from the scratch's start; a lane is one who works.
  int64_t q, max, sum, acc, keys, values, scores, total;
};

template <class T>
constexpr KvType kTypeOf = std::is_same_v<T, float>  ? KvType::f32
                           : std::is_same_v<T, bf16> ? KvType::bf16
                                                     : KvType::q8;

// Of a lane's keys, and of its values if they are copied. A chunk of codes has both in one block.
template <class T>
int64_t block_bytes(int64_t padded) {
  if (std::is_same_v<T, int8_t>) return q8_chunk_bytes(padded);
  return kAttentionChunk * padded * static_cast<int64_t>(sizeof(T));
}

template <class T>
AttentionPlan<T> attention_plan(const FlashAttnDecode<T>& args, const OpOptions& options) {
  AttentionPlan<T> p{args, 0, 0, 0, 0, 0, 0, false, 0, 0, 0, 0, 0, 0, 0, 0};
  p.group = args.num_heads / args.num_kv_heads;
  p.padded = round_up(args.head_dim, kKeyBlock);
  p.chunks = (args.seq_len + kAttentionChunk - 1) / kAttentionChunk;
  p.lanes = std::clamp<int64_t>(options.workers.count, 1, args.num_kv_heads * p.chunks);
  p.k_head = args.stride_kh ? args.stride_kh : args.seq_len * args.stride_kn;
  p.v_head = args.stride_vh ? args.stride_vh : args.seq_len * args.stride_vn;
  p.copies_values = std::is_same_v<T, bf16> || (std::is_same_v<T, float> && p.padded != args.head_dim);
  const auto place = [&p](int64_t* where, int64_t bytes) { *where = p.total, p.total += aligned(bytes); };
  const int64_t states = p.chunks * args.num_heads;
  const int64_t block = block_bytes<T>(p.padded);
  place(&p.q, args.num_heads * p.padded * 4);
  place(&p.max, states * 4);
  place(&p.sum, states * 4);
  place(&p.acc, states * p.padded * 4);
  place(&p.keys, p.lanes * block);
  place(&p.values, p.copies_values ? p.lanes * block : 0);
  place(&p.scores, p.lanes * kRows * kScoreFloats * 4);
  return p;
}

void widen(const Kernels& kernels, const bf16* x, int64_t n, float* out) { kernels.to_float(x, n, out); }
void widen(const Kernels&, const float* x, int64_t n, float* out) { std::copy_n(x, n, out); }
void narrow(const Kernels& kernels, const float* x, int64_t n, bf16* out) { kernels.to_bf16(x, n, out); }
void narrow(const Kernels&, const float* x, int64_t n, float* out) { std::copy_n(x, n, out); }

float operand(float x) { return x; }
bf16 operand(bf16 x) { return to_operand(to_float(x)); }

// [positions][stride] -> a cache's keys of padded head_dim; what is missing of the last block is zero.
template <class T>
void place_keys(const T* keys, int64_t stride, int64_t positions, int64_t head_dim, int64_t padded, T* out) {
  std::fill_n(out, round_up(positions, kKeyBlock) * padded, T{});
  for (int64_t first = 0; first < positions; first += kKeyBlock) {
    const int64_t end = std::min(positions, first + kKeyBlock);
    for (int64_t i = 0; i < head_dim; ++i) {
      for (int64_t p = first; p < end; ++p) out[key_at<T>(p, i, padded)] = operand(keys[p * stride + i]);
    }
  }
}

// Likewise values, of an even number of positions.
template <class T>
void place_values(const T* values, int64_t stride, int64_t positions, int64_t head_dim, int64_t padded, T* out) {
  std::fill_n(out, round_up(positions, 2) * padded, T{});
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < head_dim; ++i) out[value_at<T>(p, i, padded)] = operand(values[p * stride + i]);
  }
}

// A chunk's keys and values as the kernels read them, in the lane's memory where they do not lie so already.
template <class T>
AttentionChunk place_chunk(const AttentionPlan<T>& p, std::byte* base, int64_t lane, int64_t kv_head, int64_t first,
                           int64_t positions) {
  const FlashAttnDecode<T>& a = p.args;
  T* keys = reinterpret_cast<T*>(base + p.keys + lane * block_bytes<T>(p.padded));
  place_keys(a.k + kv_head * p.k_head + first * a.stride_kn, a.stride_kn, positions, a.head_dim, p.padded, keys);
  const T* values = a.v + kv_head * p.v_head + first * a.stride_vn;
  int64_t value_stride = a.stride_vn;
  if (p.copies_values) {
    T* copy = reinterpret_cast<T*>(base + p.values + lane * block_bytes<T>(p.padded));
    place_values(values, a.stride_vn, positions, a.head_dim, p.padded, copy);
    values = copy, value_stride = p.padded;
  }
  return {kTypeOf<T>, keys, values, value_stride, static_cast<int32_t>(p.padded)};
}

template <>
AttentionChunk place_chunk(const AttentionPlan<int8_t>& p, std::byte* base, int64_t lane, int64_t kv_head,
                           int64_t first, int64_t positions) {
  const FlashAttnDecode<int8_t>& a = p.args;
  std::byte* block = base + p.keys + lane * block_bytes<int8_t>(p.padded);
  std::fill_n(block, block_bytes<int8_t>(p.padded), std::byte{0});  // the centre, too
  const auto codes = q8_chunk(block, p.padded);
  const float* key_scales = a.k_scale + kv_head * a.seq_len + first;
  const float* value_scales = a.v_scale + kv_head * a.seq_len + first;
  for (int64_t position = 0; position < positions; ++position) {
    const int8_t* key = a.k + kv_head * p.k_head + (first + position) * a.stride_kn;
    const int8_t* value = a.v + kv_head * p.v_head + (first + position) * a.stride_vn;
    const int sign = value_scales[position] < 0 ? -1 : 1;  // a cache's scales are not negative
    for (int64_t i = 0; i < a.head_dim; ++i) {
      codes.keys[key_code_at(position, i, p.padded)] = key[i];
      codes.values[value_code_at(position, i, p.padded)] = static_cast<int8_t>(sign * value[i]);
    }
    codes.key_scales[position] = key_scales[position];
    codes.value_scales[position] = std::abs(value_scales[position]);
  }
  return {KvType::q8, block, nullptr, 0, static_cast<int32_t>(p.padded)};
}

// A kv head's group over one chunk.
template <class T>
void attend_group(const Kernels& kernels, const AttentionPlan<T>& p, std::byte* base, int64_t lane, int64_t kv_head,
                  int64_t chunk) {
  const FlashAttnDecode<T>& a = p.args;
  const int64_t first = chunk * kAttentionChunk;
  const int64_t positions = std::min<int64_t>(kAttentionChunk, a.seq_len - first);
  const AttentionChunk part = place_chunk(p, base, lane, kv_head, first, positions);
  float* scores = reinterpret_cast<float*>(base + p.scores) + lane * kRows * kScoreFloats;
  AttentionSpan spans[kRows];
  std::fill_n(spans, kRows, AttentionSpan{0, static_cast<int32_t>(positions)});
  for (int64_t row = 0; row < p.group; row += kRows) {
    const int64_t head = kv_head * p.group + row;
    const int64_t state = chunk * a.num_heads + head;
    attend_chunk(kernels, part, reinterpret_cast<float*>(base + p.q) + head * p.padded, std::min(kRows, p.group - row),
                 spans, scores,
                 {reinterpret_cast<float*>(base + p.max) + state, reinterpret_cast<float*>(base + p.sum) + state,
                  reinterpret_cast<float*>(base + p.acc) + state * p.padded});
  }
}

// Merges a head's chunks in order and divides by the sum.
template <class T>
void finish_head(const Kernels& kernels, const AttentionPlan<T>& p, std::byte* base, int64_t head) {
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
Error check_attention(const FlashAttnDecode<T>& a) {
  const auto wrong = [](const char* name, const std::string& expected, int64_t actual) {
    return argument("flash_attn_decode", name, expected, actual);
  };
  if (a.seq_len < 1) return wrong("seq_len", "at least 1", a.seq_len);
  if (a.head_dim < 1) return wrong("head_dim", "at least 1", a.head_dim);
  if (a.num_kv_heads < 1) return wrong("num_kv_heads", "at least 1", a.num_kv_heads);
  if (a.num_heads < 1 || a.num_heads % a.num_kv_heads != 0) {
    return wrong("num_heads", "a multiple of num_kv_heads = " + std::to_string(a.num_kv_heads), a.num_heads);
  }
  if (a.stride_kn < a.head_dim) {
    return wrong("stride_kn", "at least head_dim = " + std::to_string(a.head_dim), a.stride_kn);
  }
  if (a.stride_vn < a.head_dim) {
    return wrong("stride_vn", "at least head_dim = " + std::to_string(a.head_dim), a.stride_vn);
  }
  if (a.stride_kh < 0) return wrong("stride_kh", "0 or more", a.stride_kh);
  if (a.stride_vh < 0) return wrong("stride_vh", "0 or more", a.stride_vh);
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
  share_strips(options, n, 16, [&](int64_t first, int64_t count) {
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
  share_strips(options, n, kStrips, [&](int64_t first, int64_t count) {
    int32_t acc[kStrips * kPanelColumns] = {};
    int8_t codes[kCodes];
    for (int64_t i = 0; i < k; i += kCodes) {
      const int64_t part = std::min(kCodes, k - i);
      encode_row(kernels, x + i, part, x_scale, codes);
      for (int64_t s = 0; s < count; ++s) {
        int32_t sums[kPanelColumns];
        strip_sums(kernels, codes, b_packed + i * n, n, first + s, part, sums);
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
  if (d < 1) return argument("rms_norm", "d", "at least 1", d);
  if (!x || !weight || !out) return error("wrong argument", "rms_norm", "pointers that are not null");
  table(options).rms_norm_bf16(x, weight, d, eps, out);
  return {};
}

Error swiglu(const bf16* gate, const bf16* up, bf16* out, int64_t n, const OpOptions& options) {
  if (n < 0) return argument("swiglu", "n", "0 or more", n);
  if (n > 0 && (!gate || !up || !out)) return error("wrong argument", "swiglu", "pointers that are not null");
  const Workers workers = n > kSwigluSharedElements ? options.workers : Workers{};
  constexpr int64_t kPiece = 8192;
  run_pieces(workers, (n + kPiece - 1) / kPiece, [&](int64_t piece) {
    const int64_t at = piece * kPiece;
    table(options).silu_mul_bf16(gate + at, up + at, std::min(kPiece, n - at), out + at);
  });
  return {};
}

template <class T>
int64_t flash_attn_decode_scratch_bytes(const FlashAttnDecode<T>& args, const OpOptions& options) {
  return check_attention(args) ? 0 : attention_plan(args, options).total;
}

template <class T>
Error flash_attn_decode(const FlashAttnDecode<T>& args, std::span<std::byte> scratch, const OpOptions& options) {
  if (Error e = check_attention(args)) return e;
  const AttentionPlan<T> p = attention_plan(args, options);
  if (std::ssize(scratch) < p.total || reinterpret_cast<uintptr_t>(scratch.data()) % kAlignmentBytes != 0) {
    return argument("flash_attn_decode", "scratch",
                    std::to_string(p.total) + " bytes, aligned to " + std::to_string(kAlignmentBytes),
                    std::ssize(scratch));
  }
  const Kernels& kernels = table(options);
  std::byte* base = scratch.data();
  auto* q = reinterpret_cast<float*>(base + p.q);
  std::fill_n(q, args.num_heads * p.padded, 0.0f);
  for (int64_t h = 0; h < args.num_heads; ++h) {
    widen(kernels, args.q + h * args.head_dim, args.head_dim, q + h * p.padded);
    make_query_row(kernels, q + h * p.padded, p.padded, args.sm_scale, kTypeOf<T>);
  }
  std::atomic<int64_t> next{0};
  run_pieces(options.workers, p.lanes, [&](int64_t lane) {
    const int64_t tasks = args.num_kv_heads * p.chunks;
    for (int64_t t = next.fetch_add(1, std::memory_order_relaxed); t < tasks;
         t = next.fetch_add(1, std::memory_order_relaxed)) {
      attend_group(kernels, p, base, lane, t / p.chunks, t % p.chunks);
    }
  });
  run_pieces(options.workers, args.num_heads, [&](int64_t head) { finish_head(kernels, p, base, head); });
  return {};
}

template int64_t flash_attn_decode_scratch_bytes(const FlashAttnDecode<bf16>&, const OpOptions&);
template int64_t flash_attn_decode_scratch_bytes(const FlashAttnDecode<float>&, const OpOptions&);
template int64_t flash_attn_decode_scratch_bytes(const FlashAttnDecode<int8_t>&, const OpOptions&);
template Error flash_attn_decode(const FlashAttnDecode<bf16>&, std::span<std::byte>, const OpOptions&);
template Error flash_attn_decode(const FlashAttnDecode<float>&, std::span<std::byte>, const OpOptions&);
template Error flash_attn_decode(const FlashAttnDecode<int8_t>&, std::span<std::byte>, const OpOptions&);

}  // namespace pinion
