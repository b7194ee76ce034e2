#include "engine/session/session.h"

#include <algorithm>
#include <utility>

#include "engine/forward/probes.h"
#include "engine/team/memory.h"
#include "kernels/base/math.h"

namespace pinion {
namespace {

// The tokens that get logits, and the destination of the logits; see the overloads of evaluate().
struct LogitsTarget {
  bool all = false;
  float* logits = nullptr;
  const LogitsSink* sink = nullptr;  // receives the logits of each pass before the next one overwrites them
  bool are_drafts = false;           // all tokens but the first are drafts
  int64_t candidates = 0;            // see Segment
};

static_assert(kMaxDrafts <= kStateTokens, "a state head handles all drafts of a pass at once");

constexpr int64_t kSinkRows = 64;  // rows per pass with a LogitsSink: bounds the memory for logits

struct Evaluated {
  int64_t tokens;  // fewer after an interruption or non-finite logits
  bool are_logits_finite;
};

// Evaluates tokens from position `start` on, a prefill chunk per pass.
Evaluated run_passes(Session& session, std::span<const int32_t> tokens, int64_t start, const LogitsTarget& target) {
  Sequence& sequence = session.sequence;
  const int64_t count = std::ssize(tokens);
  const int64_t vocab = session.model->config.vocab_size;
  const int64_t chunk = target.sink ? std::min(session.prefill_chunk, kSinkRows) : session.prefill_chunk;
  int64_t done = 0;
  while (done < count) {
    if (done > 0 && session.interrupted && *session.interrupted) break;
    const int64_t rows = std::min(chunk, count - done);
    const bool is_last = done + rows == count;
    const int64_t logit_rows = !target.logits ? 0 : target.all ? rows : int64_t{is_last};
    float* logits = target.all && !target.sink ? target.logits + done * vocab : target.logits;
    Segment segment = {.cache = &sequence.cache,
                       .state = &sequence.state,
                       .ropes = sequence.ropes,
                       .tokens = tokens.subspan(done, rows),
                       .position = start + done,
                       .logit_rows = logit_rows,
                       .hidden = session.input_hidden.data(),
                       .drafts = target.are_drafts ? rows - 1 : 0,
                       .candidates = target.candidates};
    run_pass(session, {&segment, 1}, logits);
    done += rows;
    if (session.on_hidden) {
      session.on_hidden(std::span(sequence.ids).first(start), tokens.first(done),
                        std::span(session.hidden).first(rows * session.model->config.hidden_size));
    }
    if (!are_logits_finite(session, 0, target.are_drafts ? 1 : logit_rows)) return {done, false};
    if (logit_rows > 0) session.last_logit_row = logit_rows - 1;
    if (target.sink) (*target.sink)(done - rows, {logits, static_cast<size_t>(logit_rows * vocab)});
  }
  return {done, true};
}

Error interruption(int64_t done, int64_t count) {
  return error("interrupted after " + std::to_string(done) + " of " + std::to_string(count) + " tokens", "prompt");
}

// Evaluates the sequence again with a trace, to find the first stage with NaN or infinity. Then empties the session,
// since its cache has such values, too.
Error non_finite_error(Session& session) {
  const std::vector<int32_t> ids = session.sequence.ids;
  if (session.model->reads_hidden()) {
    session.sequence.ids.clear();
    return error("NaN or infinity from the MTP layer", "logits");
  }
  std::vector<float> logits(session.model->config.vocab_size);
  Trace trace(session.model->config.layers);
  Trace* const callers_trace = std::exchange(session.trace, &trace);
  const std::atomic<bool>* const interrupted = std::exchange(session.interrupted, nullptr);
  restore_snapshot(&session.sequence.snapshots, 0, &session.sequence.state);
  run_passes(session, ids, 0, {.logits = logits.data()});
  restore_snapshot(&session.sequence.snapshots, 0, &session.sequence.state);
  session.trace = callers_trace;
  session.interrupted = interrupted;
  session.sequence.ids.clear();
  const TracePoint point = trace.first_non_finite.value_or(TracePoint{kNoLayer, Stage::head});
  const std::string layer = point.layer == kNoLayer ? "" : "layer " + std::to_string(point.layer) + ", ";
  return error("NaN or infinity, first from " + layer +
                   std::string(kStageTraits[static_cast<size_t>(point.stage)].name) +
                   "; the weights may be damaged (`pinion pack --check` compares cached ones)",
               "logits");
}

// Upper bound of the memory that an open session will use but has not touched yet, so that the kernel counts it as
// free.
int64_t untouched_bytes(const Session& session) {
  return mapped_bytes(*session.model) + session.pool.memory.bytes + session.sequence.state.bytes() +
         session.sequence.state.draft_bytes();
}

Error evaluate_to(Session& session, std::span<const int32_t> tokens, const LogitsTarget& target) {
  const ModelConfig& c = session.model->config;
  Sequence& sequence = session.sequence;
  const int64_t start = std::ssize(sequence.ids), count = std::ssize(tokens);
  if (start + count > sequence.cache.capacity) {
    return error("too many tokens", "context", "at most " + std::to_string(sequence.cache.capacity),
                 std::to_string(start + count));
  }
  if (Error e = check_ids(c, tokens)) return e;
  take_blocks(&sequence.cache, start + count);
  const bool changes_factors = uses_long_factors(c, start + count) != sequence.long_factors;
  if (changes_factors || frequencies_follow_length(c)) sequence.ropes = rope_frequencies(c, start + count);
  if (changes_factors) {
    sequence.long_factors = !sequence.long_factors;
    restore_snapshot(&sequence.snapshots, 0, &sequence.state);
    const int64_t done = run_passes(session, sequence.ids, 0, {}).tokens;
    sequence.ids.resize(done);
    if (done < start) return interruption(done, start + count);
  }
  const auto [done, are_logits_finite] = run_passes(session, tokens, start, target);
  sequence.ids.insert(sequence.ids.end(), tokens.begin(), tokens.begin() + done);
  if (!are_logits_finite) return non_finite_error(session);
  return done < count ? interruption(done, count) : Error{};
}

}  // namespace

Error open_session(const Model& model, Team& team, const SessionOptions& options, std::unique_ptr<Session>* out) {
  const ModelConfig& c = model.config;
  const int64_t limit = context_length(c);
  if (options.prefill_chunk < 1) {
    return error("out of range", "prefill chunk", "at least 1", std::to_string(options.prefill_chunk));
  }
  if (options.drafts < 0 || options.drafts > kMaxDrafts) {
    return error("out of range", "drafts", "0 to " + std::to_string(kMaxDrafts), std::to_string(options.drafts));
  }
  auto session = std::make_unique<Session>();
  session->prefill_chunk = options.prefill_chunk;
  session->max_drafts = options.drafts;
  if (Error e = make_runner(model, team, options.prefill_team, options.kernels, session.get())) return e;
  const int64_t positions = options.capacity > 0 ? std::min(options.capacity, limit) : limit;
  const KvShape shape = kv_shape_of(c, options.kv, model.shares());
  const int64_t other_bytes = options.also_open ? untouched_bytes(*options.also_open) : 0;
  const RecurrentState state = recurrent_state_of(c, options.drafts);
  const int64_t rows = std::min(options.prefill_chunk, positions);
  const int64_t hidden = options.keeps_hidden || model.reads_hidden() ? rows * c.hidden_size : 0;
  const int64_t input_hidden = model.reads_hidden() ? hidden : 0;
  const int64_t rows_bytes = (options.drafts * c.vocab_size + hidden + input_hidden) * sizeof(float);
  if (Error e = allocate_scratch(
          session.get(), rows, positions, shape.bytes(positions),
          state.bytes() + state.draft_bytes() + rows_bytes + other_bytes, std::to_string(positions) + " positions",
          options.also_open ? ", " + megabytes_text(other_bytes) + " for the other open model" : "")) {
    return e;
  }
  session->hidden.resize(hidden);
  session->input_hidden.resize(input_hidden);
  if (Error e = allocate_kv_pool(shape, KvShape::chunks_of(positions), &session->pool)) return e;
  if (Error e = make_sequence(c, &session->pool, positions, options.drafts, &session->sequence)) return e;
  if (Error e = open_followers(session.get(), rows, positions, session->pool)) return e;
  session->snapshots.limit_bytes = options.snapshot_bytes;
  session->sequence.snapshots.pool = &session->snapshots;
  *out = std::move(session);
  return {};
}

Error evaluate(Session& session, std::span<const int32_t> tokens, bool all, float* logits, int64_t candidates) {
  return evaluate_to(session, tokens, {.all = all, .logits = logits, .candidates = candidates});
}

Error evaluate_drafts(Session& session, std::span<const int32_t> tokens, float* logits, int64_t candidates) {
  if (std::ssize(tokens) > std::min(session.max_drafts + 1, session.prefill_chunk)) {
    return error("too many", "drafts", "at most " + std::to_string(session.max_drafts), std::to_string(tokens.size()));
  }
  return evaluate_to(session, tokens, {.all = true, .logits = logits, .are_drafts = true, .candidates = candidates});
}

Error evaluate(Session& session, std::span<const int32_t> tokens, const LogitsSink& sink) {
  std::vector<float> logits(kSinkRows * session.model->config.vocab_size);
  return evaluate_to(session, tokens, {.all = true, .logits = logits.data(), .sink = &sink});
}

void keep_snapshot(Session& session) {
  apply_drafts(*session.kernels, std::ssize(session.sequence.ids), &session.sequence.state);
  take_snapshot(&session.sequence.snapshots, session.sequence.state, std::ssize(session.sequence.ids));
}

}  // namespace pinion
