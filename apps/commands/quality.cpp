// pinion quality: compares a model's predictions of a text in a quantised mode with those of mode none.
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "engine/forward/probes.h"
#include "engine/forward/rope.h"
#include "engine/measure/statistics.h"

namespace pinion {
namespace {

struct QualityOptions {
  RunOptions run;
  std::string file;
  int64_t window = 0;  // 0: kDefaultWindow, or the model's context where that is shorter
  int64_t tokens = 0;  // 0: all
  bool json = false;
};

constexpr int64_t kDefaultWindow = 512;
constexpr int64_t kStepTokens = 64;   // tokens whose logits are held at a time
constexpr int64_t kTraceTokens = 64;  // tokens whose activations are traced, one by one
constexpr size_t kWorstInputs = 8;

struct InputSpread {
  std::string matrix;
  Spread before;  // in mode none
  Spread after;   // as quantised
};

struct Quality {
  int64_t window = 0;  // tokens of a window; the last may be shorter
  int64_t windows = 0;
  std::vector<double> reference_loss, loss, change, kl, same_top;  // of each predicted token
  std::vector<InputSpread> worst;                                  // widest first
};

// The text is evaluated in independent windows, each of which begins with the tokenizer's prefix.
Error read_text(const QualityOptions& options, TextIds* out) {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string text;
  if (Error e = load_model_tokenizer(options.run.model, &tokenizer)) return e;
  if (Error e = read_input(options.file, kMaxTextBytes, &text)) return e;
  if (Error e = encode_with_prefix(*tokenizer, text, out)) return e;
  if (options.tokens > 0 && std::ssize(out->ids) > options.tokens) out->ids.resize(options.tokens);
  if (!out->ids.empty() && out->ids.size() + out->prefix.size() >= 2) return {};
  return error("too short to predict anything", options.file, "2 tokens", out->ids.size());
}

// The model in mode none and in the tested mode. Both evaluate the text in steps of kStepTokens.
struct Pair {
  Runtime reference, tested;
  std::unique_ptr<Session> reference_session, tested_session;
  std::vector<float> reference_logits, tested_logits;  // [kStepTokens, vocab]
};

Error open_pair(const QualityOptions& options, int64_t positions, Pair* out) {
  RunOptions reference = options.run;
  reference.load = {.quant = Quant::none, .lora = options.run.load.lora};
  reference.kv = KvType::f32;
  reference.calibrate.clear();
  if (Error e = open_with_progress(reference, nullptr, &out->reference)) return e;
  if (Error e = open_with_progress(options.run, nullptr, &out->tested)) return e;
  if (Error e = open_session(out->reference, {.context = positions}, &out->reference_session)) return e;
  const Scheduler* other = out->reference_session.get();
  if (Error e = open_session(out->tested, {.context = positions, .also_open = other}, &out->tested_session)) return e;
  const int64_t floats = kStepTokens * out->tested.model->config.vocab_size;
  out->reference_logits.resize(floats);
  out->tested_logits.resize(floats);
  return {};
}

// Row i of the logits predicts next[i].
void add_predictions(Pair& pair, std::span<const int32_t> next, Quality* out) {
  const int64_t vocab = pair.tested.model->config.vocab_size;
  std::vector<Divergence> divergences(next.size());
  pair.tested.team->run([&](Worker& worker) {
    worker.for_each(std::ssize(next), [&](int64_t row) {
      divergences[row] = compare_logits(std::span(pair.reference_logits).subspan(row * vocab, vocab),
                                        std::span(pair.tested_logits).subspan(row * vocab, vocab), next[row]);
    });
  });
  for (const Divergence& d : divergences) {
    out->reference_loss.push_back(d.reference_loss);
    out->loss.push_back(d.loss);
    out->change.push_back(d.loss - d.reference_loss);
    out->kl.push_back(d.kl);
    out->same_top.push_back(d.same_top ? 1 : 0);
  }
}

Error add_window(Pair& pair, std::span<const int32_t> ids, int64_t first_predicted, Quality* out) {
  rewind(pair.reference_session->sequence, 0);
  rewind(pair.tested_session->sequence, 0);
  for (int64_t done = 0; done + 1 < std::ssize(ids); done += kStepTokens) {
    const int64_t count = std::min(kStepTokens, std::ssize(ids) - 1 - done);
    const auto step = ids.subspan(done, count);
    if (Error e = evaluate(*pair.reference_session, step, true, pair.reference_logits.data())) return e;
    if (Error e = evaluate(*pair.tested_session, step, true, pair.tested_logits.data())) return e;
    const int64_t skipped = std::clamp<int64_t>(first_predicted - 1 - done, 0, count);
    const auto vocab = pair.tested.model->config.vocab_size;
    if (skipped > 0) {  // predictions inside the prefix do not count
      for (std::vector<float>* logits : {&pair.reference_logits, &pair.tested_logits}) {
        std::copy_n(logits->begin() + skipped * vocab, (count - skipped) * vocab, logits->begin());
      }
    }
    add_predictions(pair, ids.subspan(done + skipped + 1, count - skipped), out);
  }
  ++out->windows;
  return {};
}

// Records the matrix inputs for the beginning of the text, token by token.
Error trace_inputs(Session& session, std::span<const int32_t> ids, float* logits, Trace* out) {
  session.trace = out;
  rewind(session.sequence, 0);
  for (const int32_t& id : ids.first(std::min<int64_t>(std::ssize(ids), kTraceTokens))) {
    if (Error e = evaluate(session, {&id, 1}, false, logits)) return e;
  }
  session.trace = nullptr;
  return {};
}

// Spread of the matrix inputs in mode none, and of the same inputs as the tested mode quantises them.
Error add_spreads(Pair& pair, std::span<const int32_t> ids, Quality* out) {
  const ModelConfig& c = pair.reference.model->config;
  Trace before(c.layers), after(c.layers);
  if (Error e = trace_inputs(*pair.reference_session, ids, pair.reference_logits.data(), &before)) return e;
  if (Error e = trace_inputs(*pair.tested_session, ids, pair.tested_logits.data(), &after)) return e;
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    std::array<bool, kStages> is_added = {};  // a stage is named after its first matrix
    for (const MatrixTensor& matrix : layer_matrices(c, layer)) {
      const auto stage = static_cast<size_t>(matrix.stage);
      const Spread &in_reference = before.inputs[layer][stage], &as_quantised = after.inputs[layer][stage];
      if (in_reference.rows == 0 || std::exchange(is_added[stage], true)) continue;
      out->worst.push_back({matrix.module(), in_reference, as_quantised});
    }
  }
  std::ranges::sort(out->worst, std::greater(), [](const InputSpread& input) { return input.before.worst; });
  out->worst.resize(std::min(out->worst.size(), kWorstInputs));
  return {};
}

Error measure_quality(const QualityOptions& options, Quality* out) {
  TextIds text;
  if (Error e = read_text(options, &text)) return e;
  Pair pair;
  if (Error e = open_pair(options, options.window > 0 ? options.window : kDefaultWindow, &pair)) return e;
  out->window = pair.tested_session->sequence.cache.capacity;
  const auto prefix = std::ssize(text.prefix);
  const int64_t content = out->window - prefix;
  if (out->window < options.window || content < 1) {
    return error("out of range", "--window",
                 std::to_string(prefix + 1) + " to " + std::to_string(context_length(pair.tested.model->config)),
                 options.window);
  }
  ProgressBar bar("comparing");
  const int64_t total = std::ssize(text.ids);
  const auto window_from = [&](int64_t first) {
    std::vector<int32_t> ids = text.prefix;
    ids.insert(ids.end(), text.ids.begin() + first, text.ids.begin() + std::min(total, first + content));
    return ids;
  };
  for (int64_t done = 0; done < total; done += content) {
    if (Error e = add_window(pair, window_from(done), std::max<int64_t>(1, prefix), out)) return e;
    bar.show(done + content, total);
  }
  return add_spreads(pair, window_from(0), out);
}

// e^mean of the losses, with the standard error to first order.
Mean exponential(const Mean& mean) { return {std::exp(mean.value), std::exp(mean.value) * mean.standard_error}; }

OrderedJson mean_json(const Mean& mean) { return {{"value", mean.value}, {"standard_error", mean.standard_error}}; }

OrderedJson quality_json(const QualityOptions& options, const Quality& q) {
  OrderedJson worst = OrderedJson::array();
  for (const InputSpread& input : q.worst) {
    worst.push_back({{"matrix", input.matrix},
                     {"worst", input.before.worst},
                     {"mean", input.before.mean()},
                     {"quantised_worst", input.after.worst},
                     {"quantised_mean", input.after.mean()}});
  }
  return {{"predicted_tokens", q.loss.size()},
          {"windows", q.windows},
          {"window_tokens", q.window},
          {"traced_tokens", kTraceTokens},
          {"mode", mode_text(options.run)},
          {"quant", quant_name(options.run)},
          {"kv", kv_name(options.run)},
          {"head", head_name(options.run)},
          {"keep", options.run.load.keep},
          {"rotate", options.run.load.rotate},
          {"calibrate", calibration_source(options.run)},
          {"reference_perplexity", mean_json(exponential(mean_of(q.reference_loss)))},
          {"perplexity", mean_json(exponential(mean_of(q.loss)))},
          {"perplexity_ratio", mean_json(exponential(mean_of(q.change)))},
          {"kl", mean_json(mean_of(q.kl))},
          {"kl_99th_percentile", quantile(q.kl, 0.99)},
          {"same_top", mean_json(mean_of(q.same_top))},
          {"widest_inputs", worst}};
}

int run_quality(const QualityOptions& options) {
  if (Error e = check_model_folder(options.run.model)) return fail(e);
  Quality quality;
  if (Error e = measure_quality(options, &quality)) return fail(e);
  return print_report(quality_json(options, quality), options.json, "quality");
}

}  // namespace

Run setup_quality(Command app) {
  auto options = std::make_shared<QualityOptions>();
  add_run_options(app, &options->run);
  app.add_path("--file F.txt", options->file).required();
  app.add_number("--window N", options->window, 2, 1 << 24);
  app.add_number("--tokens N", options->tokens, 1, 1 << 30);
  app.add_flag("--json", options->json);
  return {[options] { return run_quality(*options); }};
}

}  // namespace pinion
