// pinion quality: what the quantised arithmetic does to a model's predictions of a text, measured against mode none.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>

#include "apps/commands.h"
#include "engine/forward/rope.h"
#include "engine/forward/trace.h"
#include "engine/measure/divergence.h"
#include "engine/measure/statistics.h"

namespace pinion {
namespace {

struct Options {
  RunOptions run;
  std::string file;
  int64_t window = 0;  // 0: kDefaultWindow, or the model's context where that is shorter
  int64_t tokens = 0;  // 0: all
  bool json = false;
};

constexpr int64_t kDefaultWindow = 512;
constexpr int64_t kBlockTokens = 64;  // whose logits are kept at a time
constexpr int64_t kTraceTokens = 64;  // whose activations are looked at, one by one
constexpr size_t kWorstInputs = 8;

struct InputSpread {
  std::string matrix;
  Spread before;  // as the layer gives it, in mode none
  Spread after;   // as it is quantised
};

struct Quality {
  int64_t window = 0;  // tokens of one, at most
  int64_t windows = 0;
  std::vector<double> reference_loss, loss, change, kl, same_top;  // by predicted token
  std::vector<InputSpread> worst;                                  // the widest first
};

// It is taken in windows that know nothing of each other; each begins with the text's prefix.
Error read_text(const Options& options, TextIds* out) {
  if (Error e = read_text_ids(options.run.model, options.file, out)) return e;
  if (options.tokens > 0 && std::ssize(out->ids) > options.tokens) out->ids.resize(static_cast<size_t>(options.tokens));
  if (!out->ids.empty() && out->ids.size() + out->prefix.size() >= 2) return {};
  return error("too short to predict anything", options.file, "2 tokens", std::to_string(out->ids.size()));
}

// The same text through both models, a block of tokens at a time.
struct Pair {
  Runtime reference, other;
  std::unique_ptr<Session> reference_session, other_session;
  std::vector<float> reference_logits, other_logits;  // [kBlockTokens][vocab]
};

Error open_pair(const Options& options, int64_t positions, Pair* out) {
  RunOptions reference = options.run;
  reference.load = {.quant = Quant::none};
  reference.kv = KvType::f32;
  reference.calibrate.clear();
  if (Error e = open_with_progress(reference, &out->reference)) return e;
  if (Error e = open_with_progress(options.run, &out->other)) return e;
  if (Error e = open_session(out->reference, {.capacity = positions}, &out->reference_session)) return e;
  const Session* also_open = out->reference_session.get();
  if (Error e = open_session(out->other, {.capacity = positions, .also_open = also_open}, &out->other_session))
    return e;
  const auto floats = static_cast<size_t>(kBlockTokens * out->other.model->config.vocab_size);
  out->reference_logits.resize(floats);
  out->other_logits.resize(floats);
  return {};
}

// Row i of the logits predicts next[i].
void add_block(Pair& pair, std::span<const int32_t> next, Quality* out) {
  const auto vocab = static_cast<size_t>(pair.other.model->config.vocab_size);
  std::vector<Divergence> found(next.size());
  pair.other.team->run([&](Worker& worker) {
    worker.for_each(std::ssize(next), [&](int64_t row) {
      const size_t i = static_cast<size_t>(row);
      found[i] = compare_logits(std::span(pair.reference_logits).subspan(i * vocab, vocab),
                                std::span(pair.other_logits).subspan(i * vocab, vocab), next[i]);
    });
  });
  for (const Divergence& one : found) {
    out->reference_loss.push_back(one.reference_loss);
    out->loss.push_back(one.loss);
    out->change.push_back(one.loss - one.reference_loss);
    out->kl.push_back(one.kl);
    out->same_top.push_back(one.same_top ? 1 : 0);
  }
}

Error add_window(Pair& pair, std::span<const int32_t> ids, int64_t first_predicted, Quality* out) {
  rewind(pair.reference_session->sequence, 0);
  rewind(pair.other_session->sequence, 0);
  for (int64_t done = 0; done + 1 < std::ssize(ids); done += kBlockTokens) {
    const int64_t count = std::min(kBlockTokens, std::ssize(ids) - 1 - done);
    const auto block = ids.subspan(static_cast<size_t>(done), static_cast<size_t>(count));
    if (Error e = evaluate(*pair.reference_session, block, true, pair.reference_logits.data())) return e;
    if (Error e = evaluate(*pair.other_session, block, true, pair.other_logits.data())) return e;
    const int64_t skipped = std::clamp<int64_t>(first_predicted - 1 - done, 0, count);
    const auto vocab = pair.other.model->config.vocab_size;
    if (skipped > 0) {  // predictions inside the prefix say nothing about the text
      std::copy_n(pair.reference_logits.begin() + skipped * vocab, (count - skipped) * vocab,
                  pair.reference_logits.begin());
      std::copy_n(pair.other_logits.begin() + skipped * vocab, (count - skipped) * vocab, pair.other_logits.begin());
    }
    add_block(pair, ids.subspan(static_cast<size_t>(done + skipped + 1), static_cast<size_t>(count - skipped)), out);
  }
  ++out->windows;
  return {};
}

// What a session's matrices are given for the beginning of the text, token by token.
Error trace_inputs(Session& session, std::span<const int32_t> ids, float* logits, Trace* out) {
  session.trace = out;
  rewind(session.sequence, 0);
  for (const int32_t& id : ids.first(std::min(ids.size(), static_cast<size_t>(kTraceTokens)))) {
    if (Error e = evaluate(session, {&id, 1}, false, logits)) return e;
  }
  session.trace = nullptr;
  return {};
}

// How wide the inputs of the reference's matrices are, and what of that is left where they are quantised.
Error add_spreads(Pair& pair, std::span<const int32_t> ids, Quality* out) {
  const ModelConfig& c = pair.reference.model->config;
  Trace before(c.layers), after(c.layers);
  if (Error e = trace_inputs(*pair.reference_session, ids, pair.reference_logits.data(), &before)) return e;
  if (Error e = trace_inputs(*pair.other_session, ids, pair.other_logits.data(), &after)) return e;
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    const bool attends = c.attends[static_cast<size_t>(layer)], shared = c.has_experts(layer);
    const std::pair<Stage, const std::string*> matrices[] = {
        {Stage::qkv, attends ? &c.names.q : &c.names.state_qkv},
        {Stage::o, &c.names.o},
        {Stage::state_out, &c.names.state_out},
        {Stage::gate_up, shared ? &c.names.shared_up : &c.names.up},
        {Stage::down, shared ? &c.names.shared_down : &c.names.down},
        {Stage::laurel, &c.names.laurel_right},
        {Stage::layer_gate, &c.names.layer_gate},
        {Stage::layer_out, &c.names.layer_out}};
    for (const auto& [stage, pattern] : matrices) {
      const auto i = static_cast<size_t>(layer), j = static_cast<size_t>(stage);
      if (before.inputs[i][j].rows == 0) continue;
      out->worst.push_back({module_name(*pattern, layer), before.inputs[i][j], after.inputs[i][j]});
    }
  }
  std::ranges::sort(out->worst, std::greater(), [](const InputSpread& one) { return one.before.worst; });
  out->worst.resize(std::min(out->worst.size(), kWorstInputs));
  return {};
}

Error measure(const Options& options, Quality* out) {
  TextIds text;
  if (Error e = read_text(options, &text)) return e;
  Pair pair;
  if (Error e = open_pair(options, options.window > 0 ? options.window : kDefaultWindow, &pair)) return e;
  out->window = pair.other_session->sequence.cache.capacity;
  const auto prefix = std::ssize(text.prefix);
  const int64_t content = out->window - prefix;
  if (out->window < options.window || content < 1) {
    return error("out of range", "--window",
                 std::to_string(prefix + 1) + " to " + std::to_string(context_length(pair.other.model->config)),
                 std::to_string(options.window));
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
    bar.show(static_cast<double>(done + content) / static_cast<double>(total));
  }
  return add_spreads(pair, window_from(0), out);
}

// e^mean of the losses, with the error that the mean's makes of it.
Mean exponential(const Mean& mean) { return {std::exp(mean.value), std::exp(mean.value) * mean.standard_error}; }

OrderedJson mean_json(const Mean& mean) { return {{"value", mean.value}, {"standard_error", mean.standard_error}}; }

OrderedJson report(const Options& options, const Quality& q) {
  OrderedJson worst = OrderedJson::array();
  for (const InputSpread& one : q.worst) {
    worst.push_back({{"matrix", one.matrix},
                     {"worst", one.before.worst},
                     {"mean", one.before.mean()},
                     {"quantised_worst", one.after.worst},
                     {"quantised_mean", one.after.mean()}});
  }
  return {{"predicted_tokens", q.loss.size()},
          {"windows", q.windows},
          {"window_tokens", q.window},
          {"mode", mode_text(options.run)},
          {"quant", quant_name(options.run)},
          {"kv", kv_name(options.run)},
          {"head", head_name(options.run)},
          {"keep", options.run.load.keep},
          {"rotate", options.run.load.rotate},
          {"calibrate", options.run.calibrate},
          {"reference_perplexity", mean_json(exponential(mean_of(q.reference_loss)))},
          {"perplexity", mean_json(exponential(mean_of(q.loss)))},
          {"perplexity_ratio", mean_json(exponential(mean_of(q.change)))},
          {"kl", mean_json(mean_of(q.kl))},
          {"kl_99th_percentile", quantile(q.kl, 0.99)},
          {"same_top", mean_json(mean_of(q.same_top))},
          {"widest_inputs", worst}};
}

std::string figure(const OrderedJson& json, const char* name, double factor = 1) {
  std::array<char, 96> text;
  const OrderedJson& mean = json[name];
  std::snprintf(text.data(), text.size(), "%.5g +- %.2g", mean["value"].get<double>() * factor,
                mean["standard_error"].get<double>() * factor);
  return text.data();
}

std::string readable(const OrderedJson& json) {
  std::string text =
      json["predicted_tokens"].dump() + " tokens predicted, in windows of " + json["window_tokens"].dump() + "\n\n";
  const std::string mode = json["mode"].get<std::string>() + ", KV " + json["kv"].get<std::string>();
  text += "perplexity, none:  " + figure(json, "reference_perplexity") + "\n";
  text += "perplexity, " + mode + ": " + figure(json, "perplexity") + "\n";
  text += "ratio of the two:  " + figure(json, "perplexity_ratio") + "\n";
  std::array<char, 160> line;
  std::snprintf(line.data(), line.size(), "KL divergence:     %s, 99 %% of the tokens at most %.3g\n",
                figure(json, "kl").c_str(), json["kl_99th_percentile"].get<double>());
  text += line.data();
  text += "same likeliest:    " + figure(json, "same_top", 100) + " %\n\n";
  text += "Inputs whose largest element stands out most (largest / rms, worst and mean of " +
          std::to_string(kTraceTokens) +
          " tokens), in mode none and\nas they are quantised; --keep MATRIX keeps one at bf16:\n";
  for (const OrderedJson& one : json["widest_inputs"]) {
    std::snprintf(line.data(), line.size(), "  %6.1f %6.1f  %6.1f %6.1f  ", one["worst"].get<double>(),
                  one["mean"].get<double>(), one["quantised_worst"].get<double>(), one["quantised_mean"].get<double>());
    text += line.data() + one["matrix"].get<std::string>() + "\n";
  }
  return text;
}

int run(const Options& options) {
  if (Error e = check_model_folder(options.run.model)) return fail(e);
  Quality quality;
  if (Error e = measure(options, &quality)) return fail(e);
  print_report(report(options, quality), options.json, readable);
  return kSuccess;
}

}  // namespace

Run setup_quality(Command app) {
  auto options = std::make_shared<Options>();
  add_run_options(app, &options->run);
  app.add_option("--file", options->file, "The text to predict").required().path("F.txt");
  app.add_option("--window", options->window,
                 "Tokens that are predicted from one another (default: 512, or the model's context)")
      .range(2, 1 << 24)
      .type_name("N");
  app.add_option("--tokens", options->tokens, "How many of the text's tokens, from its beginning (default: all)")
      .range(1, 1 << 30)
      .type_name("N");
  app.add_flag("--json", options->json, "Print one JSON object");
  return {[options] { return run(*options); }};
}

}  // namespace pinion
