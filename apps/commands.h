// The sub-commands: each setup function declares its options and returns the functions that run it.
#pragma once

#include "apps/cli/common.h"

namespace pinion {

struct Run {
  std::function<int()> run;  // after parsing; returns the exit status
  // Options of the models that several boards can share; the command line gives at most one. Empty: rank 0 runs alone.
  std::vector<RunOptions*> shared = {};
  // Replaces `run` on every board of several. Empty: rank 0 calls `run`.
  std::function<int(Exchange&)> on_all = {};
  // Called on the other boards before they follow: sets the shared options that depend on this command's own.
  std::function<void()> prepare_follower = {};
};

using Setup = Run(Command app);
Setup setup_generate, setup_chat, setup_serve, setup_embed, setup_logits, setup_tokenize, setup_detokenize;
Setup setup_template, setup_bench, setup_golden, setup_quality, setup_get, setup_inspect, setup_pack, setup_cpu,
    setup_tune;
Setup setup_completion, setup_man;

}  // namespace pinion
