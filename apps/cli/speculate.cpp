#include "apps/cli/speculate.h"

#include <algorithm>

#include "engine/forward/rope.h"
#include "loader/checkpoint/model_folder.h"

namespace pinion {
namespace {

constexpr std::string_view kNgram = "ngram";
constexpr std::string_view kMtp = "mtp";

// The two must mean the same text by each id. A vocabulary may be padded, so the longer one may have more.
Error compare_vocabularies(const std::string& model, const std::string& small) {
  if (!has_tokenizer(model) || !has_tokenizer(small)) return {};
  std::shared_ptr<const Tokenizer> one, other;
  if (Error e = load_own_tokenizer(model, &one)) return e;
  if (Error e = load_own_tokenizer(small, &other)) return e;
  for (int32_t id = 0; id < std::min(vocab_size(*one), vocab_size(*other)); ++id) {
    const std::string want = token_text(*one, id), have = token_text(*other, id);
    if (want != have) {
      return error("a draft model must have the vocabulary of the model; token " + std::to_string(id) + " differs",
                   small, "\"" + want + "\"", "\"" + have + "\"");
    }
  }
  return {};
}

// A session of the model that drafts, beside the session that it drafts for.
Error open_draft_session(const Runtime& runtime, const Session& session, Drafting* out) {
  SessionOptions needs;
  needs.kv = out->runtime.kv;
  needs.capacity = session.sequence.cache.capacity + kMostDrafts;
  needs.prefill_chunk = runtime.prefill_chunk;
  needs.kernels = runtime.kernels;
  needs.prefill_team = runtime.prefill_team.get();
  needs.also_open = &session;
  auto model = std::make_unique<DraftModel>();
  if (Error e = open_session(*out->runtime.model, *runtime.team, needs, &model->session)) return e;
  out->speculation->model = std::move(model);
  return {};
}

Error open_draft_model(const std::string& small, const RunOptions& run, Drafting* out) {
  RunOptions options = run;
  options.model = small;
  if (run.why_quant != kQuantAsAsked) options.load.quant = default_quant(small);
  options.calibrate.clear();
  options.load.keep.clear();  // matrices of the large one
  options.only_drafts = true;
  options.exchange = nullptr;  // it is small: of several boards the first has it
  return open_with_progress(options, &out->runtime);
}

Error open_mtp_layer(const RunOptions& run, const Runtime& runtime, Drafting* out) {
  RunOptions own = run;
  own.only_drafts = true;
  RuntimeOptions options = own;
  options.load = load_options(own);
  return open_mtp(options, runtime, &out->runtime);
}

}  // namespace

void add_speculate_option(Command app, std::string* what) {
  app.add_option(
         "--speculate", *what,
         "Try several tokens in a pass; the text stays the same. ngram: what was said before in the same words; "
         "mtp: what the model's own layer for it says, where it has one (Qwen3.5); a folder or ORG/NAME: what this "
         "smaller model of the same vocabulary says (default: off; with a grammar ngram)")
      .type_name("off|ngram|mtp|DIR")
      .replace([](const std::string& text) {
        return text == kNgram || text == kMtp || text == "off" ? text : find_model_folder(text);
      });
}

SessionNeeds session_needs(const std::string& speculate, int64_t capacity) {
  return {
      .capacity = capacity, .drafts = is_speculating(speculate) ? kMostDrafts : 0, .keeps_hidden = speculate == kMtp};
}

Error check_speculation(const std::string& what, const RunOptions& run) {
  const std::string& model = run.model;
  if (!is_speculating(what) || what == kNgram) return {};
  if (what == kMtp) {
    bool is_there = false;
    return check_mtp(model, run.load, &is_there);
  }
  if (Error e = check_model_folder(what)) {
    e.where = "--speculate " + e.where;
    if (e.expected.empty()) e.expected = "off, ngram, mtp, or the folder or ORG/NAME of a small model";
    return e;
  }
  ModelConfig config;
  if (Error e = read_model_config(what, &config)) return e;
  if (Error e = check_draft_model(config)) {
    e.where = "--speculate " + what;
    return e;
  }
  return compare_vocabularies(model, what);
}

Error begin_speculation(const std::string& what, const RunOptions& run, const Runtime& runtime, Session* session,
                        Drafting* out) {
  if (!is_speculating(what)) return {};
  if (frequencies_follow_length(session->model->config)) {
    note("--speculate does nothing for this model: its positions follow the length of the text");
    return {};
  }
  out->speculation.emplace();
  if (what == kMtp && run.exchange)
    return error("not for a model on several boards", "--speculate mtp", "ngram or DIR");
  if (what != kNgram) {
    if (Error e = what == kMtp ? open_mtp_layer(run, runtime, out) : open_draft_model(what, run, out)) return e;
    if (Error e = open_draft_session(runtime, *session, out)) return e;
  }
  use_speculation(&*out->speculation, session);
  return {};
}

void tell_failure(Drafting& drafting) {
  if (!drafting.speculation || !drafting.speculation->failure || drafting.failure_is_told) return;
  drafting.failure_is_told = true;
  note("no more drafts: " + drafting.speculation->failure.message());
}

}  // namespace pinion
