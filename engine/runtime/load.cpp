#include "engine/runtime/load.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <exception>
#include <system_error>

#include "engine/session/generation_config.h"
#include "engine/team/memory.h"
#include "kernels/base/clock.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/gguf/gguf.h"
#include "loader/quant/stored_weights.h"

namespace pinion {
namespace {

// The options that change packed matrices, besides the mode and a calibration.
std::string options_text(const LoadOptions& options) {
  std::vector<std::string> changes = options.keep;
  if (options.head) changes.push_back(std::string("head ") + traits_of(*options.head).name);
  if (!options.rotate) changes.emplace_back("not rotated");
  for (const std::filesystem::path path : options.lora) {
    changes.push_back("adapter " + (path / "").parent_path().filename().string());
  }
  return joined(changes);
}

TensorView packed_tensor(const char* name, const Model& model) {
  return {name, DType::u8, {model.weight_bytes}, model.packed().data(), model.weight_bytes};
}

// Refuses options with which a packed model was not packed.
Error check_packed_options(const std::string& folder, PackRecord record, const LoadOptions& options,
                           const ModelConfig& config) {
  constexpr const char* kAdvice = "packed otherwise; pack its source for this";
  const std::string quant(kQuantNames[static_cast<size_t>(options.quant)]), given = options_text(options);
  const std::string calibration = calibration_name(options.calibration, config.experts.count > 0);
  if (!options.lora.empty()) return error(kAdvice, folder + ": --lora", "none", options.lora[0]);
  if (options.exchange) return error("a packed model is for one board; several boards need its source", folder);
  if (quant != record["quant"]) return error(kAdvice, folder + ": --quant", record["quant"], quant);
  if (!given.empty() && !options.mtp && given != record["options"]) {
    return error(kAdvice, folder + ": --keep, --head, --no-rotate",
                 record["options"].empty() ? "none" : record["options"], given);
  }
  if (calibration.empty() || calibration == record["calibration"]) return {};
  return error(kAdvice, folder + ": --calibrate", record["calibration"], calibration);
}

// Entries of the record, by tensor: the GGUF type of rows whose bytes the file holds.
const std::string kBlockType = "pinion.type ";

void restore_block_type(const PackRecord& record, TensorView* tensor) {
  const auto type = record.find(kBlockType + tensor->name);
  const BlockFormat* format = type == record.end() ? nullptr : ggml_type(std::atoi(type->second.c_str()));
  if (!format || !format->read || tensor->shape.empty() || tensor->shape.back() % format->bytes != 0) return;
  tensor->dtype = format->dtype;
  tensor->shape.back() = tensor->shape.back() / format->bytes * format->elements;
}

// Finds the matrices of a packed model, whose layout must be that of the config.
Error find_packed(const std::string& folder, bool is_mtp, Model* model) {
  Checkpoint& checkpoint = model->checkpoint;
  const char* name = is_mtp ? kPackedMtp : kPacked;
  const TensorView *first = checkpoint.find(kPacked), *packed = checkpoint.find(name), *seal = checkpoint.find(kSeal);
  const bool fits = first && packed && seal && packed->bytes == model->weight_bytes &&
                    checkpoint.pack_record[name] == model->layout &&
                    reinterpret_cast<uintptr_t>(packed->data) % kAlignmentBytes == 0;
  if (!fits) return error("config.json does not fit the packed matrices; copy the folder or pack again", folder);
  const auto* file = reinterpret_cast<const char*>(checkpoint.files[0].contents().data());
  model->mapped = packed->contents();
  model->cache = {
      folder + "/" + kSingleFile, {file, reinterpret_cast<const char*>(first->data)}, seal->data - first->data};
  return {};
}

// Adds the file of a tensor to an error of packing.
Error with_file(const Checkpoint& checkpoint, Error e) {
  if (e) e.where = checkpoint.where(e.where);
  return e;
}

Error pack_model(const LoadOptions& options, std::span<PackJob> jobs, Model* model) {
  const Checkpoint& checkpoint = model->checkpoint;
  if (!model->calibration.empty()) {  // the model that reads the texts must fit beside the packed weights
    const std::string advice = options.exchange ? " (not with --calibrate none)" : "";
    const int64_t bytes = model->weight_bytes + calibration_bytes(*model);
    if (Error e = check_memory(bytes, free_memory(), "too little memory to calibrate", checkpoint.folder, advice))
      return e;
  }
  if (Error e = allocate_arena(model->weight_bytes, &model->arena)) return e;
  if (Error e = place_all(jobs, model->arena.data)) return with_file(checkpoint, e);
  if (model->calibration.empty()) {
    return with_file(checkpoint, pack_all(workers_of(options.team), jobs, model->arena.data, {true, options.progress}));
  }
  // w8a8 reads a text several times as fast as mode none, and its inputs calibrate as well. Draws need all logits.
  std::unique_ptr<Model> reader;
  const LoadOptions w8a8 = {.head = Format::w8, .lora = options.lora, .rotate = options.rotate, .team = options.team};
  if (Error e = load_model(checkpoint.folder, w8a8, &reader)) return e;
  return with_file(checkpoint, pack_calibrated(options, std::move(reader), jobs, model));
}

using ErrorSink = std::function<void(const Error&)>;

void report_to(const ErrorSink& sink, const Error& e) {
  if (sink) sink(e);
}

// Removes a damaged cache file. A calibrated matrix depends on all before it, so the whole model is packed again. when:
// behind the word "repacked".
void remove_cached(const Model& model, int64_t damaged, const char* when, const ErrorSink& sink) {
  remove_damaged(model.cache, model.cached);
  report_to(sink, error(std::string("damaged weights, repacked") + when, model.cache.path.string(), {},
                        std::to_string(damaged) + " of " + std::to_string(segment_count(model.cache.packed_bytes)) +
                            " segments"));
}

// Pause after a segment, whose check takes 0.1 ms of a core that the team may need. None when the process ends.
constexpr std::chrono::milliseconds kRest{10};

// Compares cached weights with their hashes while they are in use.
void check_in_use(const LoadOptions& options, const Model& model, const std::stop_token& ends) {
  int64_t damaged = 0;
  for (int64_t i = 0; i < segment_count(model.cache.packed_bytes); ++i) {
    damaged += is_segment_damaged(model.cache, model.cached, i);
    if (ends.stop_possible() && !ends.stop_requested()) std::this_thread::sleep_for(kRest);
  }
  if (damaged == 0) return mark_checked(model.cache, model.cached);
  remove_cached(model, damaged, " at the next start", options.doubt ? options.doubt : options.warn);
}

// Maps the weights of a packed model, which is never changed, or of the cache. Without an error and without them, the
// weights must be packed.
Error find_cached(const LoadOptions& options, Model* model) {
  const bool is_packed = !model->mapped.empty();
  if (model->cache.path.empty()) return {};
  if (!is_packed) remove_unfinished(options.cache_folder);
  if (Error e = open_pack_cache(model->cache, &model->cached)) return is_packed ? e : Error{};
  if (!options.check_cache) return {};
  const int64_t damaged = damaged_segments(workers_of(options.team), model->cache, model->cached);
  if (options.team) Team::unpin_caller();
  if (damaged > 0 && is_packed) {
    return error("damaged; copy the folder or pack again", model->cache.path.string(), {},
                 std::to_string(damaged) + " MiB");
  }
  if (damaged > 0) {
    remove_cached(*model, damaged, "", options.warn);
    model->cached = {};
  } else if (!is_packed) {
    mark_checked(model->cache, model->cached);
  }
  return {};
}

// ASan's allocator breaks if the process forks while another thread allocates. Chat templates render in a forked child.
#if defined(PINION_ADDRESS_SANITIZER)
constexpr bool kWorksInForeground = true;
#else
constexpr bool kWorksInForeground = false;
#endif

// Blocks all signals in this thread except SIGBUS, which a failed read of a mapped file raises in the reading thread.
// only_idle: it runs only on otherwise idle cores, since the team's barriers wait for the slowest worker.
void enter_background(bool only_idle) {
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  const sched_param none = {};
  if (only_idle) pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
}

}  // namespace

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
    if (Error e = check_packed_options(folder, record, options, model->config)) return e;
    model->calibration = record["calibration"];
    model->checkpoint.is_gguf_file = record.contains("source_format");
    for (TensorView& tensor : model->checkpoint.tensors) restore_block_type(record, &tensor);
  }
  std::vector<std::string> architectures(options.lora.size());
  for (size_t i = 0; i < options.lora.size(); ++i) {
    if (Error e = add_adapter(options.lora[i], static_cast<int64_t>(i), &model->checkpoint, &architectures[i]))
      return e;
  }
  if (const std::vector<std::string>& overlaid = model->checkpoint.overlaid; !overlaid.empty()) {
    model->notes.push_back(error("tensors in several shards; the index decides", folder, {},
                                 overlaid[0] + and_more(std::ssize(overlaid) - 1)));
  }
  if (Error e = select_tensors(model->config.tensors, &model->checkpoint)) return e;
  if (Error e = align_names(&model->config, &model->checkpoint)) return e;
  for (size_t i = 0; i < architectures.size(); ++i) {
    if (architectures[i].empty() && !model->checkpoint.is_gguf_file) continue;
    if (Error e = rename_adapter(folder, architectures[i], static_cast<int64_t>(i), model)) return e;
  }
  find_stacked_experts(model->checkpoint, &model->config);
  std::set<int64_t> ends(model->config.eos_ids.begin(), model->config.eos_ids.end());
  ends.insert(generation.eos_ids.begin(), generation.eos_ids.end());
  model->eos_ids.assign(ends.begin(), ends.end());
  if (Error e = bind_tensors(options, model, jobs)) return with_assumed_sizes(model->config, e);
  model->weight_bytes = packed_bytes(*jobs);
  model->layout = layout_text(*jobs);
  if (!record.empty()) return find_packed(folder, options.mtp, model);
  if (calibrates(*model, *jobs)) {
    model->calibration = calibration_name(options.calibration, model->config.experts.count > 0);
  }
  if (!options.cache_folder.empty()) {
    model->cache = pack_cache_of(options.cache_folder, model->checkpoint, *jobs, model->calibration);
  }
  return {};
}

Error load_model(const std::string& folder, const LoadOptions& options, std::unique_ptr<Model>* out) {
  const double start = now_seconds();
  auto model = std::make_unique<Model>();
  std::vector<PackJob> jobs;
  if (Error e = bind_model(folder, options, model.get(), &jobs)) return e;
  const std::string advice = options.quant == Quant::w4a8 ? "" : " (less with --quant w4a8)";
  if (Error e = check_memory(model->weight_bytes, free_memory(), "too little memory for the weights", folder, advice)) {
    return e;
  }
  if (Error e = find_cached(options, model.get())) return e;
  if (model->from_cache()) {
    const std::span<const std::byte> packed = model->packed();
    if (Error e = place_all(jobs, packed.data())) return e;
    prefer_huge_pages(packed);
    prefetch_pages(packed);
  } else {
    Error e = pack_model(options, jobs, model.get());
    if (options.team) Team::unpin_caller();
    const bool is_mixed = e.what == kNotTernary && options.ternary;
    if (e && (is_mixed || !model->calibration.empty()) && !options.exchange) {
      LoadOptions simpler = options;
      if (is_mixed) {
        e = error("not ternary, unlike other matrices; quantising all instead", e.where);
        simpler.ternary = false;
      } else {
        e.actual += "; packing without calibration";
        simpler.calibration.clear();
      }
      report_to(options.warn, e);
      model.reset();  // frees its memory
      return load_model(folder, simpler, out);
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

Error write_packed_model(const std::string& path, PackRecord record, const LoadOptions& options, const Model& model,
                         const Model* mtp, const WriteProgress& progress) {
  if (model.checkpoint.is_packed()) record = model.checkpoint.pack_record;
  record.insert({{"options", options_text(options)}, {"calibration", model.calibration}, {kPacked, model.layout}});
  std::map<std::string, TensorView> others = model.unpacked;
  std::vector<TensorView> tensors = {packed_tensor(kPacked, model)};
  if (mtp) {
    record[kPackedMtp] = mtp->layout;
    others.insert(mtp->unpacked.begin(), mtp->unpacked.end());
    tensors.push_back(packed_tensor(kPackedMtp, *mtp));
  }
  for (auto& [name, tensor] : others) {
    if (const BlockFormat* format = block_format(tensor.dtype)) {
      record[kBlockType + name] = std::to_string(format->id);
      tensor.dtype = DType::u8;
      tensor.shape.back() = tensor.shape.back() / format->elements * format->bytes;
    }
    tensors.push_back(tensor);
  }
  return write_packed_model(path, record, std::move(tensors), progress);
}

std::jthread keep_cache_in_background(const LoadOptions& options, const Model& model) {
  if (model.cache.path.empty() || !model.mapped.empty()) return {};
  if (model.from_cache() && was_checked(model.cache, model.cached)) return {};
  const bool checks = model.from_cache();
  const auto work = [=, &model](const std::stop_token& ends) {
    if (checks) return check_in_use(options, model, ends);
    Error e = write_to_cache(model);
    e.actual += "; continuing, but the next start packs again";
    if (e) report_to(options.warn, e);
  };
  if (kWorksInForeground) {
    work({});
    return {};
  }
  try {
    return std::jthread([work, checks](const std::stop_token& ends) {
      enter_background(!checks);
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

}  // namespace pinion
