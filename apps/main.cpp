// The program: a table of sub-commands, the exit status, and the last resort for exceptions.
#include <csignal>
#include <exception>
#include <new>

#include "apps/commands.h"

namespace pinion {
namespace {

struct CommandRow {
  const char* name;
  const char* description;
  const char* example;
  Run (*setup)(Command);
};

constexpr CommandRow kCommands[] = {
    {"generate", "Continue a prompt", "pinion generate --model DIR --prompt \"Once upon a time\" --max-tokens 100",
     setup_generate},
    {"chat", "Talk with a model, turn by turn", "pinion chat --model DIR --system \"Answer briefly.\"", setup_chat},
    {"logits", "Write a prompt's logits as a NumPy file",
     "pinion logits --model DIR --prompt-ids 1,2,3 --all --out F.npy", setup_logits},
    {"tokenize", "Text to token ids", "pinion tokenize --model DIR --text \"Hello world\"", setup_tokenize},
    {"detokenize", "Token ids to text", "pinion detokenize --model DIR --ids 1,15043,3186", setup_detokenize},
    {"template", "A conversation as the prompt text that the model's chat template makes of it",
     "pinion template --model DIR --messages talk.json --var enable_thinking=false", setup_template},
    {"bench", "Measure prefill and decode against the memory's speed",
     "pinion bench --model DIR -p 512 -n 128 -r 5 -t 1,2", setup_bench},
    {"golden", "Record a model's outputs, and check that they still come out bit for bit",
     "pinion golden check --model DIR --golden G.json", setup_golden},
    {"quality", "Measure what quantisation does to a model's predictions of a text",
     "pinion quality --model DIR --file TEXT --tokens 4096", setup_quality},
    {"inspect", "Describe a model folder: family, shapes, memory, what will run", "pinion inspect --model DIR",
     setup_inspect},
    {"pack", "Keep a model's packed weights for instant starts: where they lie and how large they are",
     "pinion pack --model DIR", setup_pack},
    {"tune", "Find the cores and the prefill chunk that are fastest on this machine, and keep them for later runs",
     "pinion tune --model DIR", setup_tune},
    {"cpu", "Describe this machine: cores, features, kernels", "pinion cpu --bandwidth", setup_cpu},
};

int run_program(int argc, char** argv) {
  CommandLine line("pinion", "Pinion runs language models from Hugging Face folders on the CPU.",
                   "pinion " PINION_VERSION,
                   "Example: pinion chat --model configs/demo\n`pinion COMMAND --help` explains a command.");
  std::vector<std::pair<Command, Run>> runs;
  for (const CommandRow& row : kCommands) {
    const Command command = line.root().add_command(row.name, row.description, row.example);
    runs.emplace_back(command, row.setup(command));
  }
  // CLI11 has no short options of two letters, llama-bench has this one.
  static char long_name[] = "--pg";
  const bool is_bench = argc > 1 && std::string_view(argv[1]) == "bench";
  for (int i = 2; is_bench && i < argc; ++i) {
    if (std::string_view(argv[i]) == "-pg") argv[i] = long_name;
  }
  if (const std::optional<int> status = line.parse(argc, argv)) return *status;
  for (const auto& [command, run] : runs) {
    if (command.is_given()) return run();
  }
  return fail_usage("no command given");
}

}  // namespace
}  // namespace pinion

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe shows as a failed write, which ends the program quietly
  try {
    return pinion::run_program(argc, argv);
  } catch (const std::bad_alloc&) {
    return pinion::fail(pinion::error("out of memory", ""));
  } catch (const std::exception& failure) {
    return pinion::fail(pinion::error(failure.what(), ""));
  }
}
