#include "engine/runtime/load.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <system_error>

#include "engine/model/bind.h"
#include "engine/model/weight_format.h"
#include "engine/runtime/calibration.h"
#include "engine/runtime/first_touch.h"
#include "engine/session/generation_config.h"
#include "engine/team/memory.h"
#include "engine/team/team.h"
#include "kernels/base/clock.h"
#include "loader/checkpoint/fused_experts.h"
#include "loader/pack/cache_check.h"
#include "loader/pack/pack.h"

namespace pinion {
namespace {

// Sorted, each once: a file may list any number.
std::vector<int32_t> joined_eos_ids(const ModelConfig& config, const GenerationDefaults& generation) {
  std::vector<int32_t> ids(config.eos_ids.begin(), config.eos_ids.end());
  ids.insert(ids.end(), generation.eos_ids.begin(), generation.eos_ids.end());
  std::ranges::sort(ids);
  const auto repeated = std::ranges::unique(ids);
  ids.erase(repeated.begin(), repeated.end());
  return ids;
}

// Reads everything but the matrices, which become jobs.
Error bind_model(const std::string& folder, const LoadOptions& options, Model* model, std::vector<PackJob>* jobs) {
  model->quant = options.quant;
  model->exchange = options.exchange;
  model->calibration = calibration_name(options.calibration);
  GenerationDefaults generation;
  if (Error e = read_model_config(folder, &model->config)) return e;
  if (options.mtp) {
    if (Error e = mtp_config(model->config, &model->config)) return e;
  }
  if (Error e = check_head_format(options, model->config)) return e;
  if (Error e = check_calibration(options, model->config)) return e;
  if (Error e = read_generation_config(folder, &generation)) return e;
  if (Error e = open_checkpoint(folder, &model->checkpoint)) return e;
  if (Error e = select_tensors(model->config.tensors, &model->checkpoint)) return e;
  find_stacked_experts(model->checkpoint, &model->config);
  model->eos_ids = joined_eos_ids(model->config, generation);
  if (Error e = bind_tensors(options, model, jobs)) return with_assumed_sizes(model->config, e);
  model->weight_bytes = packed_bytes(*jobs);
  if (!options.cache_folder.empty()) {
    model->cache = pack_cache_of(options.cache_folder, model->checkpoint, *jobs, model->calibration);
  }
  return {};
}

// An error of packing, which names a tensor, with its file.
Error with_file(const Checkpoint& checkpoint, Error e) {
  if (e) e.where = checkpoint.where(e.where);
  return e;
}

Error pack_model(const LoadOptions& options, std::span<PackJob> jobs, Model* model) {
  const Checkpoint& checkpoint = model->checkpoint;
  if (Error e = allocate_arena(model->weight_bytes, &model->arena)) return e;
  if (Error e = place_all(jobs, model->arena.data)) return with_file(checkpoint, e);
  if (options.team && options.numa_first_touch) touch_first(*options.team, *model, model->arena.data);
  if (options.calibration.empty()) {
    return with_file(checkpoint, pack_all(workers_of(options.team), jobs, model->arena.data, {true, options.progress}));
  }
  std::unique_ptr<Model> unquantised;
  if (Error e = load_model(checkpoint.folder, {.quant = Quant::none, .team = options.team}, &unquantised)) {
    return e;
  }
  return with_file(checkpoint, pack_calibrated(options, std::move(unquantised), jobs, model));
}

using Tell = std::function<void(const Error&)>;

void tell(const Tell& whom, const Error& failure) {
  if (whom) whom(failure);
}

Error repair(const LoadOptions& options, std::span<const PackJob> jobs, std::span<const int64_t> damaged,
             const PackCache& cache, const MappedFile& file) {
  if (jobs.empty()) return error("the checkpoint has changed", cache.path.string());
  // A calibrated matrix depends on all before it.
  if (!options.calibration.empty()) return error("calibrated weights are packed as a whole", cache.path.string());
  if (Error e = check_memory(repair_bytes(jobs), free_memory(), "too little memory to pack", cache.path.string())) {
    return e;
  }
  return repair_blocks(workers_of(options.team), jobs, cache, file, damaged);
}

// Packs damaged blocks anew or, where that cannot be, removes the file and returns false. The jobs are those of the
// cache. `whom` is told.
bool undo_damage(const LoadOptions& options, std::span<const PackJob> jobs, std::span<const int64_t> damaged,
                 const PackCache& cache, const MappedFile& file, const Tell& whom) {
  const std::string blocks =
      std::to_string(damaged.size()) + " of " + std::to_string(sealed_blocks(cache.packed_bytes)) + " blocks";
  const Error e = repair(options, jobs, damaged, cache, file);
  if (!e) {
    tell(whom, error("damaged weights, packed anew", cache.path.string(), {}, blocks));
    return true;
  }
  remove_damaged(cache, file);
  tell(whom,
       error("damaged weights that cannot be repaired (" + e.what + (e.actual.empty() ? "" : ": " + e.actual) + ")",
             cache.path.string(), {}, blocks));
  return false;
}

// Compares the cached weights with their hashes before they are used. False: they are not to be.
bool check_cached(const LoadOptions& options, std::span<const PackJob> jobs, const Model& model) {
  const std::vector<int64_t> damaged = damaged_blocks(workers_of(options.team), model.cache, model.cached);
  const bool is_right = damaged.empty() || undo_damage(options, jobs, damaged, model.cache, model.cached, options.warn);
  if (is_right) note_checked(model.cache, model.cached);
  if (options.team) Team::unpin_caller();
  return is_right;
}

// A block costs a tenth of a millisecond of somebody's core, so between two of them it rests: whoever computes shall
// not feel it. Once the process wants to end, it rests no more.
constexpr std::chrono::milliseconds kRest{10};

// The same while they are used.
void check_running(const std::string& folder, LoadOptions options, const Model& model, const std::stop_token& ends) {
  std::vector<int64_t> damaged;
  for (int64_t i = 0; i < sealed_blocks(model.cache.packed_bytes); ++i) {
    if (is_damaged(model.cache, model.cached, i)) damaged.push_back(i);
    if (ends.stop_possible() && !ends.stop_requested()) std::this_thread::sleep_for(kRest);
  }
  if (damaged.empty()) return note_checked(model.cache, model.cached);
  Model bound;
  std::vector<PackJob> jobs;
  options.team = nullptr;
  options.progress = {};
  if (bind_model(folder, options, &bound, &jobs) || bound.cache.path != model.cache.path) jobs.clear();
  if (undo_damage(options, jobs, damaged, model.cache, model.cached, options.doubt ? options.doubt : options.warn)) {
    note_checked(model.cache, model.cached);
  }
}

// Maps the weights that the cache has; false where they are to be packed.
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
  e.actual += "; going on, but the next start packs again";
  tell(options.warn, e);
}

// ASan's allocator breaks when the process forks while another thread allocates, and chat templates are rendered in a
// forked child.
#if defined(PINION_ADDRESS_SANITIZER)
constexpr bool kWorksInForeground = true;
#else
constexpr bool kWorksInForeground = false;
#endif

// Signals are for the other threads, but for the one that this thread's own reading of a mapped file may raise.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

// Only when nobody else wants the core: the team's barriers wait for the slowest.
void be_idle() {
  const sched_param none = {};
  pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
}

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
  if (find_cached(options, jobs, model.get())) {
    const std::span<const std::byte> packed = packed_contents(model->cache, model->cached);
    if (Error e = place_all(jobs, packed.data())) return e;
    prefer_huge_pages(packed);
    prefetch_pages(packed);
  } else {
    Error e = pack_model(options, jobs, model.get());
    if (options.team) Team::unpin_caller();
    if (e.what == kNotTernary && options.ternary && !options.exchange) {
      tell(options.warn, error("not ternary, as others are: now all are quantised instead", e.where));
      LoadOptions others = options;
      others.ternary = false;
      return load_model(folder, others, out);
    }
    if (e) return e;
  }

  model->load_seconds = now_seconds() - start;
  *out = std::move(model);
  return {};
}

LoadOptions mtp_options(LoadOptions options) {
  options.mtp = true;
  options.calibration.clear();  // a text's hidden states would have to be the model's
  options.keep.clear();         // names of the model's matrices
  return options;
}

Error load_mtp(const std::string& folder, const LoadOptions& options, const Model& model, std::unique_ptr<Model>* out) {
  if (Error e = load_model(folder, mtp_options(options), out)) return e;
  (*out)->embedding = model.embedding;
  (*out)->head = model.head;
  return {};
}

Error check_mtp(const std::string& folder, const LoadOptions& options, bool* is_there) {
  LoadOptions uncached = mtp_options(options);
  uncached.cache_folder.clear();
  Model model;
  std::vector<PackJob> jobs;
  Error e = bind_model(folder, uncached, &model, &jobs);
  *is_there = std::ranges::any_of(model.checkpoint.tensors,
                                  [](const TensorView& tensor) { return tensor.name.starts_with(kMtpPrefix); });
  return e;
}

Error write_to_cache(const Model& model) {
  if (model.cache.path.empty() || model.from_cache()) return {};
  return write_pack_cache(model.cache, model.arena.data);
}

std::jthread keep_cache_in_background(const std::string& folder, const LoadOptions& options, const Model& model) {
  if (model.cache.path.empty()) return {};
  if (model.from_cache() && was_checked(model.cache, model.cached)) return {};
  const bool checks = model.from_cache();
  const auto work = [=, &model](const std::stop_token& ends) {
    checks ? check_running(folder, options, model, ends) : write_or_warn(options, model);
  };
  if (kWorksInForeground) {
    work({});
    return {};
  }
  try {
    return std::jthread([work, checks](const std::stop_token& ends) {
      block_signals();
      if (!checks) be_idle();
      try {
        work(ends);
      } catch (const std::exception&) {  // too little memory, say: the next start does it
      }
    });
  } catch (const std::system_error&) {
    return {};  // no thread to be had: the next start has to do it
  }
}

Error find_in_cache(const std::string& folder, const LoadOptions& options, PackCache* out) {
  Model model;
  std::vector<PackJob> jobs;
  if (Error e = bind_model(folder, options, &model, &jobs)) return e;
  *out = model.cache;
  return open_pack_cache(model.cache, &model.cached);
}

}  // namespace pinion
