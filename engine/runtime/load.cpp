#include "engine/runtime/load.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <set>
#include <span>
#include <system_error>

#include "engine/forward/matmul.h"
#include "engine/model/load_options.h"
#include "engine/runtime/calibration.h"
#include "engine/runtime/packed_model.h"
#include "engine/session/generation_config.h"
#include "engine/team/memory.h"
#include "kernels/base/clock.h"
#include "kernels/layout.h"
#include "loader/pack/pack_cache.h"
#include "loader/quant/stored_weights.h"

namespace pinion {

Error bind_model(const std::string& folder, const LoadOptions& options, Model* model, std::vector<PackJob>* jobs) {
  model->quant = options.quant;
  model->exchange = options.exchange;
  GenerationDefaults generation;
  if (Error e = read_model_config(folder, &model->config)) return e;
  if (options.mtp) {
    if (Error e = mtp_config(model->config, &model->config)) return e;
  }
  if (Error e = check_head_format(options, model->config)) return e;
  if (Error e = check_calibration(options, model->config)) return e;
  if (Error e = read_generation_config(folder, &generation)) return e;
  if (Error e = open_checkpoint(folder, &model->checkpoint)) return e;
  PackRecord& record = model->checkpoint.pack_record;
  if (Error e = read_pack_record(folder, &record)) return e;
  if (!record.empty()) {
    if (Error e = check_packed_options(folder, record, options)) return e;
    model->calibration = record["calibration"];
  }
  if (!options.lora.empty() && model->checkpoint.is_gguf_file) {
    return error("not supported with a GGUF file: give the folder of the adapter's base model", "--lora");
  }
  for (size_t i = 0; i < options.lora.size(); ++i) {
    if (Error e = add_adapter(options.lora[i], static_cast<int64_t>(i), &model->checkpoint)) return e;
  }
  if (const std::vector<std::string>& overlaid = model->checkpoint.overlaid; !overlaid.empty()) {
    model->notes.push_back(error("tensors in several shards; the index decides", folder, {},
                                 overlaid[0] + and_more(std::ssize(overlaid) - 1)));
  }
  if (Error e = select_tensors(model->config.tensors, &model->checkpoint)) return e;
  if (Error e = align_names(&model->config, &model->checkpoint)) return e;
  find_stacked_experts(model->checkpoint, &model->config);
  std::set<int64_t> ends(model->config.eos_ids.begin(), model->config.eos_ids.end());
  ends.insert(generation.eos_ids.begin(), generation.eos_ids.end());
  model->eos_ids.assign(ends.begin(), ends.end());
  if (Error e = bind_tensors(options, model, jobs)) return with_assumed_sizes(model->config, e);
  model->weight_bytes = packed_bytes(*jobs);
  model->layout = layout_text(*jobs);
  if (!record.empty()) return find_packed(folder, options.mtp, model);
  if (calibrates(*model, *jobs)) model->calibration = calibration_name(options.calibration);
  if (!options.cache_folder.empty()) {
    model->cache = pack_cache_of(options.cache_folder, model->checkpoint, *jobs, model->calibration);
  }
  return {};
}

namespace {

// Adds the file of a tensor to an error of packing.
Error with_file(const Checkpoint& checkpoint, Error e) {
  if (e) e.where = checkpoint.where(e.where);
  return e;
}

Error pack_model(const LoadOptions& options, std::span<PackJob> jobs, Model* model) {
  const Checkpoint& checkpoint = model->checkpoint;
  if (Error e = allocate_arena(model->weight_bytes, &model->arena)) return e;
  if (Error e = place_all(jobs, model->arena.data)) return with_file(checkpoint, e);
  if (options.team && options.numa_first_touch) touch_first(*options.team, *model, model->arena.data);
  if (model->calibration.empty()) {
    return with_file(checkpoint, pack_all(workers_of(options.team), jobs, model->arena.data, {true, options.progress}));
  }
  std::unique_ptr<Model> unquantised;
  const LoadOptions exact = {.quant = Quant::none, .lora = options.lora, .team = options.team};
  if (Error e = load_model(checkpoint.folder, exact, &unquantised)) return e;
  return with_file(checkpoint, pack_calibrated(options, std::move(unquantised), jobs, model));
}

using ErrorSink = std::function<void(const Error&)>;

void report_to(const ErrorSink& sink, const Error& e) {
  if (sink) sink(e);
}

Error repair(const LoadOptions& options, std::span<const PackJob> jobs, std::span<const int64_t> damaged,
             const PackCache& cache, const MappedFile& file) {
  if (jobs.empty()) return error("the checkpoint has changed", cache.path.string());
  // A calibrated matrix depends on all matrices before it.
  if (cache.is_calibrated) return error("calibrated weights can only be packed as a whole", cache.path.string());
  if (Error e = check_memory(repair_bytes(jobs), free_memory(), "too little memory to pack", cache.path.string())) {
    return e;
  }
  return repair_segments(workers_of(options.team), jobs, cache, file, damaged);
}

// Repacks damaged segments of a cache file or, if that is impossible, removes the file and returns false. jobs: all
// jobs of the file; empty if the checkpoint has changed.
bool repair_or_remove(const LoadOptions& options, std::span<const PackJob> jobs, std::span<const int64_t> damaged,
                      const PackCache& cache, const MappedFile& file, const ErrorSink& sink) {
  const std::string segments =
      std::to_string(damaged.size()) + " of " + std::to_string(segment_count(cache.packed_bytes)) + " segments";
  const Error e = repair(options, jobs, damaged, cache, file);
  if (!e) {
    report_to(sink, error("damaged weights, repacked", cache.path.string(), {}, segments));
    return true;
  }
  remove_damaged(cache, file);
  report_to(sink, error("damaged weights that cannot be repaired (" + e.what +
                            (e.actual.empty() ? "" : ": " + e.actual) + ")",
                        cache.path.string(), {}, segments));
  return false;
}

// Compares cached weights with their hashes before use. Returns false if they are unusable.
bool check_cached(const LoadOptions& options, std::span<const PackJob> jobs, const Model& model) {
  const std::vector<int64_t> damaged = damaged_segments(workers_of(options.team), model.cache, model.cached);
  const bool is_right =
      damaged.empty() || repair_or_remove(options, jobs, damaged, model.cache, model.cached, options.warn);
  if (is_right) mark_checked(model.cache, model.cached);
  if (options.team) Team::unpin_caller();
  return is_right;
}

// Pause after a segment, whose check takes 0.1 ms of a core that the team may need. None when the process ends.
constexpr std::chrono::milliseconds kRest{10};

// Compares cached weights with their hashes while they are in use.
void check_in_use(const std::string& folder, LoadOptions options, const Model& model, const std::stop_token& ends) {
  std::vector<int64_t> damaged;
  for (int64_t i = 0; i < segment_count(model.cache.packed_bytes); ++i) {
    if (is_segment_damaged(model.cache, model.cached, i)) damaged.push_back(i);
    if (ends.stop_possible() && !ends.stop_requested()) std::this_thread::sleep_for(kRest);
  }
  if (damaged.empty()) return mark_checked(model.cache, model.cached);
  Model bound;
  std::vector<PackJob> jobs;
  options.team = nullptr;
  options.progress = {};
  if (model.calibration.empty()) options.calibration.clear();
  if (bind_model(folder, options, &bound, &jobs) || bound.cache.path != model.cache.path) jobs.clear();
  const ErrorSink& sink = options.doubt ? options.doubt : options.warn;
  if (repair_or_remove(options, jobs, damaged, model.cache, model.cached, sink))
    mark_checked(model.cache, model.cached);
}

// Maps the cached weights. Returns false if there are none, so that the weights must be packed.
bool find_cached(const LoadOptions& options, std::span<const PackJob> jobs, Model* model) {
  if (model->cache.path.empty()) return false;
  remove_unfinished(options.cache_folder);
  if (open_pack_cache(model->cache, &model->cached)) return false;
  if (options.check_cache && !check_cached(options, jobs, *model)) model->cached = {};
  return model->from_cache();
}

void write_or_warn(const LoadOptions& options, const Model& model) {
  Error e = write_to_cache(model);
  if (!e) return;
  e.actual += "; continuing, but the next start packs again";
  report_to(options.warn, e);
}

// The unquantised model must fit beside the packed weights.
Error check_calibration_memory(const LoadOptions& options, const Model& model) {
  if (model.calibration.empty()) return {};
  return check_memory(model.weight_bytes + calibration_bytes(model), free_memory(), "too little memory to calibrate",
                      model.checkpoint.folder, options.exchange ? " (not with --calibrate none)" : "");
}

// ASan's allocator breaks if the process forks while another thread allocates. Chat templates render in a forked child.
#if defined(PINION_ADDRESS_SANITIZER)
constexpr bool kWorksInForeground = true;
#else
constexpr bool kWorksInForeground = false;
#endif

// Blocks all signals in this thread except SIGBUS, which a failed read of a mapped file raises in the reading thread.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

// Lets this thread run only on otherwise idle cores, since the team's barriers wait for the slowest worker.
void set_idle_priority() {
  const sched_param none = {};
  pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
}

constexpr int64_t kMinPageBytes = 4096;

// Touches the panels of one worker's tasks.
struct Toucher {
  const Worker& worker;
  std::byte* arena;

  void touch(const Matrix& m, int64_t panel) const {
    std::byte* to = arena + (panel_of(m, panel) - arena);  // writable, unlike the matrix's pointer
    const std::byte* end = to + panel_bytes(m.format, m.k);
    while (to < end) {
      *static_cast<volatile std::byte*>(to) = std::byte{0};
      to += kMinPageBytes - reinterpret_cast<intptr_t>(to) % kMinPageBytes;
    }
  }

  // Touches this worker's part of matrices whose panels form one range of tasks.
  void touch_stage(std::span<const Projection> matrices) const {
    for_each_projection(matrices, worker.own_tasks(panels_of(matrices)),
                        [&](const Projection& projection, PanelRange run) {
                          for (int64_t i = 0; i < run.count; ++i) touch(projection.linear->weight, run.first + i);
                        });
  }

  void touch_alone(const Linear& linear) const {
    const Projection projection = {&linear};
    touch_stage({&projection, 1});
  }

  void touch_layer(const Layer& layer) const {
    // The panels of a stage's matrices form one range of tasks, except that one task has the same panel of gate and up.
    for (const StageTraits& traits : kStageTraits) {
      std::vector<Projection> matrices;
      for (const Linear& linear : layer.of(traits.stage)) {
        traits.stage == Stage::gate_up ? touch_alone(linear) : matrices.push_back({&linear});
      }
      touch_stage(matrices);
    }
    // Any worker may read a panel of an expert, so each matrix is divided among all workers.
    for (const Expert& expert : layer.experts) {
      std::ranges::for_each(expert.matrix, [&](const Linear& linear) { touch_alone(linear); });
    }
  }
};

}  // namespace

Error load_model(const std::string& folder, const LoadOptions& options, std::unique_ptr<Model>* out) {
  const double start = now_seconds();
  auto model = std::make_unique<Model>();
  std::vector<PackJob> jobs;
  if (Error e = bind_model(folder, options, model.get(), &jobs)) return e;
  const std::string advice = options.quant == Quant::w4a8 ? "" : " (less with --quant w4a8)";
  if (Error e = check_memory(model->weight_bytes, free_memory(), "too little memory for the weights", folder, advice)) {
    return e;
  }
  if (Error e = open_packed(options, model.get())) return e;
  if (model->from_cache() || find_cached(options, jobs, model.get())) {
    const std::span<const std::byte> packed = model->packed();
    if (Error e = place_all(jobs, packed.data())) return e;
    prefer_huge_pages(packed);
    prefetch_pages(packed);
  } else {
    Error e = check_calibration_memory(options, *model);
    if (!e) e = pack_model(options, jobs, model.get());
    if (options.team) Team::unpin_caller();
    if (e.what == kNotTernary && options.ternary && !options.exchange) {
      report_to(options.warn, error("not ternary, unlike other matrices; quantising all instead", e.where));
      LoadOptions quantised = options;
      quantised.ternary = false;
      return load_model(folder, quantised, out);
    }
    if (e && !model->calibration.empty() && !options.exchange) {
      e.actual += "; packing without calibration";
      report_to(options.warn, e);
      model.reset();  // frees its memory
      LoadOptions plain = options;
      plain.calibration.clear();
      return load_model(folder, plain, out);
    }
    if (e) return e;
  }

  for (const Error& peculiarity : model->notes) report_to(options.warn, peculiarity);
  model->load_seconds = now_seconds() - start;
  *out = std::move(model);
  return {};
}

LoadOptions mtp_options(LoadOptions options) {
  options.mtp = true;
  options.calibration.clear();  // calibration of the layer would need the model's hidden states
  options.keep.clear();         // these are patterns for the model's matrices
  options.lora.clear();         // adapters are trained without the layer
  return options;
}

Error load_mtp(const std::string& folder, const LoadOptions& options, const Model& model, std::unique_ptr<Model>* out) {
  if (Error e = load_model(folder, mtp_options(options), out)) return e;
  (*out)->embedding = model.embedding;
  (*out)->head = model.head;
  return {};
}

Error check_mtp(const std::string& folder, const LoadOptions& options, bool* exists) {
  LoadOptions uncached = mtp_options(options);
  uncached.cache_folder.clear();
  Model model;
  std::vector<PackJob> jobs;
  Error e = bind_model(folder, uncached, &model, &jobs);
  *exists = std::ranges::any_of(model.checkpoint.tensors,
                                [](const TensorView& tensor) { return tensor.name.starts_with(kMtpPrefix); });
  return e;
}

Error write_to_cache(const Model& model) {
  if (model.cache.path.empty() || model.from_cache()) return {};
  return write_pack_cache(model.cache, model.arena.data);
}

std::jthread keep_cache_in_background(const std::string& folder, const LoadOptions& options, const Model& model) {
  if (model.cache.path.empty() || !model.mapped.empty()) return {};
  if (model.from_cache() && was_checked(model.cache, model.cached)) return {};
  const bool checks = model.from_cache();
  const auto work = [=, &model](const std::stop_token& ends) {
    checks ? check_in_use(folder, options, model, ends) : write_or_warn(options, model);
  };
  if (kWorksInForeground) {
    work({});
    return {};
  }
  try {
    return std::jthread([work, checks](const std::stop_token& ends) {
      block_signals();
      if (!checks) set_idle_priority();
      try {
        work(ends);
      } catch (const std::exception&) {  // bad_alloc, for example: the next start tries again
      }
    });
  } catch (const std::system_error&) {
    return {};  // no thread available: the next start tries again
  }
}

Error find_in_cache(const std::string& folder, const LoadOptions& options, PackCache* out) {
  Model model;
  std::vector<PackJob> jobs;
  if (Error e = bind_model(folder, options, &model, &jobs)) return e;
  *out = model.cache;
  return open_pack_cache(model.cache, &model.cached);
}

void touch_first(Team& team, const Model& model, std::byte* arena) {
  team.run([&](Worker& worker) {
    const Toucher toucher = {worker, arena};
    for (const Layer& layer : model.layers) toucher.touch_layer(layer);
    model.each_outer_matrix([&](const Linear& linear) { toucher.touch_alone(linear); });
  });
}

}  // namespace pinion
