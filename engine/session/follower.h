// A board that computes its part of another one's passes.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "engine/session/board_messages.h"
#include "engine/session/pass_runner.h"

namespace pinion {

// What a session or scheduler of the first board has on this one: a cache of the same blocks, for other heads.
struct Followed : PassRunner {
  KvPool pool;
  // Of the last pass, by segment.
  std::vector<Segment> segments;
  std::vector<KvCache> caches;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<RopeFrequencies>> ropes;
  std::vector<RopeFrequencies> last_ropes;
  std::vector<float> logits;  // [rows that get them][vocab]: the columns that are this board's
  RecurrentState no_state;    // the first board has it
  Profile told;               // of passes since the first board asked for it
};

// All that is open.
struct Follower {
  const Model* model = nullptr;
  Team* team = nullptr;
  Team* prefill_team = nullptr;
  const Kernels* kernels = nullptr;
  std::map<int64_t, std::unique_ptr<Followed>> runners = {};  // by the first board's number
};

// Does what the first board has ordered; not Order::load, rehearse and end.
void obey(Follower& follower, Order order, MessageReader message);

}  // namespace pinion
