// pinion completion and pinion man: completion scripts and the manual page, generated from the texts of --help.
#include <nlohmann/json.hpp>

#include "apps/commands.h"

namespace pinion {
namespace {

constexpr const char* kShells[] = {"bash", "zsh", "fish"};

int print_manual(Command app, const std::string& report) {
  return print_report({{"commands", app.root().describe()}, {"version", PINION_VERSION}}, false, report);
}

}  // namespace

Run setup_completion(Command app) {
  app.require_command();
  std::vector<Command> commands;
  for (const char* shell : kShells) commands.push_back(app.add_command(shell));
  return {[app, commands] {
    const auto given = std::ranges::find_if(commands, &Command::is_given) - commands.begin();
    return print_manual(app, std::string("completion_") + kShells[given]);
  }};
}

Run setup_man(Command app) {
  return {[app] { return print_manual(app, "man"); }};
}

}  // namespace pinion
