#include "engine/session/follower.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pinion {
namespace {

Error open_runner(const Follower& follower, const RunnerNeeds& needs, Followed* out) {
  const Model& model = *follower.model;
  if (Error e = make_runner(model, *follower.team, follower.prefill_team, follower.kernels, out)) return e;
  const KvShape shape = kv_shape_of(model.config, needs.kv, model.shares());
  const int64_t bytes = needs.blocks * shape.block_bytes();
  const std::string what = std::to_string(needs.blocks) + " blocks of the cache";
  if (Error e = take_scratch(out, needs.tokens, needs.positions, bytes, 0, what, "")) return e;
  return allocate_kv_pool(shape, needs.blocks, &out->pool);
}

void begin_profile(Followed& runner) {
  runner.told = {};
  runner.told.workers.resize(static_cast<size_t>(std::max(runner.team->size(), runner.prefill_team->size())));
}

void read_segments(MessageReader& message, Followed& runner) {
  const auto count = static_cast<size_t>(message.number());
  runner.segments.clear();
  runner.caches.resize(count), runner.tokens.resize(count), runner.ropes.resize(count);
  for (size_t i = 0; i < count; ++i) {
    runner.caches[i].pool = &runner.pool;
    message.list(&runner.caches[i].blocks);
    message.list(&runner.tokens[i]);
    Segment segment = {.cache = &runner.caches[i],
                       .state = &runner.no_state,
                       .ropes = {},
                       .tokens = runner.tokens[i],
                       .position = message.number(),
                       .logit_rows = message.number(),
                       .hidden = nullptr,
                       .drafts = message.number(),
                       .candidates = message.number()};
    read_ropes(message, &runner.last_ropes);
    runner.ropes[i] = runner.last_ropes;
    segment.ropes = runner.ropes[i];
    runner.segments.push_back(segment);
  }
}

void run_told_pass(Followed& runner) {
  int64_t rows = 0;
  for (const Segment& segment : runner.segments) rows += segment.logit_rows;
  const auto floats = static_cast<size_t>(rows * runner.model->config.vocab_size);
  if (runner.logits.size() < floats) runner.logits.resize(floats);
  run_pass(runner, runner.segments, runner.logits.data());
}

}  // namespace

void obey(Follower& follower, Order order, MessageReader message) {
  const int64_t id = message.number();
  std::unique_ptr<Followed>& runner = follower.runners[id];
  switch (order) {
    case Order::open: {
      RunnerNeeds needs;
      needs.tokens = message.number();
      needs.positions = message.number();
      needs.kv = static_cast<KvType>(message.number());
      needs.blocks = message.number();
      runner = std::make_unique<Followed>();
      const Error e = open_runner(follower, needs, runner.get());
      if (!e) begin_profile(*runner);
      [[maybe_unused]] const Error of_any = agree(*follower.model->exchange, e);  // the first board says it
      return;
    }
    case Order::pass:
      runner->profile = message.number() != 0 ? &runner->told : nullptr;
      read_segments(message, *runner);
      return run_told_pass(*runner);
    case Order::profile:
      profiles_of_all(*follower.model->exchange, runner->told);
      return begin_profile(*runner);
    case Order::copy: {
      const auto from = static_cast<int32_t>(message.number()), to = static_cast<int32_t>(message.number());
      return copy_block(runner->pool, from, to);
    }
    case Order::close:
      follower.runners.erase(id);
      return;
    case Order::load:
    case Order::rehearse:
    case Order::end:
      break;
  }
}

}  // namespace pinion
