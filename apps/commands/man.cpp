// pinion man: the manual page, written from what --help says. The macros are those of man(7).
#include <algorithm>
#include <map>
#include <span>

#include "apps/commands.h"

namespace pinion {
namespace {

// Text as it is, whatever roff would make of it.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string sentence(const std::string& text) { return plain(text) + (text.ends_with('.') ? "\n" : ".\n"); }

std::string title_of(const OptionText& option) {
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "" : ", ") + ("\\fB" + plain(name) + "\\fR");
  return text + (option.value.empty() ? "" : " \\fI" + plain(option.value) + "\\fR");
}

// The first long one, where there is one.
std::string main_name(const OptionText& option) {
  const auto is_long = [](const std::string& name) { return name.starts_with("--"); };
  const auto name = std::ranges::find_if(option.names, is_long);
  return name == option.names.end() ? option.names.front() : *name;
}

std::string paragraph(const OptionText& option) {
  std::string help = option.help;
  if (!option.choices.empty()) {
    help += "; one of";
    for (const std::string& choice : option.choices) help += " " + choice;
  }
  if (!option.default_value.empty()) help += " (default: " + option.default_value + ")";
  return ".TP\n" + title_of(option) + "\n" + sentence(help);
}

// Options that mean the same in several commands stand in a section of their own.
using Counts = std::map<std::string, int>;

void count_options(const CommandText& command, Counts* counts) {
  for (const OptionText& option : command.options) ++(*counts)[paragraph(option)];
  for (const CommandText& inner : command.commands) count_options(inner, counts);
}

constexpr int kSeveral = 3;

std::string common_options(const CommandText& command, const Counts& counts, Counts* seen) {
  std::string text;
  for (const OptionText& option : command.options) {
    const std::string one = paragraph(option);
    if (counts.at(one) >= kSeveral && (*seen)[one]++ == 0) text += one;
  }
  for (const CommandText& inner : command.commands) text += common_options(inner, counts, seen);
  return text;
}

std::string command_section(const std::string& words, const CommandText& command, const Counts& counts) {
  std::string own, common;
  for (const OptionText& option : command.options) {
    const std::string one = paragraph(option);
    if (counts.at(one) < kSeveral) {
      own += one;
    } else {
      common += (common.empty() ? "" : ", ") + ("\\fB" + plain(main_name(option)) + "\\fR");
    }
  }
  std::string text = ".SS " + plain(words) + "\n" + sentence(command.help);
  if (!command.example.empty()) text += ".PP\n.nf\n" + plain(command.example) + "\n.fi\n";
  text += own;
  if (!common.empty()) text += ".PP\nAlso, as described below: " + common + ".\n";
  for (const CommandText& inner : command.commands) text += command_section(words + " " + inner.name, inner, counts);
  return text;
}

struct Row {
  const char* name;
  const char* text;
};

std::string list(const char* title, std::span<const Row> rows) {
  std::string text = std::string(".SH ") + title + "\n";
  for (const Row& row : rows) text += ".TP\n\\fB" + plain(row.name) + "\\fR\n" + plain(row.text) + "\n";
  return text;
}

constexpr Row kStatuses[] = {
    {"0", "All went well."},
    {"1", "It could not be done, or a check found a difference: a line on standard error says why."},
    {"2", "The command line is wrong."},
};

constexpr Row kEnvironment[] = {
    {"XDG_CACHE_HOME", "Packed weights lie in its folder pinion; default ~/.cache."},
    {"XDG_CONFIG_HOME", "What pinion tune found lies in its folder pinion; default ~/.config."},
    {"HF_HUB_CACHE, HF_HOME",
     "Where the cache of Hugging Face is, in which --model ORG/NAME is looked for; default "
     "~/.cache/huggingface/hub."},
    {"PINION_KERNELS", "A kernel table that pinion cpu lists, where --kernels is not given."},
    {"PINION_ACCESS", "A way through the weights' memory, instead of the tuned one."},
};

std::string man_page(const CommandText& root) {
  Counts counts, seen;
  count_options(root, &counts);
  std::string text = ".TH PINION 1 \"\" \"pinion " PINION_VERSION "\"\n.SH NAME\npinion \\- " + plain(root.help) +
                     "\n.SH SYNOPSIS\n\\fBpinion\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR]...\n.SH COMMANDS\n";
  std::string common = common_options(root, counts, &seen);
  for (const CommandText& command : root.commands) text += command_section(command.name, command, counts);
  return text + ".SH COMMON OPTIONS\n" + common + list("EXIT STATUS", kStatuses) + list("ENVIRONMENT", kEnvironment);
}

}  // namespace

Run setup_man(Command app) {
  return {[app] {
    print(man_page(app.whole().describe()));
    return kSuccess;
  }};
}

}  // namespace pinion
