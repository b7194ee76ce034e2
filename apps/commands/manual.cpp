// pinion completion and pinion man: completion scripts and the manual page, generated from the texts of --help.
#include <nlohmann/json.hpp>

#include "apps/commands.h"

namespace pinion {
namespace {

struct Shell {
  const char* name;
  const char* help;
  const char* example;
};

constexpr Shell kShells[] = {
    {"bash", "Script for bash; use it in ~/.bashrc", "source <(pinion completion bash)"},
    {"zsh", "Script for zsh; use it in ~/.zshrc after compinit", "source <(pinion completion zsh)"},
    {"fish", "Script for fish", "pinion completion fish >~/.config/fish/completions/pinion.fish"},
};

int print_manual(Command app, const std::string& report) {
  return print_report({{"commands", app.root().describe()}, {"version", PINION_VERSION}}, false, report);
}

}  // namespace

Run setup_completion(Command app) {
  app.require_command();
  std::vector<Command> commands;
  for (const Shell& shell : kShells) commands.push_back(app.add_command(shell.name, shell.help, shell.example));
  return {[app, commands] {
    const auto given = std::ranges::find_if(commands, &Command::is_given) - commands.begin();
    return print_manual(app, std::string("completion_") + kShells[given].name);
  }};
}

Run setup_man(Command app) {
  return {[app] { return print_manual(app, "man"); }};
}

}  // namespace pinion
