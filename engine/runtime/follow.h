// A board other than the first: loads its share of the model and executes the commands of the first board.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/runtime/runtime.h"
#include "engine/session/board_messages.h"
#include "engine/session/pass_runner.h"

namespace pinion {

// Counterpart of a session or scheduler on the first board: the same cache blocks, for this board's heads.
struct FollowerRunner : PassRunner {
  KvPool pool;
  // The last pass, by segment.
  std::vector<Segment> segments;
  std::vector<KvCache> caches;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<RopeFrequencies>> ropes;
  std::vector<RopeFrequencies> last_ropes;
  std::vector<float> logits;     // [rows with logits][vocab], filled in this board's columns
  RecurrentState no_state;       // recurrent layers are on the first board
  Profile profile_since_report;  // of passes since the last BoardCommand::profile
};

struct Follower {
  const Model* model = nullptr;
  Team* team = nullptr;
  Team* prefill_team = nullptr;
  const Kernels* kernels = nullptr;
  std::map<int64_t, std::unique_ptr<FollowerRunner>> runners = {};  // open ones, by the first board's number
};

// Executes one command other than load, time_gathers and end.
void execute(Follower& follower, BoardCommand command, MessageReader message);

// Executes commands until BoardCommand::end. options: this board's paths, cores and kernels; the first board sends the
// options that affect numbers.
void run_follower(RuntimeOptions options);

// Median seconds of `rounds` rounds of gathers without computation; sizes: bytes of each gather, see
// Exchange::Traffic. All boards must call it with the same arguments.
double time_gathers(Exchange& exchange, std::span<const int64_t> sizes, int64_t rounds);

// On the first board: the same, together with the followers.
double time_gathers_on_all(Exchange& exchange, std::span<const int64_t> sizes, int64_t rounds);

// On the first board: ends run_follower() on the others. No session or scheduler may be open.
void stop_followers(Exchange& exchange);

}  // namespace pinion
