#include "engine/session/scheduler.h"

#include "engine/team/memory.h"

namespace pinion {
namespace {

// Maximum of extra_logit_rows: bounds the memory for logits.
constexpr int64_t kExtraLogitRows = 64;
static_assert(kExtraLogitRows >= PassSeconds::kMaxRows, "a pass with drafts has at most kMaxRows rows");

Error check_options(const Scheduler& s, int64_t context, int64_t positions) {
  const SchedulerOptions& o = s.options;
  const auto check = [](const char* name, int64_t value, int64_t least, const std::string& expected) {
    return value >= least ? Error{} : error("out of range", name, expected, value);
  };
  const std::string sequences = std::to_string(o.sequences);
  if (Error e = check("sequences", o.sequences, 1, "at least 1")) return e;
  if (Error e = check("rows of a pass", o.pass_rows, o.sequences + (o.sequences > 1),
                      "more than the " + sequences + " sequences"))
    return e;
  if (Error e = check("rows of prompts beside decoding", o.rows_beside_decode, 1, "at least 1")) return e;
  return check("positions", positions, context, "at least one context of " + std::to_string(context));
}

void resize_logits(Scheduler& s) {
  s.logits.resize((s.options.sequences + s.extra_logit_rows) * s.model->config.vocab_size);
}

// Checks the memory for extra_logit_rows. The next step() allocates it: a callback may submit while logits are in use.
Error add_logit_rows(Scheduler& s) {
  if (s.extra_logit_rows > 0) return {};
  const int64_t rows = std::min(kExtraLogitRows, s.options.pass_rows);
  const int64_t bytes = rows * s.model->config.vocab_size * sizeof(float);
  const std::string what = "too little memory for " + std::to_string(rows) + " more rows per pass";
  if (Error e = check_memory(bytes, free_memory(), what, "logits", "")) return e;
  s.extra_logit_rows = rows;
  return {};
}

// Gives the hidden states of the pass to its requests, or to their MTP layers.
void pass_hidden_on(Scheduler& s) {
  const int64_t width = s.model->config.hidden_size;
  for (size_t i = 0; i < s.segments.size() && !s.hidden.empty(); ++i) {
    const Segment& segment = s.segments[i];
    const ScheduledRequest& request = *s.segment_requests[i];
    const auto rows = std::span<const float>(s.hidden).subspan(segment.row * width, segment.size() * width);
    if (request.spec.on_hidden) request.spec.on_hidden(segment.position, rows);
    const Speculation* drafting = request.drafts.get();
    if (!drafting || !drafting->model || drafting->failure || !reads_hidden(*drafting->model)) continue;
    receive_hidden(*drafting->model, std::span(request.sequence.ids).first(segment.position), segment.tokens, rows);
  }
}

}  // namespace

int64_t untouched_bytes(const Scheduler& s) {
  const Arena& pool = s.pool.memory;
  return mapped_bytes(*s.model) + pool.bytes - std::min(pool.bytes, resident_bytes(pool.data, pool.bytes)) +
         s.options.sequences * recurrent_state_of(s.model->config).bytes();
}

Error open_scheduler(const Model& model, Team& team, const SchedulerOptions& options, std::unique_ptr<Scheduler>* out) {
  auto scheduler = std::make_unique<Scheduler>();
  if (Error e = open_scheduler(model, team, options, scheduler.get())) return e;
  *out = std::move(scheduler);
  return {};
}

Error open_scheduler(const Model& model, Team& team, const SchedulerOptions& options, Scheduler* s) {
  const ModelConfig& c = model.config;
  s->options = options;
  if (Error e = make_runner(model, team, options.prefill_team, options.kernels, s)) return e;
  const int64_t limit = context_length(c), sequences = options.sequences;
  const int64_t context = options.context > 0 ? std::min(options.context, limit) : limit;
  const int64_t positions = options.positions > 0 ? options.positions : sequences * round_up(context, kAttentionChunk);
  if (Error e = check_options(*s, context, positions)) return e;
  s->options.context = context;
  const int64_t pass_rows = c.attends_both_ways ? std::max(context, options.pass_rows) : options.pass_rows;
  s->options.pass_rows = std::min(pass_rows, std::max(positions, sequences + 1));
  s->scratch.activations.inputs.keeps_values = options.keeps_inputs;
  const KvShape shape = kv_shape_of(c, options.kv, model.shares());
  const int64_t rows = s->options.pass_rows;
  const int64_t hidden = options.keeps_hidden || model.reads_hidden() ? rows * c.hidden_size : 0;
  const int64_t hidden_bytes = (model.reads_hidden() ? 2 : 1) * hidden * 4;  // an MTP layer reads as many
  const int64_t open_bytes = options.also_open ? untouched_bytes(*options.also_open) : 0;
  const int64_t other_bytes =
      sequences * (recurrent_state_of(c).bytes() + c.vocab_size * 4) + hidden_bytes + open_bytes;
  const std::string of_sequences = sequences > 1 ? " of " + std::to_string(sequences) + " sequences" : "";
  const std::string detail = options.also_open ? ", " + megabytes_text(open_bytes) + " for the other open model" : "";
  if (Error e = allocate_scratch(s, rows, context, shape.bytes(positions), other_bytes,
                                 std::to_string(positions) + " positions" + of_sequences, detail)) {
    return e;
  }
  if (Error e = allocate_kv_pool(shape, KvShape::chunks_of(positions), &s->pool)) return e;
  for (int64_t i = 0; i < sequences; ++i) {
    Sequence& sequence = s->free_sequences.emplace_back();
    if (Error e = make_sequence(c, &s->pool, context, &sequence)) return e;
    sequence.snapshots.pool = &s->snapshots;
  }
  // Behind all local allocations.
  if (Error e = s->followers.open(model.exchange, {rows, context, shape.type(), s->pool.blocks()})) return e;
  s->segments.reserve(sequences);
  s->segment_requests.reserve(sequences);
  s->draws.reserve(sequences);
  s->running.reserve(sequences);
  s->drafters.reserve(sequences);
  s->drafter_requests.reserve(sequences);
  s->snapshots.limit_bytes = options.snapshot_bytes;
  s->hidden.resize(hidden);
  resize_logits(*s);
  return {};
}

void add_draft_model(Scheduler& s, std::unique_ptr<DraftModel> model) {
  auto drafts = std::make_unique<Speculation>();
  drafts->model = std::move(model);
  drafts->model->vocab_size = s.model->config.vocab_size;
  s.free_drafts.push_back(std::move(drafts));
}

Error check_writes_texts(const ModelConfig& c) {
  if (c.has_head && !c.attends_both_ways) return {};
  return error("computes vectors or scores only (`pinion embed`, /v1/embeddings, /v1/rerank)", "model");
}

Error submit(Scheduler& s, TextRequest spec, int64_t* id) {
  const ModelConfig& c = s.model->config;
  if (Error e = check_prompt(c, spec.prompt, s.options.context)) return e;
  if (Error e = check_generate_options(c, spec.options)) return e;
  if (spec.on_hidden && s.hidden.empty()) return error("the scheduler keeps none", "hidden states");
  if (spec.on_hidden) {
    spec.options.max_tokens = 0;
    spec.needs_all_hidden |= c.attends_both_ways;
  } else if (Error e = check_writes_texts(c)) {
    return e;
  }
  spec.speculates &= !frequencies_follow_length(c) && !spec.on_hidden;
  if (spec.options.prompt_logprobs || spec.speculates || spec.options.rules) {
    const Error e = add_logit_rows(s);
    if (e && spec.options.prompt_logprobs) return e;  // drafts are optional
  }
  auto request = std::make_unique<ScheduledRequest>();
  request->id = *id = s.next_id++;
  request->text = begin_continuation(spec.prompt, spec.options);
  request->spec = std::move(spec);
  request->submitted_ns = now_ns();
  s.waiting.push_back(std::move(request));
  return {};
}

bool cancel(Scheduler& s, int64_t id) {
  const auto has_id = [&](const auto& request) { return request->id == id; };
  const auto waiting = std::ranges::find_if(s.waiting, has_id);
  if (waiting != s.waiting.end()) {
    s.waiting.erase(waiting);
    return true;
  }
  const auto running = std::ranges::find_if(s.running, has_id);
  if (running == s.running.end()) return false;
  release(s, **running, true);
  s.running.erase(running);
  return true;
}

bool step(Scheduler& s) {
  admit_waiting(s);
  if (s.running.empty()) return false;
  resize_logits(s);
  fill_pass(s);
  if (s.segments.empty()) {  // all texts wait for their rules
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  }
  const int64_t start = now_ns();
  const int64_t rows = run_pass(s, s.segments, s.logits.data());
  pass_hidden_on(s);
  ++s.passes;
  if (s.is_pass_timed) note_pass(s.pass_seconds, rows, static_cast<double>(now_ns() - start) * 1e-9);
  finish_pass(s);
  return true;
}

}  // namespace pinion
