#include "engine/first_touch.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/layout.h"

namespace pinion {
namespace {

constexpr int64_t kLeastPageBytes = 4096;

struct Toucher {
  const Worker& worker;
  std::byte* arena;

  void touch(const Matrix& m, int64_t first, int64_t count) const {
    if (count == 0) return;  // perhaps the layer has no such matrix
    const int64_t bytes = panel_bytes(m.format, m.k);
    std::byte* to = arena + (static_cast<const std::byte*>(m.panels) - arena) + first * bytes;
    const std::byte* end = to + count * bytes;
    while (to < end) {
      *static_cast<volatile std::byte*>(to) = std::byte{0};
      to += kLeastPageBytes - reinterpret_cast<intptr_t>(to) % kLeastPageBytes;
    }
  }

  // Matrices whose panels a worker claims as one range of tasks.
  void together(std::initializer_list<const Linear*> matrices) const {
    int64_t tasks = 0;
    for (const Linear* m : matrices) tasks += panel_count(m->weight.n);
    const TaskRun own = worker.own(tasks);
    int64_t before = 0;
    for (const Linear* m : matrices) {
      const int64_t here = panel_count(m->weight.n);
      const int64_t first = std::clamp<int64_t>(own.first - before, 0, here);
      const int64_t end = std::clamp<int64_t>(own.first + own.count - before, 0, here);
      touch(m->weight, first, end - first);
      before += here;
    }
  }

  void mlp(const Linear& gate, const Linear& up, const Linear& down) const {
    together({&gate});  // a task is the same panel of both
    together({&up});
    together({&down});
  }

  void layer(const Layer& layer) const {
    if (layer.recurrent) {
      together({&layer.delta.qkv, &layer.delta.z, &layer.delta.b, &layer.delta.a});
    } else {
      together({&layer.q, &layer.k, &layer.v});
    }
    together({&layer.o});
    mlp(layer.gate, layer.up, layer.down);
    together({&layer.router});
    // Whose tasks an expert's gate and up are depends on the others that a token has: spread over all.
    for (const Expert& expert : layer.experts) mlp(expert.gate, expert.up, expert.down);
  }
};

}  // namespace

void touch_first(Team& team, const Model& model, std::byte* arena) {
  team.run([&](Worker& worker) {
    const Toucher toucher = {worker, arena};
    for (const Layer& layer : model.layers) toucher.layer(layer);
    toucher.together({&model.head});
  });
  Team::unpin_caller();  // threads that pack would all be started on worker 0's CPU
}

}  // namespace pinion
