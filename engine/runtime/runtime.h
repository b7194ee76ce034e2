// Opens a model with its teams and kernels, and sessions of it:
//
//   Runtime runtime;
//   RuntimeOptions options;
//   options.model = "folder";
//   if (Error e = open_runtime(options, &runtime)) ...
//   std::unique_ptr<Session> session;
//   if (Error e = open_session(runtime, {.context = 4096}, &session)) ...
//   generate(*session, ...);                        // engine/session/session.h
#pragma once

#include "engine/runtime/load.h"
#include "engine/runtime/plan.h"
#include "engine/session/scheduler.h"
#include "engine/session/session.h"

namespace pinion {

struct RuntimeOptions {
  std::string model;                 // folder with the files of a Hugging Face repository
  std::string synthetic;             // instead of model: a config.json whose shapes get random weights
  LoadOptions load;                  // `team` comes from the plan
  std::optional<KvType> kv;          // default: f32 for Quant::none, else q8
  std::optional<Plan> plan;          // nullopt: make_plan() with the tune file and without options
  const Kernels* kernels = nullptr;  // null: the best for this CPU
  // To the other boards, which open their shares at the same time (engine/runtime/follow.h); null: one board.
  Exchange* exchange = nullptr;
};

KvType kv_type(const RuntimeOptions& options);

// Default of --quant: w4a8 if the folder has 4-bit codes that can be kept, else (also for an unreadable folder) w8a8.
Quant default_quant(const std::string& model);

// A model ready to run. It must outlive its sessions.
struct Runtime {
  const Kernels* kernels = nullptr;
  std::unique_ptr<Team> team;  // for decode
  std::unique_ptr<Team> prefill_team;
  int64_t prefill_chunk = kDefaultPrefillChunk;
  KvType kv = KvType::q8;
  std::unique_ptr<Model> model;
  std::jthread cache_keeper;  // reads model, so it is declared after it
};

// Replaces the teams and the chunk. No pass may be running. Fails if the process cannot have that many threads.
Error use_plan(const Plan& plan, Runtime* out);

// Opens the model and writes or checks its cache in the background. Errors of make_plan() and load_model(), any board.
Error open_runtime(const RuntimeOptions& options, Runtime* out);

// Opens the MTP layer of `runtime`, which outlives `out`, as a draft model on its teams. options: as for `runtime`.
Error open_mtp(const RuntimeOptions& options, const Runtime& runtime, Runtime* out);

// Options for a scheduler of the runtime's model; kv, pass_rows, kernels and prefill_team become the runtime's.
SchedulerOptions scheduler_options(const Runtime& runtime, SchedulerOptions options = {});

// Opens a session of the runtime's model, with scheduler_options().
Error open_session(const Runtime& runtime, const SchedulerOptions& options, std::unique_ptr<Session>* out);

}  // namespace pinion
