#include "apps/cli/speculate.h"

#include <utility>

#include "engine/forward/rope.h"

namespace pinion {
namespace {

constexpr std::string_view kNgram = "ngram";
constexpr std::string_view kMtp = "mtp";

// Each id must have the same text in both. The longer vocabulary may be padded.
Error compare_vocabularies(const std::string& model, const std::string& small) {
  if (!has_tokenizer(model) || !has_tokenizer(small)) return {};
  std::shared_ptr<const Tokenizer> target, draft;
  if (Error e = load_model_tokenizer(model, &target)) return e;
  if (Error e = load_model_tokenizer(small, &draft)) return e;
  for (int32_t id = 0; id < std::min(vocab_size(*target), vocab_size(*draft)); ++id) {
    const std::string want = token_text(*target, id), have = token_text(*draft, id);
    if (want != have) {
      return error("a draft model must have the vocabulary of the model; token " + std::to_string(id) + " differs",
                   small, "\"" + want + "\"", "\"" + have + "\"");
    }
  }
  return {};
}

Error open_draft_model(const std::string& small, const RunOptions& run, Drafting* out) {
  RunOptions options = run;
  options.model = small;
  PackRecord record;
  if (Error e = read_pack_record(small, &record)) return e;
  if (!record.empty()) {  // it was packed with options of its own
    options.load.head.reset();
    options.load.rotate = true;
  }
  if (!record.empty() || run.quant_reason != kQuantRequested) options.load.quant = default_quant(small);
  if (!record.empty() || options.calibrate != kNoCalibration) options.calibrate.clear();
  options.load.keep.clear();  // names matrices of the target model
  options.load.lora.clear();
  options.is_draft_model = true;
  options.exchange = nullptr;  // small enough for rank 0 alone
  return open_with_progress(options, nullptr, &out->runtime);
}

// Opens the draft model or the MTP layer, if `source` names one.
Error open_drafting(const std::string& source, const RunOptions& run, const Runtime& runtime, Drafting* out) {
  if (source == kNgram) return {};
  if (source != kMtp) return open_draft_model(source, run, out);
  if (run.exchange) return error("not supported on several boards", "--speculate mtp", "ngram or DIR");
  RunOptions options = run;
  options.is_draft_model = true;
  options.load = load_options(options);
  return open_mtp(options, runtime, &out->runtime);
}

}  // namespace

void add_speculate_option(Command app, std::string* source) {
  app.add_option("--speculate off|ngram|mtp|DIR", *source).replace([](const std::string& text) {
    return text == kNgram || text == kMtp || text == "off" ? text : find_model_folder(text);
  });
}

bool needs_hidden(const std::string& source) { return source == kMtp; }

Error check_speculation(const std::string& source, const RunOptions& run) {
  const std::string& model = run.model;
  if (!is_speculating(source) || source == kNgram) return {};
  if (source == kMtp) {
    bool has_layer = false;
    return check_mtp(model, run.load, &has_layer);
  }
  if (Error e = check_model_folder(source)) {
    e.where = "--speculate " + e.where;
    if (e.expected.empty()) e.expected = "off, ngram, mtp, or the folder or ORG/NAME of a draft model";
    return e;
  }
  ModelConfig config;
  if (Error e = read_model_config(source, &config)) return e;
  if (Error e = check_draft_model(config)) {
    e.where = "--speculate " + source;
    return e;
  }
  return compare_vocabularies(model, source);
}

Error begin_speculation(const std::string& source, const RunOptions& run, const Runtime& runtime, Scheduler* scheduler,
                        Drafting* out) {
  if (!is_speculating(source)) return {};
  out->speculates = !frequencies_follow_length(scheduler->model->config);
  if (!out->speculates) {
    note("--speculate has no effect: this model's rope frequencies depend on the length of the text");
    return {};
  }
  if (Error e = open_drafting(source, run, runtime, out)) return e;
  const int64_t count = source == kNgram ? 0 : scheduler->options.sequences;
  const int64_t fitting = count > 0 ? fitting_context(out->runtime) / count : 0;
  const int64_t capacity = std::min(scheduler->options.context + kMaxDrafts, fitting);
  for (int64_t i = 0; i < count; ++i) {
    // On the teams of the target model.
    SchedulerOptions needs = scheduler_options(runtime, {.context = capacity, .also_open = scheduler});
    needs.kv = out->runtime.kv;
    auto model = std::make_unique<DraftModel>();
    if (Error e = open_session(*out->runtime.model, *runtime.team, needs, &model->session)) return e;
    add_draft_model(*scheduler, std::move(model));
  }
  return {};
}

void note_draft_failure(const Scheduler& scheduler, bool* is_noted) {
  for (const auto& drafts : scheduler.free_drafts) {
    if (!drafts->failure || std::exchange(*is_noted, true)) continue;
    note("the draft model drafts no more: " + drafts->failure.message());
  }
}

}  // namespace pinion
