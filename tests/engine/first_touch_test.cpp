// First touch makes every page with panels resident, and leaves it zero.
#include "engine/runtime/load.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/layout.h"
#include "loader/pack/pack.h"

namespace pinion {
namespace {

// A model of two layers, one with experts. Unused pages separate the matrices, except the interleaved gate and up.
struct Placed {
  Model model;
  std::vector<Linear*> matrices;
  std::byte* arena;
  int64_t bytes = 0;

  int64_t gap_bytes = 4 * sysconf(_SC_PAGESIZE);

  Placed() {
    model.layers.resize(2);
    Layer &plain = model.layers[0], &mixed = model.layers[1];
    mixed.experts.resize(2);
    mixed.recurrent = true;
    const auto add = [&](Linear* linear, Format format, int64_t n, int64_t k) {
      linear->weight = {format, n, k, nullptr, nullptr, nullptr};
      matrices.push_back(linear);
      bytes += packed_bytes(format, n, k) + gap_bytes;
    };
    using enum MatrixRole;
    add(&plain[q], Format::w8, 640, 512);
    add(&plain[k], Format::w8, 64, 512);
    add(&plain[v], Format::w8, 64, 512);
    for (const MatrixRole role : {o, gate, up}) add(&plain[role], Format::w4, 500, 512);
    add(&plain[down], Format::w8, 512, 500);
    for (const MatrixRole role : {state_qkv, state_z, o}) add(&mixed[role], Format::w8, 512, 512);
    for (const MatrixRole role : {state_a, state_b, router}) add(&mixed[role], Format::bf16, 16, 512);
    for (Expert& e : mixed.experts) {
      for (Linear& linear : e.matrix) add(&linear, Format::w8, 256, 256);
    }
    add(&model.head, Format::w8, 1000, 512);
    void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(pages, MAP_FAILED);
    madvise(pages, bytes, MADV_NOHUGEPAGE);
    arena = static_cast<std::byte*>(pages);
    std::byte* at = arena;
    for (Linear* linear : matrices) {
      Matrix& m = linear->weight;
      m.panels = at;
      at += packed_bytes(m.format, m.n, m.k) + gap_bytes;
    }
    std::vector<PackJob> jobs;
    for (Matrix* m : {&plain[gate].weight, &plain[up].weight}) {
      jobs.push_back({.source = {"", DType::bf16, {m->n, m->k}}, .format = m->format, .out = m, .interleaved = 2});
    }
    EXPECT_FALSE(place_all(jobs, static_cast<const std::byte*>(plain[gate].weight.panels)));
  }
  ~Placed() { munmap(arena, bytes); }

  // For each page of the arena: is it resident?
  std::vector<bool> resident() const {
    const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> flags((bytes + page - 1) / page);
    EXPECT_EQ(mincore(arena, bytes, flags.data()), 0);
    std::vector<bool> pages;
    for (const unsigned char flag : flags) pages.push_back(flag & 1);
    return pages;
  }
};

TEST(FirstTouch, OnlyPagesOfPanelsAreTouched) {
  for (const int32_t workers : {1, 2, 3, 5}) {
    Placed placed;
    ASSERT_EQ(std::ranges::count(placed.resident(), true), 0);
    Team team(std::vector<int32_t>(workers, -1));
    touch_first(team, placed.model, placed.arena);

    const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
    std::vector<bool> wanted(placed.resident().size());
    for (const Linear* linear : placed.matrices) {
      const Matrix& m = linear->weight;
      for (int64_t panel = 0; panel < panel_count(m.n); ++panel) {
        const int64_t first = panel_of(m, panel) - placed.arena;
        const int64_t last = first + panel_bytes(m.format, m.k) - 1;
        for (int64_t i = first / page; i <= last / page; ++i) wanted[i] = true;
      }
    }
    EXPECT_EQ(placed.resident(), wanted) << workers << " workers";
    EXPECT_TRUE(std::all_of(placed.arena, placed.arena + placed.bytes, [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(FirstTouch, EveryTaskHasOneOwner) {
  Team team({-1, -1, -1}, {}, std::vector<double>{1, 2, 4});
  for (const int64_t tasks : {0, 1, 2, 7, 64}) {
    std::vector<int> owners(tasks);  // each element has one writer
    team.run([&](Worker& worker) {
      const TaskRange own = worker.own_tasks(tasks);
      for (int64_t i = own.first; i < own.first + own.count; ++i) ++owners[i];
    });
    EXPECT_EQ(owners, std::vector<int>(tasks, 1)) << tasks;
  }
}

}  // namespace
}  // namespace pinion
