// The sub-commands, one file each: every function declares its options and returns what runs.
#pragma once

#include "apps/cli/common.h"

namespace pinion {

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
