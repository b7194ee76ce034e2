// The sub-commands, one file each: every function declares its options and returns what runs.
#pragma once

#include "apps/common.h"

namespace pinion {

Run setup_generate(CLI::App& app);
Run setup_chat(CLI::App& app);
Run setup_logits(CLI::App& app);
Run setup_tokenize(CLI::App& app);
Run setup_detokenize(CLI::App& app);
Run setup_template(CLI::App& app);
Run setup_bench(CLI::App& app);
Run setup_golden(CLI::App& app);
Run setup_quality(CLI::App& app);
Run setup_inspect(CLI::App& app);
Run setup_pack(CLI::App& app);
Run setup_cpu(CLI::App& app);
Run setup_tune(CLI::App& app);

}  // namespace pinion
