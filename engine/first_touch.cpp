#include "engine/first_touch.h"

#include <cstdint>
#include <initializer_list>

#include "engine/matmul.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

constexpr int64_t kLeastPageBytes = 4096;

struct Toucher {
  const Worker& worker;
  std::byte* arena;

  void touch(const Matrix& m, int64_t panel) const {
    std::byte* to = arena + (panel_of(m, panel) - arena);
    const std::byte* end = to + panel_bytes(m.format, m.k);
    while (to < end) {
      *static_cast<volatile std::byte*>(to) = std::byte{0};
      to += kLeastPageBytes - reinterpret_cast<intptr_t>(to) % kLeastPageBytes;
    }
  }

  // Matrices whose panels a worker claims as one range of tasks.
  void together(std::initializer_list<Projection> matrices) const {
    each_part(matrices, worker.own(panels_of(matrices)), [&](const Projection& one, PanelRun run) {
      for (int64_t i = 0; i < run.count; ++i) touch(one.linear->weight, run.first + i);
    });
  }

  void mlp(const Linear& gate, const Linear& up, const Linear& down) const {
    together({{&gate}});  // a task is the same panel of both
    together({{&up}});
    together({{&down}});
  }

  void layer(const Layer& layer) const {
    if (layer.recurrent) {
      together({{&layer.delta.qkv}, {&layer.delta.z}, {&layer.delta.b}, {&layer.delta.a}});
    } else {
      together({{&layer.q}, {&layer.k}, {&layer.v}});
    }
    together({{&layer.o}});
    mlp(layer.gate, layer.up, layer.down);
    together({{&layer.router}});
    // Whose tasks an expert's gate and up are depends on the others that a token has: spread over all.
    for (const Expert& expert : layer.experts) mlp(expert.gate, expert.up, expert.down);
  }
};

}  // namespace

void touch_first(Team& team, const Model& model, std::byte* arena) {
  team.run([&](Worker& worker) {
    const Toucher toucher = {worker, arena};
    for (const Layer& layer : model.layers) toucher.layer(layer);
    toucher.together({{&model.head}});
  });
  Team::unpin_caller();  // threads that pack would all be started on worker 0's CPU
}

}  // namespace pinion
