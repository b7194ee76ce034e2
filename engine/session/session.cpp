#include "engine/session/session.h"

namespace pinion {
namespace {

// The tokens that get logits, and the destination of the logits; see the overloads of evaluate().
struct LogitsTarget {
  bool all = false;
  float* logits = nullptr;
  const LogitsSink* sink = nullptr;  // receives the logits of each pass before the next one overwrites them
  int64_t candidates = 0;            // see Segment
};

constexpr int64_t kSinkRows = 64;  // rows per pass with a LogitsSink: bounds the memory for logits

struct Evaluated {
  int64_t tokens;  // fewer after an interruption or non-finite logits
  bool are_logits_finite;
};

bool is_interrupted(const Session& session) { return session.interrupted && *session.interrupted; }

// Evaluates tokens from position `start` on, a prefill chunk per pass.
Evaluated run_passes(Session& session, std::span<const int32_t> tokens, int64_t start, const LogitsTarget& target) {
  Sequence& sequence = session.sequence;
  const int64_t count = std::ssize(tokens);
  const int64_t vocab = session.model->config.vocab_size;
  const int64_t chunk = std::min(session.options.pass_rows, target.sink ? kSinkRows : count);
  int64_t done = 0;
  while (done < count) {
    if (done > 0 && is_interrupted(session)) break;
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
                       .candidates = target.candidates};
    run_pass(session, {&segment, 1}, logits);
    done += rows;
    if (!are_logits_finite(session, 0, logit_rows)) return {done, false};
    if (logit_rows > 0) session.last_logit_row = logit_rows - 1;
    if (target.sink) (*target.sink)(done - rows, {logits, static_cast<size_t>(logit_rows * vocab)});
  }
  return {done, true};
}

Error interruption(int64_t done, int64_t count) {
  return error("interrupted after " + std::to_string(done) + " of " + std::to_string(count) + " tokens", "prompt");
}

// Evaluates the sequence again to find the first stage with a NaN or infinity. Then empties the session with its cache.
Error non_finite_error(Session& session) {
  const std::vector<int32_t> ids = session.sequence.ids;
  if (session.model->reads_hidden()) {
    session.sequence.ids.clear();
    return error("NaN or infinity from the MTP layer", kNonFiniteLogits);
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
  return error("NaN or infinity, first from " + layer + std::string(kStageNames[static_cast<size_t>(point.stage)]) +
                   "; the weights may be damaged (`pinion pack --check` compares cached ones)",
               kNonFiniteLogits);
}

Error evaluate_to(Session& session, std::span<const int32_t> tokens, const LogitsTarget& target) {
  const ModelConfig& c = session.model->config;
  Sequence& sequence = session.sequence;
  const int64_t start = std::ssize(sequence.ids), count = std::ssize(tokens);
  if (start + count > sequence.cache.capacity) {
    return error("too many tokens", "context", at_most(sequence.cache.capacity), start + count);
  }
  if (Error e = check_ids(c, tokens)) return e;
  if (Error e = check_writes_texts(c)) return e;
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

// Runs the passes of the only request. Returns its result if it ends by an interruption, during the prompt as an error.
Error run_request(Session& session, int64_t id, GenerateResult* out) {
  while (step(session)) {
    if (!is_interrupted(session) || session.running.empty() || session.running[0]->is_decoding()) continue;
    const ScheduledRequest& request = *session.running[0];
    const int64_t evaluated = request.evaluated(), total = request.total();
    *out = std::move(session.running[0]->text.result);
    cancel(session, id);
    if (out->ids.empty()) return interruption(evaluated, total);
    out->finish_reason = FinishReason::stop;  // longrope: the text was evaluated again with other factors
  }
  return {};
}

}  // namespace

Error open_session(const Model& model, Team& team, SchedulerOptions options, std::unique_ptr<Session>* out) {
  const int64_t chunk = options.pass_rows;
  if (chunk < 1) return error("out of range", "prefill chunk", "at least 1", chunk);
  auto session = std::make_unique<Session>();
  options.sequences = 1;
  options.keeps_last_text = true;
  if (Error e = open_scheduler(model, team, options, session.get())) return e;
  session->sequence = std::move(session->free_sequences.back());
  session->free_sequences.clear();
  if (model.reads_hidden()) session->input_hidden.resize(session->hidden.size());
  *out = std::move(session);
  return {};
}

Error evaluate(Session& session, std::span<const int32_t> tokens, bool all, float* logits, int64_t candidates) {
  return evaluate_to(session, tokens, {.all = all, .logits = logits, .candidates = candidates});
}

Error evaluate(Session& session, std::span<const int32_t> tokens, const LogitsSink& sink) {
  std::vector<float> logits(kSinkRows * session.model->config.vocab_size);
  return evaluate_to(session, tokens, {.all = true, .logits = logits.data(), .sink = &sink});
}

void keep_snapshot(Session& session) {
  take_snapshot(&session.sequence.snapshots, session.sequence.state, std::ssize(session.sequence.ids));
}

Error generate(Session& session, std::span<const int32_t> prompt, const GenerateOptions& options,
               const OnToken& on_token, GenerateResult* out) {
  GenerateResult result;
  Error failure;
  int64_t regions = session.team->regions(), barriers = session.team->barriers();
  TextRequest request = {.prompt = {prompt.begin(), prompt.end()}, .options = options};
  request.speculates = session.speculates;
  request.on_token = [&](int32_t id, const GenerateResult& so_far) {
    if (so_far.ids.size() == 1) regions = session.team->regions(), barriers = session.team->barriers();
    return on_token(id);
  };
  request.on_end = [&](const Error& e, GenerateResult ended) { failure = e, result = std::move(ended); };
  for (const auto& drafts : session.free_drafts) {
    // An MTP layer is not interrupted: its passes are short, and it could not receive missed hidden states again.
    if (drafts->model && !reads_hidden(*drafts->model)) drafts->model->session->interrupted = session.interrupted;
  }
  int64_t id = 0;
  if (Error e = submit(session, std::move(request), &id)) return e;
  session.free_sequences.push_back(std::move(session.sequence));
  const Error interrupted = run_request(session, id, &result);
  session.sequence = std::move(session.free_sequences.back());
  session.free_sequences.clear();
  if (interrupted) return interrupted;
  if (failure.where == kNonFiniteLogits) {  // evaluates again to name the first stage with one
    std::vector<int32_t> text(prompt.begin(), prompt.end());
    text.insert(text.end(), result.ids.begin(), result.ids.end());
    std::vector<float> logits(session.model->config.vocab_size);
    if (Error e = evaluate(session, text, false, logits.data())) return e;
  }
  if (failure) return failure;
  if (!result.ids.empty()) {
    result.regions = session.team->regions() - regions;
    result.barriers = session.team->barriers() - barriers;
  }
  *out = std::move(result);
  return {};
}

}  // namespace pinion
