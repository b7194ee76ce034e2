// Shared by the kernel tests: buffers between guard pages, random numbers, and the comparison of every variant with the
// scalar one.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/kernels.h"

namespace pinion {

// Loops over shapes take every kStride-th shape on Arm64, which usually runs in the much slower emulator. The stride is
// a prime, so that all residues of a tile occur.
#if defined(__aarch64__)
constexpr int64_t kStride = 7;
#else
constexpr int64_t kStride = 1;
#endif

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The end of a buffer that is adjacent to a guard page.
enum class Edge { begin, end };

// The rest of the buffer's pages is filled with this byte and must not change.
constexpr unsigned char kPoison = 0x5a;

template <class T>
struct Guarded {
  T* data;

  Guarded(int64_t n, Edge edge) : size_(n) {
    const size_t bytes = static_cast<size_t>(n) * sizeof(T);
    room_ = (bytes + page_ - 1) / page_ * page_;
    void* map = mmap(nullptr, room_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<unsigned char*>(map) + page_;
    if (room_ > 0 && mprotect(base_, room_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    std::memset(base_, kPoison, room_);
    data = reinterpret_cast<T*>(edge == Edge::begin ? base_ : base_ + room_ - bytes);
  }
  Guarded(const std::vector<T>& content, Edge edge) : Guarded(static_cast<int64_t>(content.size()), edge) {
    if (size_ > 0) std::memcpy(data, content.data(), content.size() * sizeof(T));
  }
  ~Guarded() {
    const auto* first = reinterpret_cast<const unsigned char*>(data);
    const auto* last = reinterpret_cast<const unsigned char*>(data + size_);
    bool intact = true;
    for (const unsigned char* p = base_; p < first; ++p) intact &= *p == kPoison;
    for (const unsigned char* p = last; p < base_ + room_; ++p) intact &= *p == kPoison;
    EXPECT_TRUE(intact) << "bytes next to a buffer of " << size_ << " elements were overwritten";
    munmap(base_ - page_, room_ + 2 * page_);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::vector<T> copy() const { return std::vector<T>(data, data + size_); }

 private:
  const size_t page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t room_ = 0;
  int64_t size_ = 0;
  unsigned char* base_ = nullptr;
};

// xorshift32: the same numbers on every machine, which the standard distributions do not guarantee.
struct Random {
  uint32_t state = 0x9e3779b9u;

  uint32_t next() {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
  }
  float uniform(float low, float high) { return low + (high - low) * (static_cast<float>(next() >> 8) * 0x1p-24f); }
  // Any sign, magnitudes spread evenly over the exponents: 2^low <= |x| < 2^high.
  float spread(int low, int high) {
    const float magnitude =
        std::ldexp(uniform(1, 2), low + static_cast<int>(next() % static_cast<uint32_t>(high - low)));
    return next() & 1 ? magnitude : -magnitude;
  }
  std::vector<float> floats(int64_t n, float low = -1, float high = 1) {
    std::vector<float> x(n);
    for (float& v : x) v = uniform(low, high);
    return x;
  }
  std::vector<int8_t> codes(int64_t n, int low = -127) {
    std::vector<int8_t> x(n);
    for (int8_t& v : x) v = static_cast<int8_t>(low + static_cast<int>(next() % static_cast<uint32_t>(128 - low)));
    return x;
  }
};

inline uint32_t float_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float bits_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// Everything that one call of a kernel wrote, by type.
struct Result {
  std::vector<int8_t> codes = {};
  std::vector<int32_t> sums = {};
  std::vector<float> floats = {};
};

inline void append(std::vector<float>& to, const std::vector<float>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// Compares bits, except that all NaNs are equal: their sign and payload depend on the instruction.
template <class T>
bool same_bits(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) && std::isnan(b)) return true;
  }
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class T>
testing::AssertionResult same_bits(const std::vector<T>& actual, const std::vector<T>& expected) {
  if (actual.size() != expected.size()) return testing::AssertionFailure() << "lengths differ";
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!same_bits(actual[i], expected[i])) {
      return testing::AssertionFailure() << "element " << i << ": have " << testing::PrintToString(actual[i])
                                         << ", want " << testing::PrintToString(expected[i]);
    }
  }
  return testing::AssertionSuccess();
}

inline void expect_same(const Result& actual, const Result& expected, const std::string& label) {
  EXPECT_TRUE(same_bits(actual.codes, expected.codes)) << label << ": codes";
  EXPECT_TRUE(same_bits(actual.sums, expected.sums)) << label << ": sums";
  EXPECT_TRUE(same_bits(actual.floats, expected.floats)) << label << ": floats";
}

// The tables that this CPU can run; scalar is the last.
inline std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> tables;
  for (const Variant& variant : kernel_variants()) {
    if ((variant.needs & ~cpu_features()) == 0) tables.push_back(&variant.table());
  }
  return tables;
}

// Calls run(kernels, edge) -> Result for every table and both edges, expects the bits of scalar and returns them.
template <class Run>
Result run_on_all_tables(const std::string& label, Run run) {
  const Result expected = run(scalar_kernels(), Edge::end);
  for (const Kernels* kernels : available_kernels()) {
    for (Edge edge : {Edge::begin, Edge::end}) {
      const std::string at = edge == Edge::begin ? ", at the start of the page" : ", at the end of the page";
      expect_same(run(*kernels, edge), expected, std::string(kernels->name) + ": " + label + at);
    }
  }
  return expected;
}

constexpr float kSpecial[] = {0.0f,    -0.0f,  1.0f,    -1.0f, 88.7f,  -88.7f,    89.0f,      -89.0f, 104.0f,
                              -104.0f, 1e-40f, -1e-40f, 3e38f, -3e38f, kInfinity, -kInfinity, kNan};

// Ordinary values with some special ones.
inline std::vector<float> with_special_values(Random& random, int64_t n) {
  std::vector<float> x = random.floats(n, -20, 20);
  for (size_t i = 0; i < x.size(); i += 3) x[i] = kSpecial[random.next() % std::size(kSpecial)];
  return x;
}

}  // namespace pinion
