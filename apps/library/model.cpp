// Errors and versions for C, and models: opening a folder as the commands do, and describing it.
#include <array>
#include <iterator>

#include "apps/library/interface.h"
#include "apps/model/build.h"
#include "apps/model/open.h"
#include "engine/forward/rope.h"
#include "engine/team/team.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/files/json.h"
#include "loader/files/user_folders.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

thread_local std::array<char, 2048> last_text = {};

// Calls set() with the index of a name in a table; without a name it does nothing.
template <class Names, class Set>
Error read_name(const char* given, const char* option, const Names& names, const Set& set) {
  if (!given) return {};
  const auto found = std::ranges::find(names, std::string_view(given));
  if (found == std::end(names)) {
    return error("no such name", option, joined({std::begin(names), std::end(names)}),
                 "\"" + std::string(given) + "\"");
  }
  set(found - std::begin(names));
  return {};
}

Error read_numbers(const pinion_model_options& options, RunOptions* run) {
  constexpr int64_t kMaxChunk = 65536;
  if (Error e = check_range("threads", options.threads, 0, kMaxThreads)) return e;
  if (Error e = check_range("prefill_chunk", options.prefill_chunk, 0, kMaxChunk)) return e;
  run->team.threads = options.threads;
  run->team.prefill_chunk = options.prefill_chunk;
  return {};
}

Error read_run(const char* folder, const pinion_model_options& options, RunOptions* run) {
  run->model = find_model_folder(folder);
  std::vector<std::string_view> heads;
  for (const HeadFormat& row : kHeadFormats) heads.push_back(row.name);
  const auto set_quant = [&](size_t i) {
    run->load.quant = static_cast<Quant>(i);
    run->quant_reason = kQuantRequested;
  };
  if (Error e = read_name(options.quant, "quant", kQuantNames, set_quant)) return e;
  if (Error e = read_name(options.head, "head", heads, [&](size_t i) { run->load.head = kHeadFormats[i].format; })) {
    return e;
  }
  if (Error e = read_name(options.kv, "kv", kKvNames, [&](size_t i) { run->kv = static_cast<KvType>(i); })) return e;
  if (Error e = read_texts(options.keep, options.keep_count, "keep", &run->load.keep)) return e;
  if (std::ranges::count(run->load.keep, "") > 0) return error("an empty pattern would keep all matrices", "keep");
  if (Error e = read_texts(options.lora, options.lora_count, "lora", &run->load.lora)) return e;
  if (Error e = read_numbers(options, run)) return e;
  run->no_rotate = options.no_rotate != 0;
  run->cores = text_or_empty(options.cores);
  run->kernels_name = text_or_empty(options.kernels);
  run->no_cache = options.no_cache != 0;
  run->calibrate = text_or_empty(options.calibrate);
  resolve_quant(run);
  return {};
}

// The caller's callbacks, which may run on any thread.
struct Callbacks {
  void* user;
  void (*on_progress)(void* user, int64_t done, int64_t total);
  void (*on_message)(void* user, pinion_message kind, const char* text);

  void report(pinion_message kind, const std::string& text) const {
    if (on_message) on_message(user, kind, text.c_str());
  }
};

LoadOptions load_options_for(const pinion_model_options& options, const RunOptions& run, const Callbacks& callbacks) {
  LoadOptions load = run.load;
  if (!run.no_cache) load.cache_folder = options.cache_folder ? options.cache_folder : default_cache_folder();
  load.warn = [callbacks](const Error& e) { callbacks.report(PINION_WARNING, e.message()); };
  load.doubt = [callbacks](const Error& e) { callbacks.report(PINION_DOUBT, e.message()); };
  if (callbacks.on_progress) {
    load.progress = [callbacks](int64_t done, int64_t total) { callbacks.on_progress(callbacks.user, done, total); };
  }
  return load;
}

Error open_shared(const pinion_model_options& options, OpenModel* model) {
  const RunOptions& run = model->run;
  if (Error e = check_model_folder(run.model)) return e;
  if (Error e = load_tokenizer_if_any(run.model, &model->tokenizer)) return e;
  const Callbacks callbacks = {options.user, options.on_progress, options.on_message};
  const LoadOptions load = load_options_for(options, run, callbacks);
  const Note note = [&](const std::string& text) { callbacks.report(PINION_NOTE, text); };
  if (Error e = open_model(run, load, note, model->tokenizer.get(), &model->runtime)) return e;
  for (const std::string& text : model_notes(*model->runtime.model)) note(text);
  return {};
}

}  // namespace

pinion_status failed(pinion_status status, std::string_view text) noexcept {
  size_t bytes = std::min(text.size(), last_text.size() - 1);
  while (bytes > 0 && bytes < text.size() && !begins_character(text[bytes])) --bytes;
  std::ranges::copy(text.substr(0, bytes), last_text.begin());
  last_text[bytes] = '\0';
  return status;
}

PassLock::PassLock(PassMutex& passes) : passes_(passes) {
  if (passes.owner.load() == std::this_thread::get_id()) return;
  lock_ = std::unique_lock(passes.mutex);
  passes.owner = std::this_thread::get_id();
  has_affinity_ = sched_getaffinity(0, sizeof affinity_, &affinity_) == 0;
}

PassLock::~PassLock() {
  if (!is_held()) return;
  Team::unpin_caller();  // updates the team's record of the thread, too
  if (has_affinity_) sched_setaffinity(0, sizeof affinity_, &affinity_);
  passes_.owner = std::thread::id();
}

}  // namespace pinion

using namespace pinion;

const char* pinion_error_text() { return last_text.data(); }

uint32_t pinion_api_version() { return PINION_API_VERSION; }

const char* pinion_version() { return PINION_VERSION; }

const char* pinion_build() {
  try {
    static const std::string text = build_text();
    return text.c_str();
  } catch (const std::bad_alloc&) {
    return "pinion " PINION_VERSION;
  }
}

void pinion_free(void* memory) { std::free(memory); }

pinion_status pinion_model_open(const char* folder, const pinion_model_options* options, pinion_model** out) {
  return guarded([&] {
    if (!out) return missing("out");
    *out = nullptr;
    if (!folder) return missing("folder");
    pinion_model_options given;
    if (Error e = read_options(options, "options", &given)) return failed(PINION_ERROR_ARGUMENT, e);
    auto handle = std::make_unique<pinion_model>(std::make_shared<OpenModel>());
    if (Error e = read_run(folder, given, &handle->shared->run)) return failed(PINION_ERROR_ARGUMENT, e);
    static PassMutex opening;  // starting threads and choosing cores affects the whole process (engine/team/team.h)
    const PassLock lock(opening);
    if (!lock.is_held()) return busy();
    if (Error e = open_shared(given, handle->shared.get())) return status_of(e, PINION_ERROR_MODEL);
    *out = handle.release();
    return PINION_OK;
  });
}

void pinion_model_close(pinion_model* model) { delete model; }

pinion_status pinion_model_describe(const pinion_model* model, pinion_model_info* out) {
  return guarded({{"model", model}, {"out", out}}, [&] {
    const OpenModel& shared = *model->shared;
    const Model& weights = *shared.runtime.model;
    const pinion_model_info info = {
        .size = out->size,
        .family = weights.config.family.c_str(),
        .quant = quant_name(shared.run).data(),  // of a literal, as .kv
        .kv = kv_name(shared.run).data(),
        .kernels = shared.runtime.kernels->name,
        .threads = shared.runtime.team->size(),
        .has_tokenizer = shared.tokenizer != nullptr,
        .vocab_size = weights.config.vocab_size,
        .context_length = context_length(weights.config),
        .weight_bytes = weights.weight_bytes,
        .from_cache = weights.from_cache(),
    };
    if (out->size < sizeof out->size || out->size > sizeof info) {
      return failed(
          PINION_ERROR_ARGUMENT,
          error("wrong size", "out", "at most " + std::to_string(sizeof info) + " bytes", std::to_string(out->size)));
    }
    std::memcpy(out, &info, out->size);
    return PINION_OK;
  });
}

pinion_status pinion_model_end_ids(const pinion_model* model, int32_t** out, size_t* count) {
  return guarded({{"model", model}, {"out or count", out && count}},
                 [&] { return give_ids(model->shared->runtime.model->eos_ids, out, count); });
}
