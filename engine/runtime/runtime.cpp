#include "engine/runtime/runtime.h"

#include "kernels/base/hash.h"
#include "loader/gguf/gguf.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

// Hash of formats, shapes and the final norm: differs on boards that loaded different models.
uint64_t fingerprint(const Model& model) {
  uint64_t hash = hash_floats(kHashSeed, {model.final_norm.weight, static_cast<size_t>(model.config.hidden_size)});
  for (const MatrixTensor& tensor : all_matrices(model.config)) {
    const Linear& linear = matrix_of(model, tensor);
    const int64_t shape[] = {static_cast<int64_t>(linear.weight.format), linear.rows.count, linear.weight.k,
                             linear.weight.rotation};
    hash = hash_words(hash, std::as_bytes(std::span(shape)));
  }
  return hash;
}

Error open_on_this_board(const RuntimeOptions& options, Runtime* out) {
  out->kernels = options.kernels;
  if (!out->kernels) {
    if (Error e = select_kernels({}, &out->kernels)) return e;
  }
  Plan plan;
  if (options.plan) {
    plan = *options.plan;
  } else {
    Topology topology;
    if (Error e = read_topology(&topology)) return e;
    if (Error e = make_plan({}, topology, read_tuning(topology), &plan)) return e;
  }
  if (Error e = use_plan(plan, out)) return e;
  out->kv = kv_type(options);
  LoadOptions load = options.load;
  load.team = out->team.get();
  load.exchange = options.exchange;
  if (!options.synthetic.empty()) return synthetic_model(options.synthetic, load, &out->model);
  if (Error e = load_model(options.model, load, &out->model)) return e;
  out->cache_keeper = keep_cache_in_background(load, *out->model);
  return {};
}

}  // namespace

KvType kv_type(const RuntimeOptions& options) {
  return options.kv.value_or(options.load.quant == Quant::none ? KvType::f32 : KvType::q8);
}

// Larger files hold mostly Q5 and larger types, which 4 bits would damage.
constexpr double kMaxGgufW4Bits = 5.2;

Quant default_quant(const std::string& model) {
  PackRecord record;
  if (!model.empty() && !read_pack_record(model, &record) && !record.empty()) {
    const auto mode = std::ranges::find(kQuantNames, record["quant"]);
    if (mode != kQuantNames.end()) return static_cast<Quant>(mode - kQuantNames.begin());
  }
  std::vector<MappedFile> files;
  GgufFile gguf;
  const bool is_open = !model.empty() && is_gguf(model) && !open_gguf(model, &files, &gguf);
  if (is_open && bits_per_weight(gguf) <= kMaxGgufW4Bits) return Quant::w4a8;
  ModelConfig config;
  const bool is_read = !model.empty() && !read_model_config(model, &config);
  const bool keeps = config.experts.mxfp4 || (config.quantization && keeps_w4_codes(*config.quantization));
  return is_read && keeps ? Quant::w4a8 : Quant::w8a8;
}

Error use_plan(const Plan& plan, Runtime* out) {
  if (Error e = check_threads(std::max(std::ssize(plan.decode.cpus), std::ssize(plan.prefill.cpus)))) return e;
  const auto make_team = [](const TeamCpus& team) {
    return std::make_unique<Team>(team.cpus, team.sme, team.slowness);
  };
  out->team = make_team(plan.decode);
  out->prefill_team = make_team(plan.prefill);
  out->prefill_chunk = plan.prefill_chunk;
  use_access_pattern(plan.access);
  return {};
}

Error open_runtime(const RuntimeOptions& options, Runtime* out) {
  Exchange* exchange = options.exchange;
  if (!exchange) return open_on_this_board(options, out);
  if (exchange->is_first()) send_load_options(*exchange, options.load);
  Error own = open_on_this_board(options, out);
  // A matrix may be ternary in the rows of some boards only. All boards must quantise it alike.
  if (agree(*exchange, own.what == kNotTernary ? own : Error{})) {
    const Error mixed = error("some matrices are not ternary; quantising all instead", options.model);
    if (options.load.warn) options.load.warn(mixed);
    RuntimeOptions quantised = options;
    quantised.load.ternary = false;
    out->cache_keeper = {};  // reads the model that is replaced
    own = open_on_this_board(quantised, out);
  }
  if (Error e = agree(*exchange, own)) return e;
  return agree_on(*exchange, fingerprint(*out->model), "loaded another model than board 0");
}

Error open_mtp(const RuntimeOptions& options, const Runtime& runtime, Runtime* out) {
  LoadOptions load = options.load;
  load.team = runtime.team.get();
  out->kernels = runtime.kernels;
  out->kv = runtime.kv;
  if (Error e = load_mtp(options.model, load, *runtime.model, &out->model)) return e;
  out->cache_keeper = keep_cache_in_background(mtp_options(load), *out->model);
  return {};
}

SchedulerOptions scheduler_options(const Runtime& runtime, SchedulerOptions options) {
  options.kv = runtime.kv;
  options.pass_rows = runtime.prefill_chunk;
  options.kernels = runtime.kernels;
  options.prefill_team = runtime.prefill_team.get();
  return options;
}

Error open_session(const Runtime& runtime, const SchedulerOptions& options, std::unique_ptr<Session>* out) {
  return open_session(*runtime.model, *runtime.team, scheduler_options(runtime, options), out);
}

}  // namespace pinion
