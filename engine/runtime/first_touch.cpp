#include "engine/runtime/first_touch.h"

#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward/matmul.h"
#include "kernels/layout.h"

namespace pinion {
namespace {

constexpr int64_t kLeastPageBytes = 4096;

struct Toucher {
  const Worker& worker;
  std::byte* arena;

  void touch(const Matrix& m, int64_t panel) const {
    std::byte* to = arena + (panel_of(m, panel) - arena);  // the arena is writable, the matrix's pointer is not
    const std::byte* end = to + panel_bytes(m.format, m.k);
    while (to < end) {
      *static_cast<volatile std::byte*>(to) = std::byte{0};
      to += kLeastPageBytes - reinterpret_cast<intptr_t>(to) % kLeastPageBytes;
    }
  }

  // Matrices whose panels a worker claims as one range of tasks.
  void together(std::span<const Projection> matrices) const {
    each_part(matrices, worker.own(panels_of(matrices)), [&](const Projection& one, PanelRange run) {
      for (int64_t i = 0; i < run.count; ++i) touch(one.linear->weight, run.first + i);
    });
  }

  void alone(const Linear& linear) const {
    const Projection one = {&linear};
    together({&one, 1});
  }

  void layer(const Layer& layer) const {
    // Matrices of a stage are one range of tasks, but a task of gate and up is the same panel of both.
    std::vector<Projection> stage;
    const auto touch_stage = [&] {
      together(stage);
      stage.clear();
    };
    MatrixRole last = MatrixRole::q;
    each_matrix(layer, [&](MatrixRole role, const Linear& linear) {
      if (stage_of(role) != stage_of(last) || stage_of(role) == Stage::gate_up) touch_stage();
      stage.push_back({&linear});
      last = role;
    });
    touch_stage();
    // Whose tasks an expert's gate and up are depends on the others that a token has: spread over all.
    for (const Expert& expert : layer.experts) {
      for (const Linear* one : {&expert.gate, &expert.up, &expert.down}) alone(*one);
    }
  }
};

}  // namespace

void touch_first(Team& team, const Model& model, std::byte* arena) {
  team.run([&](Worker& worker) {
    const Toucher toucher = {worker, arena};
    for (const Layer& layer : model.layers) toucher.layer(layer);
    for (const Linear* one : {&model.head, &model.mtp.fc, &model.layer_inputs.projection}) toucher.alone(*one);
    for (const auto* ends : {&model.altup.in, &model.altup.out}) {
      for (const Linear& one : *ends) toucher.alone(one);
    }
  });
}

}  // namespace pinion
