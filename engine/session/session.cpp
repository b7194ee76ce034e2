#include "engine/session/session.h"

#include <algorithm>
#include <utility>

#include "engine/forward/trace.h"
#include "engine/team/memory.h"
#include "kernels/base/math.h"

namespace pinion {
namespace {

// Where the logits of passes go: of none (null), of the last token or, with `all`, of each.
struct LogitsTarget {
  bool all = false;
  float* logits = nullptr;
  const LogitsSink* sink = nullptr;  // gets those of a pass before the next one overwrites them
  bool are_drafts = false;           // but for the first token
  int64_t candidates = 0;            // Segment::candidates
};

static_assert(kMostDrafts <= kStateTokens, "a head takes a pass's drafts together");

constexpr int64_t kSinkRows = 64;  // of a pass whose logits are handed over: bounds what they take

struct Evaluated {
  int64_t tokens;  // all, unless the session was interrupted or logits were no numbers
  bool are_logits_finite;
};

// Evaluates tokens from position `start` on, a prefill chunk in each pass.
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
                       .tokens = tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(rows)),
                       .position = start + done,
                       .logit_rows = logit_rows,
                       .hidden = session.unread_hidden.data(),
                       .drafts = target.are_drafts ? rows - 1 : 0,
                       .candidates = target.candidates};
    run_pass(session, {&segment, 1}, logits);
    done += rows;
    if (session.on_hidden) {
      session.on_hidden(std::span(sequence.ids).first(static_cast<size_t>(start)),
                        tokens.first(static_cast<size_t>(done)),
                        std::span(session.hidden).first(static_cast<size_t>(rows * session.model->config.hidden_size)));
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

// Evaluates all that the session holds once more, to tell where numbers first were not finite, and empties it: its
// cache holds them, too.
Error unfit_logits(Session& session) {
  const std::vector<int32_t> ids = session.sequence.ids;
  if (session.model->reads_hidden()) {
    session.sequence.ids.clear();
    return error("NaN or infinity from the MTP layer", "logits");
  }
  std::vector<float> logits(static_cast<size_t>(session.model->config.vocab_size));
  Trace trace(session.model->config.layers);
  Trace* const callers = std::exchange(session.trace, &trace);
  const std::atomic<bool>* const interrupted = std::exchange(session.interrupted, nullptr);
  restore(&session.sequence.snapshots, 0, &session.sequence.state);
  run_passes(session, ids, 0, {.logits = logits.data()});
  restore(&session.sequence.snapshots, 0, &session.sequence.state);
  session.trace = callers;
  session.interrupted = interrupted;
  session.sequence.ids.clear();
  const Place place = trace.first_unfit.value_or(Place{kNoLayer, Stage::head});
  const std::string layer = place.layer == kNoLayer ? "" : "layer " + std::to_string(place.layer) + ", ";
  return error("NaN or infinity, first from " + layer +
                   std::string(kStageTraits[static_cast<size_t>(place.stage)].name) +
                   "; the weights may be damaged (`pinion pack --check` compares cached ones)",
               "logits");
}

// Memory that an open session has reserved and not touched: it still counts as free.
int64_t untouched_bytes(const Session& session) {
  return mapped_bytes(*session.model) + session.pool.memory.bytes + session.sequence.state.bytes() +
         session.sequence.state.draft_bytes();
}

Error evaluate_to(Session& session, std::span<const int32_t> tokens, const LogitsTarget& target) {
  const ModelConfig& c = session.model->config;
  Sequence& sequence = session.sequence;
  const int64_t start = std::ssize(session.sequence.ids);
  const int64_t count = std::ssize(tokens);
  if (start + count > session.sequence.cache.capacity) {
    return error("too many tokens", "context", "at most " + std::to_string(session.sequence.cache.capacity),
                 std::to_string(start + count));
  }
  if (Error e = check_ids(c, tokens)) return e;
  take_blocks(&sequence.cache, start + count);
  const bool changes_factors = uses_long_factors(c, start + count) != session.sequence.long_factors;
  if (changes_factors || frequencies_follow_length(c)) session.sequence.ropes = rope_frequencies(c, start + count);
  if (changes_factors) {
    session.sequence.long_factors = !session.sequence.long_factors;
    restore(&session.sequence.snapshots, 0, &session.sequence.state);
    const int64_t done = run_passes(session, session.sequence.ids, 0, {}).tokens;
    session.sequence.ids.resize(static_cast<size_t>(done));
    if (done < start) return interruption(done, start + count);
  }
  const auto [done, are_logits_finite] = run_passes(session, tokens, start, target);
  session.sequence.ids.insert(session.sequence.ids.end(), tokens.begin(), tokens.begin() + done);
  if (!are_logits_finite) return unfit_logits(session);
  return done < count ? interruption(done, count) : Error{};
}

}  // namespace

Error open_session(const Model& model, Team& team, const SessionOptions& options, std::unique_ptr<Session>* out) {
  const ModelConfig& c = model.config;
  const int64_t limit = context_length(c);
  if (options.prefill_chunk < 1) {
    return error("out of range", "prefill chunk", "at least 1", std::to_string(options.prefill_chunk));
  }
  if (options.drafts < 0 || options.drafts > kMostDrafts) {
    return error("out of range", "drafts", "0 to " + std::to_string(kMostDrafts), std::to_string(options.drafts));
  }
  auto session = std::make_unique<Session>();
  session->prefill_chunk = options.prefill_chunk;
  session->most_drafts = options.drafts;
  if (Error e = make_runner(model, team, options.prefill_team, options.kernels, session.get())) return e;
  const int64_t positions = options.capacity > 0 ? std::min(options.capacity, limit) : limit;
  const KvShape shape = kv_shape_of(c, options.kv, model.shares());
  const int64_t beside = options.also_open ? untouched_bytes(*options.also_open) : 0;
  const RecurrentState state = recurrent_state_of(c, options.drafts);
  const int64_t rows = std::min(options.prefill_chunk, positions);
  const int64_t hidden = options.keeps_hidden || model.reads_hidden() ? rows * c.hidden_size : 0;
  const int64_t unread_hidden = model.reads_hidden() ? hidden : 0;
  const int64_t rows_bytes =
      (options.drafts * c.vocab_size + hidden + unread_hidden) * static_cast<int64_t>(sizeof(float));
  if (Error e = take_scratch(session.get(), rows, positions, shape.bytes(positions),
                             state.bytes() + state.draft_bytes() + rows_bytes + beside,
                             std::to_string(positions) + " positions",
                             options.also_open ? ", " + megabytes_text(beside) + " for the other open model" : "")) {
    return e;
  }
  session->hidden.resize(static_cast<size_t>(hidden));
  session->unread_hidden.resize(static_cast<size_t>(unread_hidden));
  if (Error e = allocate_kv_pool(shape, KvShape::chunks_of(positions), &session->pool)) return e;
  if (Error e = make_sequence(c, &session->pool, positions, options.drafts, &session->sequence)) return e;
  if (Error e = open_followers(session.get(), rows, positions, session->pool)) return e;
  session->sequence.snapshots.limit_bytes = options.snapshot_bytes;
  *out = std::move(session);
  return {};
}

Error evaluate(Session& session, std::span<const int32_t> tokens, bool all, float* logits, int64_t candidates) {
  return evaluate_to(session, tokens, {.all = all, .logits = logits, .candidates = candidates});
}

Error evaluate_drafts(Session& session, std::span<const int32_t> tokens, float* logits, int64_t candidates) {
  if (std::ssize(tokens) > std::min(session.most_drafts + 1, session.prefill_chunk)) {
    return error("too many", "drafts", "at most " + std::to_string(session.most_drafts), std::to_string(tokens.size()));
  }
  return evaluate_to(session, tokens, {.all = true, .logits = logits, .are_drafts = true, .candidates = candidates});
}

Error evaluate(Session& session, std::span<const int32_t> tokens, const LogitsSink& sink) {
  std::vector<float> logits(static_cast<size_t>(kSinkRows * session.model->config.vocab_size));
  return evaluate_to(session, tokens, {.all = true, .logits = logits.data(), .sink = &sink});
}

int64_t snapshot_bytes(const Session& session) {
  return std::ssize(session.sequence.snapshots.kept) * session.sequence.state.bytes();
}

void keep_snapshot(Session& session) {
  settle_drafts(*session.kernels, std::ssize(session.sequence.ids), &session.sequence.state);
  keep(&session.sequence.snapshots, session.sequence.state, std::ssize(session.sequence.ids));
}

}  // namespace pinion
