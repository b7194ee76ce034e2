// The program: the table of sub-commands, the exit status, and the handler for exceptions that nothing else caught.
#include <algorithm>
#include <csignal>
#include <exception>
#include <iterator>
#include <new>

#include "apps/cli/boards.h"
#include "apps/cli/start.h"
#include "apps/commands.h"
#include "apps/model/build.h"
#include "engine/boards/mpi.h"
#include "loader/files/hints.h"

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
    {"serve", "Serve a model over HTTP with OpenAI's API", "pinion serve --model DIR --port 8080", setup_serve},
    {"logits", "Write a prompt's logits as a NumPy file",
     "pinion logits --model DIR --prompt-ids 1,2,3 --all --out F.npy", setup_logits},
    {"tokenize", "Convert text to token ids", "pinion tokenize --model DIR --text \"Hello world\"", setup_tokenize},
    {"detokenize", "Convert token ids to text", "pinion detokenize --model DIR --ids 1,15043,3186", setup_detokenize},
    {"template", "Print the prompt that the chat template makes of a conversation",
     "pinion template --model DIR --messages talk.json --var enable_thinking=false", setup_template},
    {"bench", "Measure the speed of prefill and decode, and compare it with the memory bandwidth",
     "pinion bench --model DIR -p 512 -n 128 -r 5 -t 1,2", setup_bench},
    {"golden", "Record a model's outputs, or check that they are still the same bit for bit",
     "pinion golden check --model DIR --golden G.json", setup_golden},
    {"quality", "Measure how quantisation changes a model's predictions of a text",
     "pinion quality --model DIR --file TEXT --tokens 4096", setup_quality},
    {"get", "Download a model from the Hugging Face Hub", "pinion get Qwen/Qwen3-0.6B", setup_get},
    {"inspect", "Describe a model folder: family, shapes, memory, mode and cores of a run",
     "pinion inspect --model DIR", setup_inspect},
    {"pack", "Pack a model's weights into the cache for fast starts, and print the file and its size",
     "pinion pack --model DIR", setup_pack},
    {"tune", "Find the fastest cores and prefill chunk of this machine, and save them for later runs",
     "pinion tune --model DIR", setup_tune},
    {"cpu", "Describe this machine: cores, features, kernels", "pinion cpu --bandwidth", setup_cpu},
    {"completion", "Print a shell script that completes commands, options and values",
     "pinion completion fish | source", setup_completion},
    {"man", "Print the manual page", "pinion man >pinion.1 && man ./pinion.1", setup_man},
};

// Command names of other programs, with the command that does it here.
struct ForeignName {
  const char* name;
  const char* answer;
};

constexpr ForeignName kForeignNames[] = {
    {"run", "`pinion chat` talks with a model, `pinion generate` continues a text"},
    {"pull", "`pinion get ORG/NAME` downloads a model"},
    {"download", "`pinion get ORG/NAME` downloads a model"},
    {"server", "`pinion serve` serves a model over HTTP"},
    {"show", "`pinion inspect` describes a model"},
    {"convert", "models need no conversion; `pinion pack` prepares fast starts"},
    {"quantize", "`--quant` selects the quantisation of a run, and `pinion pack` prepares it"},
    {"perplexity", "`pinion quality` measures it"},
    {"version", "`pinion --version` prints it"},
};

int fail_unknown_command(const std::string& typed, const Command& root) {
  const auto foreign = std::ranges::find(kForeignNames, typed, &ForeignName::name);
  const std::string hint = foreign == std::end(kForeignNames) ? did_you_mean(typed, command_names(root.describe()))
                                                              : std::string("; ") + foreign->answer;
  return fail_usage("no command \"" + typed + "\"" + hint);
}

// exchange: with the other processes; null: this one is alone.
int run_program(int argc, char** argv, Exchange* exchange) {
  CommandLine line("pinion", "Pinion runs language models from Hugging Face folders on the CPU.", build_text(),
                   "Example: pinion chat --model configs/demo\n`pinion COMMAND --help` explains a command.");
  std::vector<std::pair<Command, Run>> runs;
  for (const CommandRow& row : kCommands) {
    const Command command = line.root().add_command(row.name, row.description, row.example);
    runs.emplace_back(command, row.setup(command));
  }
  static char help[] = "--help", both[] = "--pg";
  constexpr std::string_view kHelp[] = {"help", "--help", "-h"};
  if (argc > 1 && std::ranges::count(kHelp, argv[1]) > 0) {  // `pinion help chat` is `pinion chat --help`
    argv[1] = help;
    std::rotate(argv + 1, argv + 2, argv + argc);
  }
  const std::string first = argc > 1 ? argv[1] : "";
  const bool is_known =
      first.starts_with('-') || std::ranges::find(kCommands, first, &CommandRow::name) != std::end(kCommands);
  // llama-bench has -pg, but CLI11 has no short options of two letters.
  for (int i = 2; first == "bench" && i < argc; ++i) {
    if (std::string_view(argv[i]) == "-pg") argv[i] = both;
  }
  const auto parse = [&]() -> std::optional<int> {
    if (!first.empty() && !is_known) return fail_unknown_command(first, line.root());
    return line.parse(argc, argv);
  };
  if (const std::optional<int> status = exchange ? parse_on_boards(*exchange, parse) : parse()) return *status;
  Run given = {[&] {
    print(line.root().help());
    return kSuccess;
  }};
  for (const auto& [command, run] : runs) {
    if (command.is_given()) given = run;
  }
  return exchange ? run_on_boards(*exchange, given) : given.run();
}

int run_guarded(int argc, char** argv) {
  std::unique_ptr<Exchange> exchange;
  try {
    if (Error e = connect_launched_boards(&exchange)) return launched_process().rank == 0 ? fail(e) : kFailure;
    const int status = status_of(run_program(argc, argv, exchange.get()));
    if (exchange) stop_reporting_losses();
    return status;
  } catch (const std::bad_alloc&) {
    fail(error("out of memory", ""));
  } catch (const std::exception& failure) {
    fail(error(failure.what(), ""));
  }
  if (exchange) exchange->abort_all();
  return kFailure;
}

}  // namespace
}  // namespace pinion

int main(int argc, char** argv) {
  // Writes to a closed pipe, or past `ulimit -f`, then fail with an error instead of a signal.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  pinion::open_standard_descriptors();
  pinion::install_bus_error_handler();
  return pinion::run_on_enough_stack([&] { return pinion::run_guarded(argc, argv); });
}
