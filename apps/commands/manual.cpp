// pinion completion and pinion man: completion scripts and the manual page, generated from the texts of --help.
#include <map>

#include "apps/commands.h"
#include "kernels/base/text.h"
#include "loader/files/json.h"

namespace pinion {
namespace {

// A command with its path: "" for the program, "chat", "golden check".
struct CommandNode {
  std::string path;
  const CommandText* command;
};

void add_nodes(const std::string& path, const CommandText& command, std::vector<CommandNode>* out) {
  out->push_back({path, &command});
  for (const CommandText& sub : command.commands) add_nodes(path.empty() ? sub.name : path + " " + sub.name, sub, out);
}

std::vector<CommandNode> nodes_of(const CommandText& root) {
  std::vector<CommandNode> nodes;
  add_nodes("", root, &nodes);
  return nodes;
}

// Puts a backslash before each of these letters.
std::string escaped(std::string_view text, std::string_view letters) {
  std::string out;
  for (const char c : text) {
    if (letters.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Completion of a kind of values in each shell; @ stands for the choices.
struct ValueKind {
  const char *bash, *zsh, *fish;
};
constexpr ValueKind kNoValue = {"", "", ""};
constexpr ValueKind kFolder = {"compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$word\"); return",
                               "_files -/", " -xa '(__fish_complete_directories)'"};
constexpr ValueKind kFile = {"compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); return",
                             "_files", " -rF"};
constexpr ValueKind kChoice = {"words='@'", "(@)", " -xa '@'"};
constexpr ValueKind kOther = {"return", "", " -x"};

// Value names such as F and F.json mean files.
const ValueKind& kind_of(const OptionText& option) {
  if (option.value.empty()) return kNoValue;
  if (!option.choices.empty()) return kChoice;
  if (option.value == "DIR") return kFolder;
  return option.value == "F" || option.value.find('.') != std::string::npos ? kFile : kOther;
}

std::string completion_of(const OptionText& option, const char* ValueKind::* shell) {
  return replaced(kind_of(option).*shell, "@", joined(option.choices, " "));
}

std::string bash_script(const CommandText& root) {
  std::vector<std::string> paths;
  std::map<std::string, std::vector<std::string>> options;  // action -> 'chat --model'
  std::string words;
  for (const auto& [path, command] : nodes_of(root)) {
    if (!path.empty()) paths.push_back(shell_quoted(path));
    std::vector<std::string> next = command_names(*command);
    for (const OptionText& option : command->options) {
      next.insert(next.end(), option.names.begin(), option.names.end());
      if (option.value.empty()) continue;
      std::vector<std::string>& same = options[completion_of(option, &ValueKind::bash)];
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
  if (!option.value.empty()) value = ":" + option.value + ":" + completion_of(option, &ValueKind::zsh);
  const std::string names = joined(option.names, ",");
  const std::string others = option.repeatable ? "*" : "(" + joined(option.names, " ") + ")";
  return shell_quoted(others) + (option.names.size() > 1 ? "{" + names + "}" : names) +
         shell_quoted("[" + escaped(option.help, "[]:\\") + "]" + value);
}

std::string zsh_function(const std::string& path) {
  return "_pinion" + (path.empty() ? "" : "_" + replaced(path, " ", "_"));
}

std::string zsh_body(const CommandNode& node) {
  std::string text = "  _arguments -C";
  for (const OptionText& option : node.command->options) text += " \\\n    " + zsh_option(option);
  if (node.command->commands.empty()) return text + "\n";
  text += " \\\n    '1:command:->command' '*::argument:->argument'\n  case $state in\n    command)\n      commands=(";
  std::string inner;
  for (const CommandText& command : node.command->commands) {
    text += "\n        " + shell_quoted(command.name + ":" + escaped(command.help, ":\\"));
    inner += "        " + command.name + ") " +
             zsh_function(node.path.empty() ? command.name : node.path + " " + command.name) + " ;;\n";
  }
  return text + ")\n      _describe command commands ;;\n    argument)\n      case $words[1] in\n" + inner +
         "      esac ;;\n  esac\n";
}

std::string zsh_script(const CommandText& root) {
  std::string text =
      "#compdef pinion\n# zsh completion for pinion: source <(pinion completion zsh), or a file _pinion in $fpath\n";
  for (const CommandNode& node : nodes_of(root)) {
    text += zsh_function(node.path) +
            "() {\n  local -a commands line\n  local state curcontext=$curcontext\n  typeset -A opt_args\n" +
            zsh_body(node) + "}\n";
  }
  return text + "if [[ $funcstack[1] == _pinion ]]; then _pinion \"$@\"; else compdef _pinion pinion; fi\n";
}

std::string fish_quoted(std::string_view text) { return "'" + escaped(text, "\\'") + "'"; }

std::string fish_option(const OptionText& option) {
  std::string text;
  for (const std::string& name : option.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  return text + " -d " + fish_quoted(option.help) + completion_of(option, &ValueKind::fish);
}

// True if the line has the words of the path but none of the sub-commands.
std::string fish_condition(const CommandNode& node) {
  if (node.path.empty()) return "__fish_use_subcommand";
  std::string text = "__fish_seen_subcommand_from " + replaced(node.path, " ", "; and __fish_seen_subcommand_from ");
  if (node.command->commands.empty()) return text;
  return text + "; and not __fish_seen_subcommand_from " + joined(command_names(*node.command), " ");
}

std::string fish_script(const CommandText& root) {
  std::string text = "# fish completion for pinion: pinion completion fish | source\ncomplete -c pinion -f\n";
  for (const CommandNode& node : nodes_of(root)) {
    const std::string start = "complete -c pinion -n " + fish_quoted(fish_condition(node));
    for (const CommandText& command : node.command->commands) {
      text += start + " -a " + command.name + " -d " + fish_quoted(command.help) + "\n";
    }
    for (const OptionText& option : node.command->options) text += start + fish_option(option) + "\n";
  }
  return text;
}

// The manual page uses the macros of man(7). Escapes text for roff.
std::string roff_text(std::string_view text) {
  const std::string out = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string roff_sentence(const std::string& text) { return roff_text(text) + (text.ends_with('.') ? "\n" : ".\n"); }

std::string option_title(const OptionText& option) {
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "" : ", ") + ("\\fB" + roff_text(name) + "\\fR");
  return text + (option.value.empty() ? "" : " \\fI" + roff_text(option.value) + "\\fR");
}

// The first long name, or else the first one.
std::string main_name(const OptionText& option) {
  const auto is_long = [](const std::string& name) { return name.starts_with("--"); };
  const auto name = std::ranges::find_if(option.names, is_long);
  return name == option.names.end() ? option.names.front() : *name;
}

std::string option_paragraph(const OptionText& option) {
  std::string help = option.help;
  if (!option.choices.empty()) help += "; one of " + joined(option.choices, " ");
  if (!option.default_value.empty()) help += " (default: " + option.default_value + ")";
  return ".TP\n" + option_title(option) + "\n" + roff_sentence(help);
}

// Uses of an option, by its paragraph. Options with the same text in several commands share one section.
using Uses = std::map<std::string, int>;
constexpr int kSharedUses = 3;

std::string command_section(const CommandNode& node, const Uses& uses) {
  std::string paragraphs, shared;
  for (const OptionText& option : node.command->options) {
    const std::string paragraph = option_paragraph(option);
    if (uses.at(paragraph) < kSharedUses) {
      paragraphs += paragraph;
    } else {
      shared += (shared.empty() ? "" : ", ") + ("\\fB" + roff_text(main_name(option)) + "\\fR");
    }
  }
  std::string text = ".SS " + roff_text(node.path) + "\n" + roff_sentence(node.command->help);
  const std::string& example = node.command->example;
  if (!example.empty()) text += ".PP\n.nf\n" + roff_text(example) + "\n.fi\n";
  return text + paragraphs + (shared.empty() ? "" : ".PP\nAlso, as described below: " + shared + ".\n");
}

using ListItem = std::pair<const char*, const char*>;

std::string list_section(const char* title, std::span<const ListItem> items) {
  std::string text = std::string(".SH ") + title + "\n";
  for (const auto& [name, help] : items) text += ".TP\n\\fB" + roff_text(name) + "\\fR\n" + roff_text(help) + "\n";
  return text;
}

constexpr ListItem kStatuses[] = {
    {"0", "Success."},
    {"1", "The command failed, or a check found a difference: one line on standard error gives the reason."},
    {"2", "The command line is wrong."},
};

constexpr ListItem kEnvironment[] = {
    {"XDG_CACHE_HOME", "Its folder pinion holds the packed weights; default ~/.cache."},
    {"XDG_CONFIG_HOME", "Its folder pinion holds the results of pinion tune; default ~/.config."},
    {"XDG_STATE_HOME", "Its folder pinion holds the history of pinion chat; default ~/.local/state."},
    {"HF_HUB_CACHE, HF_HOME",
     "Location of the Hugging Face cache, which is searched for --model ORG/NAME; default ~/.cache/huggingface/hub."},
    {"PINION_KERNELS", "Name of a kernel table, as listed by pinion cpu; --kernels overrides it."},
    {"PINION_ACCESS", "Order in which weights are read from memory, in place of the tuned one."},
};

std::string man_page(const CommandText& root) {
  const std::vector<CommandNode> nodes = nodes_of(root);
  Uses uses;
  std::vector<std::string> paragraphs;  // each once
  std::string sections, shared;
  for (const CommandNode& node : nodes) {
    for (const OptionText& option : node.command->options) {
      if (const std::string text = option_paragraph(option); ++uses[text] == 1) paragraphs.push_back(text);
    }
  }
  for (const std::string& paragraph : paragraphs) shared += uses[paragraph] >= kSharedUses ? paragraph : "";
  for (const CommandNode& node : nodes) sections += node.path.empty() ? "" : command_section(node, uses);
  return ".TH PINION 1 \"\" \"pinion " PINION_VERSION "\"\n.SH NAME\npinion \\- " + roff_text(root.help) +
         "\n.SH SYNOPSIS\n\\fBpinion\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR]...\n.SH COMMANDS\n" + sections +
         ".SH COMMON OPTIONS\n" + shared + list_section("EXIT STATUS", kStatuses) +
         list_section("ENVIRONMENT", kEnvironment);
}

struct Shell {
  const char* name;
  const char* help;
  const char* example;
  std::string (*script)(const CommandText& root);
};

constexpr Shell kShells[] = {
    {"bash", "Script for bash; use it in ~/.bashrc", "source <(pinion completion bash)", bash_script},
    {"zsh", "Script for zsh; use it in ~/.zshrc after compinit", "source <(pinion completion zsh)", zsh_script},
    {"fish", "Script for fish", "pinion completion fish >~/.config/fish/completions/pinion.fish", fish_script},
};

}  // namespace

Run setup_completion(Command app) {
  app.require_command();
  std::vector<Command> commands;
  for (const Shell& shell : kShells) commands.push_back(app.add_command(shell.name, shell.help, shell.example));
  return {[app, commands] {
    const auto given = std::ranges::find_if(commands, &Command::is_given);
    print(kShells[given - commands.begin()].script(app.root().describe()));
    return kSuccess;
  }};
}

Run setup_man(Command app) {
  return {[app] {
    print(man_page(app.root().describe()));
    return kSuccess;
  }};
}

}  // namespace pinion
