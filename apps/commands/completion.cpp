// pinion completion: scripts that teach a shell the commands, options and values, written from what --help says.
#include <algorithm>
#include <iterator>
#include <map>

#include "apps/cli/machine.h"
#include "apps/commands.h"
#include "loader/files/json.h"

namespace pinion {
namespace {

// A command with the words that lead to it: "", "chat", "golden check".
struct Place {
  std::string words;
  const CommandText* command;
};

void add_places(const std::string& words, const CommandText& command, std::vector<Place>* out) {
  out->push_back({words, &command});
  for (const CommandText& inner : command.commands) {
    add_places(words.empty() ? inner.name : words + " " + inner.name, inner, out);
  }
}

std::vector<Place> places_of(const CommandText& root) {
  std::vector<Place> places;
  add_places("", root, &places);
  return places;
}

// With a backslash before each of these letters.
std::string escaped(std::string_view text, std::string_view letters) {
  std::string out;
  for (const char c : text) {
    if (letters.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// "golden check" with something else between the words.
std::string respaced(std::string_view words, std::string_view between) {
  std::string text;
  for (const char c : words) text += c == ' ' ? between : std::string_view(&c, 1);
  return text;
}

enum class ValueKind : uint8_t { none, folder, file, choice, other };

// F, F.json and their like are files.
ValueKind kind_of(const OptionText& option) {
  if (option.value.empty()) return ValueKind::none;
  if (!option.choices.empty()) return ValueKind::choice;
  if (option.value == "DIR") return ValueKind::folder;
  return option.value == "F" || option.value.find('.') != std::string::npos ? ValueKind::file : ValueKind::other;
}

// What bash runs to complete an option's value.
std::string bash_action(const OptionText& option) {
  switch (kind_of(option)) {
    case ValueKind::folder:
      return "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$word\"); return";
    case ValueKind::file:
      return "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); return";
    case ValueKind::choice:
      return "words='" + joined(option.choices, " ") + "'";
    default:
      return "return";
  }
}

std::string bash_script(const CommandText& root) {
  std::vector<std::string> paths;
  std::map<std::string, std::vector<std::string>> options;  // action -> 'chat --model'
  std::string words;
  for (const auto& [path, command] : places_of(root)) {
    if (!path.empty()) paths.push_back(shell_quoted(path));
    std::vector<std::string> next = command_names(*command);
    for (const OptionText& option : command->options) {
      next.insert(next.end(), option.names.begin(), option.names.end());
      if (option.value.empty()) continue;
      std::vector<std::string>& same = options[bash_action(option)];
      for (const std::string& name : option.names) same.push_back(shell_quoted(path + " " + name));
    }
    words += "        " + shell_quoted(path) + ") words=" + shell_quoted(joined(next, " ")) + " ;;\n";
  }
  std::string values;
  for (const auto& [action, names] : options) values += "    " + joined(names, "|") + ") " + action + " ;;\n";
  return R"(# bash completion for pinion: source <(pinion completion bash)
_pinion() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= path words= i
  COMPREPLY=()
  # bash cuts --quant=w8a8 at the =.
  if [[ $word == = ]]; then word=; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    path=${command:+$command }${COMP_WORDS[i]}
    case $path in
      )" +
         joined(paths, "|") +
         R"() command=$path ;;
    esac
  done
  case "$command $before" in
)" + values +
         R"(    *)
      case $command in
)" + words +
         R"(      esac ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -F _pinion pinion
)";
}

// '(-m --model)'{-m,--model}'[Folder of the model]:DIR:_files -/'
std::string zsh_option(const OptionText& option) {
  std::string value;
  if (!option.value.empty()) value = ":" + option.value + ":";
  const ValueKind kind = kind_of(option);
  if (kind == ValueKind::folder) value += "_files -/";
  if (kind == ValueKind::file) value += "_files";
  if (kind == ValueKind::choice) value += "(" + joined(option.choices, " ") + ")";
  const std::string names = joined(option.names, ",");
  const std::string others = option.repeatable ? "*" : "(" + joined(option.names, " ") + ")";
  return shell_quoted(others) + (option.names.size() > 1 ? "{" + names + "}" : names) +
         shell_quoted("[" + escaped(option.help, "[]:\\") + "]" + value);
}

std::string zsh_function(const std::string& path) {
  return "_pinion" + (path.empty() ? "" : "_" + respaced(path, "_"));
}

std::string zsh_body(const Place& place) {
  std::string text = "  _arguments -C";
  for (const OptionText& option : place.command->options) text += " \\\n    " + zsh_option(option);
  if (place.command->commands.empty()) return text + "\n";
  text += " \\\n    '1:command:->command' '*::argument:->argument'\n  case $state in\n    command)\n      commands=(";
  std::string inner;
  for (const CommandText& command : place.command->commands) {
    text += "\n        " + shell_quoted(command.name + ":" + escaped(command.help, ":\\"));
    inner += "        " + command.name + ") " +
             zsh_function(place.words.empty() ? command.name : place.words + " " + command.name) + " ;;\n";
  }
  return text + ")\n      _describe command commands ;;\n    argument)\n      case $words[1] in\n" + inner +
         "      esac ;;\n  esac\n";
}

std::string zsh_script(const CommandText& root) {
  std::string text =
      "#compdef pinion\n# zsh completion for pinion: source <(pinion completion zsh), or a file _pinion in $fpath\n";
  for (const Place& place : places_of(root)) {
    text += zsh_function(place.words) +
            "() {\n  local -a commands line\n  local state curcontext=$curcontext\n  typeset -A opt_args\n" +
            zsh_body(place) + "}\n";
  }
  return text + "if [[ $funcstack[1] == _pinion ]]; then _pinion \"$@\"; else compdef _pinion pinion; fi\n";
}

std::string fish_quoted(std::string_view text) { return "'" + escaped(text, "\\'") + "'"; }

std::string fish_option(const OptionText& option) {
  std::string text;
  for (const std::string& name : option.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  text += " -d " + fish_quoted(option.help);
  switch (kind_of(option)) {
    case ValueKind::none:
      return text;
    case ValueKind::folder:
      return text + " -xa '(__fish_complete_directories)'";
    case ValueKind::file:
      return text + " -rF";
    case ValueKind::choice:
      return text + " -xa " + fish_quoted(joined(option.choices, " "));
    case ValueKind::other:
      return text + " -x";
  }
  return text;
}

// Whether the words of a place, and none of its commands, stand on the line.
std::string fish_condition(const Place& place) {
  if (place.words.empty()) return "__fish_use_subcommand";
  std::string text = "__fish_seen_subcommand_from " + respaced(place.words, "; and __fish_seen_subcommand_from ");
  if (place.command->commands.empty()) return text;
  return text + "; and not __fish_seen_subcommand_from " + joined(command_names(*place.command), " ");
}

std::string fish_script(const CommandText& root) {
  std::string text = "# fish completion for pinion: pinion completion fish | source\ncomplete -c pinion -f\n";
  for (const Place& place : places_of(root)) {
    const std::string start = "complete -c pinion -n " + fish_quoted(fish_condition(place));
    for (const CommandText& command : place.command->commands) {
      text += start + " -a " + command.name + " -d " + fish_quoted(command.help) + "\n";
    }
    for (const OptionText& option : place.command->options) text += start + fish_option(option) + "\n";
  }
  return text;
}

struct Shell {
  const char* name;
  const char* help;
  const char* example;
  std::string (*script)(const CommandText& root);
};

constexpr Shell kShells[] = {
    {"bash", "For bash, in ~/.bashrc", "source <(pinion completion bash)", bash_script},
    {"zsh", "For zsh, in ~/.zshrc behind compinit", "source <(pinion completion zsh)", zsh_script},
    {"fish", "For fish", "pinion completion fish >~/.config/fish/completions/pinion.fish", fish_script},
};

}  // namespace

Run setup_completion(Command app) {
  app.require_command();
  std::vector<Command> commands;
  for (const Shell& shell : kShells) commands.push_back(app.add_command(shell.name, shell.help, shell.example));
  return {[app, commands] {
    const auto given = std::ranges::find_if(commands, &Command::is_given);
    print(kShells[given - commands.begin()].script(app.whole().describe()));
    return kSuccess;
  }};
}

}  // namespace pinion
