// A board other than the first: loads its share of the model and executes the commands of the first board.
#pragma once

#include "engine/runtime/runtime.h"

namespace pinion {

// Counterpart of a session or scheduler of the first board: has the same cache blocks, for this board's kv heads.
struct FollowerRunner : PassRunner {
  KvPool pool;
  // The last pass, by segment.
  std::vector<Segment> segments;
  std::vector<KvCache> caches;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<RopeFrequencies>> ropes;
  std::vector<RopeFrequencies> last_ropes;
  std::vector<float> logits;     // [rows with logits][vocab], filled in this board's columns
  RecurrentState no_state;       // empty: the states are on the first board
  Profile profile_since_report;  // of passes since the last BoardCommand::profile
};

struct Follower {
  const Model* model = nullptr;
  Team* team = nullptr;
  Team* prefill_team = nullptr;
  const Kernels* kernels = nullptr;
  std::map<int64_t, std::unique_ptr<FollowerRunner>> runners = {};  // open runners, by their id on the first board
};

// Executes one command other than load, time_gathers and end. message: the fields after the command.
void execute(Follower& follower, BoardCommand command, MessageReader message);

// Executes commands until BoardCommand::end. options: this board's paths, cores and kernels; the first sends the rest.
void run_follower(RuntimeOptions options);

// Repeats the gathers of a pass `rounds` times without computation and returns the median seconds. sizes: bytes of each
// gather, as in Exchange::Traffic. All boards must call it with the same arguments.
double time_gathers(Exchange& exchange, std::span<const int64_t> sizes, int64_t rounds);

// On the first board: lets the followers call time_gathers(), too, and returns the result here.
double time_gathers_on_all(Exchange& exchange, std::span<const int64_t> sizes, int64_t rounds);

// On the first board: ends run_follower() on the others. No session or scheduler may be open.
void stop_followers(Exchange& exchange);

}  // namespace pinion
