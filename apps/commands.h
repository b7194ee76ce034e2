// The sub-commands: each setup function declares its options and returns the functions that run it.
#pragma once

#include <functional>
#include <vector>

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

Run setup_generate(Command app);
Run setup_chat(Command app);
Run setup_serve(Command app);
Run setup_logits(Command app);
Run setup_tokenize(Command app);
Run setup_detokenize(Command app);
Run setup_template(Command app);
Run setup_bench(Command app);
Run setup_golden(Command app);
Run setup_quality(Command app);
Run setup_get(Command app);
Run setup_inspect(Command app);
Run setup_pack(Command app);
Run setup_cpu(Command app);
Run setup_tune(Command app);
Run setup_completion(Command app);
Run setup_man(Command app);

}  // namespace pinion
