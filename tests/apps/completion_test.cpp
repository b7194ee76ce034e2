// Completion in the shells themselves, if they are installed, and the manual page rendered by groff.
#include <sstream>

#include "tests/apps/program.h"

namespace pinion {
namespace {

bool is_installed(const std::string& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

// The output of a shell that runs `script`; "$1" is the file with pinion's completion for that shell.
std::string run_shell(const std::string& shell, const std::string& script) {
  const Folder folder;
  write_file(folder / "completion", run_pinion({"completion", shell}).out);
  write_file(folder / "script", script);
  fs::create_directories(folder / "models/my model");
  write_file(folder / "models/file.json", "");
  const std::string command = "cd " + quoted(folder.path) + " && HOME=" + quoted(folder.path) +
                              " XDG_CONFIG_HOME=" + quoted(folder.path) + " " + shell +
                              " script completion >out 2>err </dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << read_file(folder / "err");
  EXPECT_EQ(read_file(folder / "err"), "");
  return read_file(folder / "out");
}

TEST(Completion, Bash) {
  // compopt fails outside of readline's completion.
  const std::string script = R"(source "$1"
compopt() { :; }
try() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
  _pinion
  (IFS='|'; echo "${COMPREPLY[*]}")
}
try pinion gen
try pinion golden ''
try pinion golden record --kv ''
try pinion generate --quant = w
try pinion generate --quant =
try pinion chat --model models/
try pinion template --messages models/f
try pinion generate --prompt chat --no-r
try pinion chat --seed ''
try pinion bench -o j
)";
  if (!is_installed("bash")) GTEST_SKIP() << "no bash";
  EXPECT_EQ(run_shell("bash", script),
            "generate\nrecord|check|-h|--help\nf32|bf16|q8\nw8a8|w4a8|w4a8+\nnone|w8a8|w4a8|w4a8+\nmodels/my model\n"
            "models/file.json\n--no-rotate\n\njson|jsonl\n");
}

TEST(Completion, Fish) {
  const std::string script = R"(source $argv[1]
for line in 'pinion gen' 'pinion golden ' 'pinion golden record --kv ' 'pinion chat --hi' 'pinion chat --model models/m'
  complete -C $line | string replace -r '\t.*' ''
end
)";
  if (!is_installed("fish")) GTEST_SKIP() << "no fish";
  EXPECT_EQ(run_shell("fish", script), "generate\ncheck\nrecord\nbf16\nf32\nq8\n--hide-thinking\nmodels/my model/\n");
}

// zsh completes only on a terminal, so this test only loads the script and looks for its functions.
TEST(Completion, Zsh) {
  const std::string script = R"(autoload -U compinit
compinit -u -d "$PWD/dump"
source $1
print $_comps[pinion] $+functions[_pinion_golden_record] $+functions[_pinion_chat]
)";
  if (!is_installed("zsh")) GTEST_SKIP() << "no zsh";
  EXPECT_EQ(run_shell("zsh", script), "_pinion 1 1\n");
}

// Without a shell: each script contains all commands and options of --help.
TEST(Completion, ScriptsHaveAllCommandsAndOptions) {
  const Outcome help = run_pinion({"help"});
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = run_pinion({"completion", shell}).out;
    std::istringstream lines(help.out.substr(help.out.find("Subcommands:\n") + 13));
    int commands = 0;
    for (std::string line; std::getline(lines, line) && line.starts_with("  "); ++commands) {
      EXPECT_NE(script.find(line.substr(2, line.find(' ', 2) - 2)), std::string::npos) << line;
    }
    EXPECT_GT(commands, 12);
    for (const char* option : {"prefill-chunk", "hide-thinking", "bisect", "no-rotate"}) {
      EXPECT_NE(script.find(option), std::string::npos) << option;
    }
    EXPECT_EQ(script.find("roof-mb"), std::string::npos) << "hidden options stay so";
  }
  EXPECT_EQ(run_pinion({"completion", "tcsh"}).status, 2);
}

// An option without a text in help.json has an empty line behind its names.
TEST(Manual, EveryOptionHasHelp) {
  const std::string manual = run_pinion({"man"}).out;
  size_t options = 0;
  for (size_t at = manual.find("\n.TP\n"); at != manual.npos; at = manual.find("\n.TP\n", at + 1), ++options) {
    const size_t names = at + 5, text = manual.find('\n', names + 1) + 1;
    EXPECT_NE(manual.substr(text, 1).find_first_not_of(".;(\n"), std::string::npos) << manual.substr(names, 80);
  }
  EXPECT_GT(options, 50u);
}

TEST(Manual, ManualEqualsHelp) {
  const Outcome outcome = run_pinion({"man"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(outcome.out.starts_with(".TH PINION 1 ")) << outcome.out.substr(0, 100);
  for (const char* part : {".SS golden check\n", "\\fB\\-m\\fR, \\fB\\-\\-model\\fR \\fIDIR\\fR", "EXIT STATUS"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
  }
  if (!is_installed("groff")) GTEST_SKIP() << "no groff";
  const Folder folder;
  write_file(folder / "pinion.1", outcome.out);
  const std::string command = "cd " + quoted(folder.path) + " && groff -man -ww -Tascii pinion.1 >page 2>complaints";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(read_file(folder / "complaints"), "");
  EXPECT_NE(read_file(folder / "page").find("Once upon a time"), std::string::npos);
}

}  // namespace
}  // namespace pinion
