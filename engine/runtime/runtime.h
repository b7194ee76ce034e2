// The one way to open a model with what runs it, and sessions of it:
//
//   Runtime runtime;
//   RuntimeOptions options;
//   options.model = "folder";
//   if (Error e = open_runtime(options, &runtime)) ...
//   std::unique_ptr<Session> session;
//   if (Error e = open_session(runtime, {.capacity = 4096}, &session)) ...
//   generate(*session, ...);                        // engine/session/generate.h
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "engine/runtime/load.h"
#include "engine/runtime/plan.h"
#include "engine/session/scheduler.h"
#include "engine/session/session.h"
#include "engine/team/team.h"
#include "kernels/base/error.h"
#include "kernels/kernels.h"

namespace pinion {

struct RuntimeOptions {
  std::string model;                 // folder, as Hugging Face lays it out
  std::string synthetic;             // instead: a config.json whose shape gets random weights
  LoadOptions load;                  // its team is that of the plan
  std::optional<KvType> kv;          // none: f32 for Quant::none, else q8
  std::optional<Plan> plan;          // none: as tuned, else the default
  const Kernels* kernels = nullptr;  // null: the best the CPU has
  // With boards that share the model, each of which opens it, too (engine/runtime/follow.h); null: it is on one.
  Exchange* exchange = nullptr;
};

KvType kv_type(const RuntimeOptions& options);

// What weights become where nobody says: w4a8 where the folder has 4-bit codes that may stay, else w8a8. A folder that
// cannot be read says nothing; what loads it tells why.
Quant default_quant(const std::string& model);

// A model ready to run. Sessions of it must not outlive it.
struct Runtime {
  const Kernels* kernels = nullptr;
  std::unique_ptr<Team> team;  // decodes
  std::unique_ptr<Team> prefill_team;
  int64_t prefill_chunk = kDefaultPrefillChunk;
  KvType kv = KvType::q8;
  bool is_numa = false;
  std::unique_ptr<Model> model;
  std::jthread cache_keeper;  // behind what it reads: it ends first
};

// Other teams and another chunk, between runs. Fails where this process may not have so many threads.
Error use_plan(const Plan& plan, Runtime* out);

// Also keeps freshly packed weights for the next start, or checks cached ones, in the background. Errors: those of
// make_plan and load_model, on several boards those of any of them.
Error open_runtime(const RuntimeOptions& options, Runtime* out);

// The MTP layer of a runtime's checkpoint, which was opened with these options, as a model to draft with on the same
// teams. The runtime outlives it.
Error open_mtp(const RuntimeOptions& options, const Runtime& runtime, Runtime* out);

// What a session is for; the rest is the runtime's. See SessionOptions.
struct SessionNeeds {
  int64_t capacity = 0;
  int64_t drafts = 0;
  const Session* also_open = nullptr;
  bool keeps_hidden = false;
};
Error open_session(const Runtime& runtime, const SessionNeeds& needs, std::unique_ptr<Session>* out);

// For a scheduler of the runtime's model and teams.
SchedulerOptions scheduler_options(const Runtime& runtime);

}  // namespace pinion
