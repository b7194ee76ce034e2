#include "apps/serve/models.h"

#include <ctime>
#include <filesystem>
#include <future>

#include "apps/serve/responses.h"
#include "engine/team/memory.h"
#include "kernels/base/clock.h"
#include "kernels/base/text.h"
#include "loader/gguf/gguf_folder.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

// The models in a folder that is no model itself: its folders and GGUF files, sorted. Empty: it has none.
std::vector<std::string> models_in(const fs::path& folder) {
  std::vector<std::string> models;
  std::error_code code;
  if (fs::exists(folder / "config.json", code)) return models;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    const std::string file = entry->path().filename(), model = find_model_folder(entry->path());
    const bool is_part = gguf_parts(file).front() != file || file.starts_with("mmproj");
    if (!is_part && !check_model_folder(model)) models.push_back(model);
  }
  std::ranges::sort(models);
  return models;
}

// The paths of all models, each once; the options' own if they name one model.
std::vector<std::string> read_paths(const ModelOptions& options) {
  std::vector<std::string> paths;
  const auto add = [&](const std::string& name, const std::vector<std::string>& inside) {
    for (const std::string& path : inside.empty() ? std::vector{find_model_folder(name)} : inside) {
      const std::string whole = absolute_path(path);
      if (std::ranges::count(paths, whole) == 0) paths.push_back(whole);
    }
  };
  for (const std::string& model : options.models) {
    const std::vector<std::string> inside = check_model_folder(model) ? models_in(model) : std::vector<std::string>{};
    if (inside.empty() && options.models.size() == 1 && options.folders.empty()) return options.models;
    add(model, inside);
  }
  for (const std::string& folder : options.folders) add(folder, models_in(folder));
  return paths;
}

// The reason of a failed load for clients, who learn no path of the server's disk: files lose their folders.
std::string public_reason(const ModelOptions& options, const Error& failure) {
  std::string text = failure.message();
  std::vector<std::string> known = options.run.load.lora;
  known.insert(known.end(), {options.run.model, options.run.calibrate, options.prompt_cache, options.warm});
  for (const fs::path path : known) {  // which may have blanks or be relative
    if (path.has_parent_path())
      text = replaced(replaced(text, path.string() + "/", ""), path.parent_path().string() + "/", "");
  }
  for (size_t at = 0; (at = text.find('/', at)) != text.npos; ++at) {
    if (at > 0 && std::string_view(" \"'(=").find(text[at - 1]) == std::string_view::npos) continue;
    const size_t end = std::min(text.find_first_of(" \"'),;:", at), text.size());
    text.erase(at, text.rfind('/', end - 1) + 1 - at);
  }
  return text;
}

}  // namespace

ModelList::ModelList(const ModelOptions& options, std::shared_ptr<EngineLoop> engine)
    : options_(options), engine_(std::move(engine)) {
  common_->created = std::time(nullptr);
  common_->seed = options.sampling.seed;
  common_->responses = std::make_shared<ResponseStore>();
  common_->models = this;
}

ModelList::~ModelList() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
  if (keeper_.joinable()) keeper_.join();
}

Error ModelList::read() {
  const std::vector<std::string> paths = read_paths(options_);
  has_several_ = paths.size() != 1 || paths != options_.models || !options_.folders.empty();
  for (const std::string& path : paths) {
    if (Error e = check_model_folder(path)) return e;
  }
  return read_list(paths);
}

Error ModelList::open(const std::function<Error()>& listen) {
  // Before the team pins this thread: new threads inherit its cores.
  keeper_ = std::thread([this] {
    while (!keep()) continue;
  });
  Lock lock(mutex_);
  return has_several_ ? listen() : load(lock, *entries_.front(), listen);
}

// Adds new models and marks those that are gone. The names of known ones stay.
Error ModelList::read_list(const std::vector<std::string>& paths) {
  Error failure;
  for (const EntryPointer& entry : entries_) {
    entry->is_gone = std::ranges::count(paths, entry->path) == 0;
    entry->aliases.clear();
  }
  for (const std::string& path : paths) {
    if (std::ranges::count(entries_, path, &Entry::path) > 0) continue;
    RunOptions run = options_.run;
    run.model = path;
    const std::string first = to_utf8(model_name(run));
    std::string name = first;
    for (int i = 2; std::ranges::count(entries_, name, &Entry::name) > 0; ++i) name = first + "-" + std::to_string(i);
    entries_.push_back(std::make_shared<Entry>(name, path));
  }
  for (const std::string& alias : options_.aliases) {
    const size_t sign = alias.find('=');
    const std::string name = alias.substr(0, sign), target = alias.substr(sign + 1);
    const fs::path path = absolute_path(find_model_folder(target));
    const auto entry = std::ranges::find_if(entries_, [&](const EntryPointer& each) {
      return !each->is_gone && (each->name == target || absolute_path(each->path) == path);
    });
    if (find(name)) {
      failure = error("a model has this name", "--alias " + alias);
    } else if (entry == entries_.end()) {
      failure = error(unknown().message, "--alias " + alias);
    } else {
      (*entry)->aliases.push_back(name);
    }
  }
  return failure;
}

ApiError ModelList::unknown() {
  const std::lock_guard lock(mutex_);
  std::string names;
  for (const EntryPointer& entry : entries_) {
    if (!entry->is_gone) names += (names.empty() ? "" : ", ") + entry->name;
  }
  return {404, "model not found; this server has " + (entries_.size() == 1 ? "only " + names : names), "model",
          "model_not_found"};
}

ModelList::EntryPointer ModelList::find(std::string_view name) const {
  constexpr std::string_view kLatest = ":latest";  // Ollama's clients add it
  if (name.ends_with(kLatest)) name.remove_suffix(kLatest.size());
  const auto is_named = [&](const EntryPointer& entry) {
    return !entry->is_gone && (name.empty() || name == entry->name || std::ranges::count(entry->aliases, name) > 0);
  };
  const auto entry = std::ranges::find_if(entries_, is_named);
  return entry == entries_.end() ? nullptr : *entry;
}

// Counts a user of the model until the pointer is destroyed. `is_request`: its end is the model's last use.
ModelList::Server ModelList::hold(const EntryPointer& entry, bool is_request) {
  ++entry->users;
  if (is_request) entry->used_seconds = now_seconds();
  return {entry->model.get(), [this, entry, is_request](const ServerState*) {
            const std::lock_guard lock(mutex_);
            if (is_request) entry->used_seconds = now_seconds();
            if (--entry->users == 0) changed_.notify_all();
          }};
}

// False: the client has gone, or the server is shutting down.
bool ModelList::wait(Lock& lock, const IsConnected& is_connected) {
  constexpr std::chrono::milliseconds kInterval(50);
  if (engine_->is_draining()) return false;
  changed_.wait_for(lock, kInterval);
  lock.unlock();
  const bool goes_on = is_connected();
  lock.lock();
  return goes_on;
}

ApiError ModelList::choose(const HttpRequest& http, bool loads, Server* out) {
  std::string name = http.model;
  if (has_several_ && name.empty() && !http.body.empty()) {
    const Slot slot(*common_->parse_slots);
    BodyFields body(http.body);
    JsonFields& fields = body.fields;
    name = fields.text(http.path.starts_with("/api/") && !fields.has("model") ? "name" : "model", "");
    if (fields.error) return failure_error(FailureKind::invalid, fields.error);
  }
  return load(has_several_ ? name : "", http.is_client_connected, loads, out);
}

ApiError ModelList::load(const std::string& name, const IsConnected& is_connected, bool loads, Server* out) {
  Lock lock(mutex_);
  const EntryPointer entry = find(name);
  if (!entry) return unknown();
  const int64_t failures = entry->failures;
  const auto is_admitted = [&] {
    return entry->model && (entry->granted > 0 || (!entry->is_leaving && entry != room_maker_));
  };
  if (!loads && !entry->model) return {400, entry->name + " is not loaded (POST /models/load loads it)", "model"};
  if (loads && !is_admitted()) {
    if (entry->waiting >= options_.parallel + options_.queue) {
      return {429, "too many requests wait for " + entry->name, {}, kQueueFull};
    }
    if (entry->waiting++ == 0) entry->wanted_since = now_seconds();
    changed_.notify_all();
    while (!is_admitted() && entry->failures == failures && wait(lock, is_connected)) continue;
    if (entry->failures == failures) --entry->waiting;
    changed_.notify_all();
  }
  if (!loads || is_admitted()) {
    if (loads && entry->granted > 0) --entry->granted, --entry->users;
    *out = hold(entry, loads);
    return {.status = 0, .message = {}};
  }
  if (entry->failures != failures) return entry->failure;
  if (engine_->is_draining()) return failure_error(FailureKind::draining, error("the server is shutting down", ""));
  return {499, "the client has disconnected"};  // nobody reads it
}

ApiError ModelList::unload(const std::string& name, const IsConnected& is_connected) {
  Lock lock(mutex_);
  const EntryPointer entry = find(name);
  if (!entry) return unknown();
  if (options_.run.exchange) return {400, "several boards keep their model loaded"};
  do {
    entry->is_leaving = entry->model || entry->is_loading;
    changed_.notify_all();
  } while (entry->is_leaving && wait(lock, is_connected));
  if (!std::exchange(entry->is_leaving, false)) return {.status = 0, .message = {}};
  return failure_error(FailureKind::draining, error("the server is shutting down", ""));
}

std::vector<ListedModel> ModelList::list(std::optional<std::string_view> name) {
  const std::lock_guard lock(mutex_);
  std::vector<ListedModel> models;
  for (const EntryPointer& entry : entries_) {
    if (entry->is_gone || (name && (name->empty() || find(*name) != entry))) continue;
    const char* status = entry->failure.message.empty() ? "unloaded" : "failed";
    if (entry->is_loading) status = "loading";
    if (entry->model) status = "loaded";
    models.push_back({entry->name, entry->aliases, status, entry->progress, entry->failure.message, entry->used_seconds,
                      entry->model ? hold(entry, false) : nullptr, entry->counted});
  }
  return models;
}

int64_t ModelList::reserved_bytes() const {
  int64_t bytes = 0;
  for (const EntryPointer& entry : entries_) {
    if (!entry->model) continue;
    const Model* drafter = entry->model->drafting.runtime.model.get();
    bytes += entry->model->service->untouched_bytes() + (drafter ? mapped_bytes(*drafter) : 0);
  }
  return bytes;
}

int64_t ModelList::free_bytes() {
  const std::lock_guard lock(mutex_);
  return std::max<int64_t>(0, available_memory_bytes() - reserved_bytes());
}

// --- The thread that loads and drops

// False: out of memory.
bool ModelList::keep() try {
  const std::chrono::duration<double> interval(options_.idle_seconds > 0 ? std::min(1.0, options_.idle_seconds / 4)
                                                                         : 60);
  Lock lock(mutex_);
  while (!is_closing_) {
    if (std::exchange(must_reread_, false)) {
      lock.unlock();
      std::vector<std::string> paths = read_paths(options_);
      std::erase_if(paths, [](const std::string& path) { return static_cast<bool>(check_model_folder(path)); });
      lock.lock();
      if (Error e = read_list(paths)) warn(e.message());
    } else if (!take_step(lock)) {
      changed_.wait_for(lock, interval);
    }
  }
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

// Drops or loads a model. False: there is nothing to do now.
bool ModelList::take_step(Lock& lock) {
  std::erase_if(entries_, [](const EntryPointer& e) { return e->is_gone && !e->model && e->waiting == 0; });
  EntryPointer wanted;  // that requests have waited for the longest
  EntryPointer victim;  // least recently used, if possible without requests
  int64_t loaded = 0;
  for (const EntryPointer& e : entries_) {
    const auto rank = [](const EntryPointer& each) { return std::pair(each->users > 0, each->used_seconds); };
    if (e->model && (!victim || rank(e) < rank(victim))) victim = e;
    if (!e->model && e->waiting > 0 && (!wanted || e->wanted_since < wanted->wanted_since)) wanted = e;
    loaded += e->model != nullptr;
  }
  if (engine_->is_draining()) wanted = nullptr;
  const bool is_full = options_.max_loaded > 0 && loaded >= options_.max_loaded;
  room_maker_ = wanted && (is_full || wanted->lacks_memory) ? victim : nullptr;
  if (drop_one(lock)) {
    if (wanted) wanted->lacks_memory = false;
    return true;
  }
  if (!wanted || room_maker_) return false;
  if (Error e = load(lock, *wanted); e && !wanted->lacks_memory) warn(e.message());
  return true;
}

bool ModelList::is_droppable(const EntryPointer& entry) const {
  if (!entry->model || entry->users > 0) return false;
  const bool is_expired = options_.idle_seconds > 0 && now_seconds() - entry->used_seconds >= options_.idle_seconds;
  return is_expired || entry->is_leaving || entry->is_gone || entry == room_maker_;
}

// False: there is no model to drop. The engine must have left one before it is destroyed.
bool ModelList::drop_one(Lock& lock) {
  const auto found = std::ranges::find_if(entries_, std::bind_front(&ModelList::is_droppable, this));
  if (found == entries_.end()) return false;
  const EntryPointer entry = *found;
  std::shared_ptr<OpenModel> model = std::move(entry->model);
  const auto count = [&] {
    entry->counted = model->service->metrics(false);
    entry->counted.running = entry->counted.waiting = entry->counted.snapshot_bytes = 0;
  };
  count();  // for lists that are made while the engine leaves it
  ++version_;
  engine_->wake();
  changed_.wait(lock, [&] { return engine_version_ == version_ || is_closing_; });
  count();
  lock.unlock();
  model.reset();
  lock.lock();
  note("dropped " + entry->name);
  changed_.notify_all();
  return true;
}

Error ModelList::load(Lock& lock, Entry& entry, const std::function<Error()>& on_read) {
  ModelOptions options = options_;
  options.run.model = entry.path;
  if (options.run.quant_reason != kQuantRequested) options.run.quant_reason.clear();
  resolve_quant(&options.run);
  options.run.load.progress = [&entry](int64_t done, int64_t total) {
    entry.progress = static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total));
  };
  const int64_t reserved = reserved_bytes();
  entry.progress = 0;
  entry.is_loading = true;
  lock.unlock();
  std::shared_ptr<OpenModel> model;
  Error failure;
  try {
    // A thread for each load, so that the threads of its team end with it instead of spinning beside the engine's.
    const auto policy = keeper_.get_id() == std::this_thread::get_id() ? std::launch::async : std::launch::deferred;
    auto load = std::async(policy, open_served_model, options, *common_, engine_, reserved, on_read, &model);
    while (load.wait_for(std::chrono::milliseconds(10)) == std::future_status::timeout) {
      Lock others(mutex_);
      drop_one(others);
    }
    failure = load.get();
  } catch (const std::exception& e) {
    failure = {"out of memory or threads", entry.name, {}, e.what(), 1};
  }
  if (failure) model.reset();
  lock.lock();
  entry.is_loading = false;
  const bool has_others = std::ranges::any_of(entries_, [](const EntryPointer& e) { return e->model != nullptr; });
  entry.lacks_memory = failure.needed_bytes > 0 && has_others &&
                       failure.needed_bytes <= available_memory_bytes() + private_bytes();  // else it never fits
  if (!failure) {
    model->model = entry.name;
    model->service->resume(entry.counted);
    entry.model = std::move(model);
    entry.users += entry.granted = entry.waiting;
    entry.used_seconds = now_seconds();
    entry.failure.message.clear();
    ++version_;
    engine_->wake();
  } else if (!entry.lacks_memory) {
    ++entry.failures;
    entry.waiting = 0;
    entry.failure = {failure.needed_bytes > 0 ? 503 : 500,
                     entry.name + " cannot be loaded: " + public_reason(options, failure)};
  }
  changed_.notify_all();
  return failure;
}

// --- The engine's thread

void ModelList::update(std::vector<InferenceService*>* services) {
  const bool must_reread = engine_->took_hang_up();
  if (!must_reread && version_ == engine_version_) return;
  const std::lock_guard lock(mutex_);
  must_reread_ |= must_reread;
  services->clear();
  for (const EntryPointer& entry : entries_) {
    if (entry->model) services->push_back(entry->model->service);
  }
  engine_version_ = version_;
  changed_.notify_all();
}

}  // namespace pinion
