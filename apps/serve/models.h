// The models of the server: which are loaded, loading on request, dropping what is least recently used.
#pragma once

#include "apps/cli/speculate.h"
#include "apps/serve/api.h"

namespace pinion {

struct ModelOptions {
  // Options of each model; `run` is without the model.
  RunOptions run;
  SamplingFlags sampling;
  int64_t parallel = 8;
  int64_t context = 0;  // 0: as much as fits
  int64_t queue = 64;
  std::string speculate;     // empty: off
  std::string prompt_cache;  // DIR[,SIZE]; empty: none
  std::string warm;          // file with messages; empty: none
  std::string pooling;       // empty: that of the folder
  int64_t roof_mb = 0;       // buffer of the bandwidth measurement; 0: far larger than the caches
  // Options of the list.
  std::vector<std::string> models;   // folders and GGUF files
  std::vector<std::string> folders;  // the same, or folders whose models all count
  std::vector<std::string> aliases;  // NAME=MODEL; MODEL: a name or a path of the list
  double idle_seconds = 0;           // a model without requests for so long is dropped; 0: never
  int64_t max_loaded = 0;            // 0: as many as fit
};

// The owner of a model. Members are destroyed in reverse order: requests, service, draft models, weights.
struct OpenModel : ServerState {
  Runtime runtime;
  Drafting drafting;
  std::unique_ptr<InferenceService> owned_service;
  std::unique_ptr<RequestGroup> warm;  // keeps the texts of --warm
};

// Opens options.run.model; `common` has the parts that all models share. on_read: called once the small files are read
// (tokenizer, chat template, sampling). Fails if the model does not fit beside `reserved_bytes` of others.
Error open_served_model(ModelOptions options, const ServerState& common, const std::shared_ptr<EngineLoop>& engine,
                        int64_t reserved_bytes, const std::function<Error()>& on_read, std::shared_ptr<OpenModel>* out);

struct ListedModel {
  std::string name;
  std::vector<std::string> aliases;
  std::string status;                         // "loaded", "loading", "failed" or "unloaded"
  double progress;                            // of loading, 0 to 1
  std::string failure;                        // why the last load failed; empty: it did not
  double used_seconds;                        // now_seconds() of the last request
  std::shared_ptr<const ServerState> loaded;  // null: not loaded; keeps the model from being dropped
  ServiceMetrics counted;                     // before it was loaded, or dropped
};

// Loads and drops on a thread of its own, while the engine runs the passes of the loaded models by turns. A model with
// requests is never dropped: if another one needs its memory, new requests for it wait, so that its turn ends.
class ModelList {
 public:
  using IsConnected = std::function<bool()>;
  using Server = std::shared_ptr<const ServerState>;

  ModelList(const ModelOptions& options, std::shared_ptr<EngineLoop> engine);
  ~ModelList();

  Error read();  // once, before open()
  // Calls `listen`, and starts to load on request. A single model is loaded at once, on the caller's thread.
  Error open(const std::function<Error()>& listen);
  // Runs passes until the engine is drained.
  void run() { engine_->run(std::bind_front(&ModelList::update, this)); }

  // False: the list is one model for good, which answers requests for any name.
  bool has_several() const { return has_several_; }
  double idle_seconds() const { return options_.idle_seconds; }
  Server common() const { return common_; }                                  // of endpoints that need no loaded model
  std::vector<ListedModel> list(std::optional<std::string_view> name = {});  // all, or the one with this name
  int64_t free_bytes();                                                      // that no loaded model has reserved
  ApiError unknown();                                                        // 404, with the names

  // The model of a request, loaded. Calls `is_connected` while it waits. Status 0: success. loads: false for requests
  // that only look at a model; they fail if it is not loaded, and do not count as its use.
  ApiError choose(const HttpRequest& http, bool loads, Server* out);
  ApiError load(const std::string& name, const IsConnected& is_connected, bool loads, Server* out);
  // Waits for the end of the model's requests.
  ApiError unload(const std::string& name, const IsConnected& is_connected);

 private:
  struct Entry {
    std::string name, path;
    std::vector<std::string> aliases = {};
    std::shared_ptr<OpenModel> model = {};  // null: not loaded
    ApiError failure = {};
    ServiceMetrics counted = {};      // until the last drop
    int64_t failures = 0;             // failed loads so far
    std::atomic<double> progress{0};  // of the current load
    double wanted_since = 0, used_seconds = 0;
    int users = 0;    // requests that have the model, and lists
    int waiting = 0;  // requests that wait for it
    int granted = 0;  // of `waiting`: counted in `users` when the model was loaded, so that it is not dropped at once
    bool is_loading = false;
    bool lacks_memory = false;  // others must be dropped first
    bool is_leaving = false;    // admits no requests, to be dropped
    bool is_gone = false;       // not in the list any more
  };
  using Lock = std::unique_lock<std::recursive_mutex>;
  using EntryPointer = std::shared_ptr<Entry>;

  Error read_list(const std::vector<std::string>& paths);
  EntryPointer find(std::string_view name) const;  // null: unknown. Empty: the first
  Server hold(const EntryPointer& entry, bool is_request);
  bool wait(Lock& lock, const IsConnected& is_connected);
  bool keep();
  bool take_step(Lock& lock);
  bool is_droppable(const EntryPointer& entry) const;
  bool drop_one(Lock& lock);
  Error load(Lock& lock, Entry& entry, const std::function<Error()>& on_read = {});
  int64_t reserved_bytes() const;
  void update(std::vector<InferenceService*>* services);

  const ModelOptions options_;
  const std::shared_ptr<EngineLoop> engine_;
  const std::shared_ptr<ServerState> common_ = std::make_shared<ServerState>();
  bool has_several_ = false;
  std::thread keeper_;
  std::atomic<int64_t> version_{0};  // of the set of loaded models
  int64_t engine_version_ = 0;       // guarded by mutex_, written by the engine thread

  std::recursive_mutex mutex_;  // guards the members below; recursive: a user may be released under it
  std::condition_variable_any changed_;
  std::vector<EntryPointer> entries_;  // in the list's order; the first is the default
  EntryPointer room_maker_;            // another model needs its memory; null: none does
  bool must_reread_ = false, is_closing_ = false;
};

}  // namespace pinion
