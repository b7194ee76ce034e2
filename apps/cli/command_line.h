// Options of a command line. CLI11 does the work, in command_line.cpp alone: wherever it is included it takes seconds
// to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace pinion {

// One option, to be described further: add_option(...).range(1, 10).type_name("N").
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& type_name(const std::string& name);
  Option& path(const std::string& type_name);  // of a file or folder: an empty one is a mistake, a script's say
  Option& required(bool is = true);
  Option& range(double least, double most);  // refuses NaN and what is no number too
  Option& whole();                           // refuses 1.5
  Option& one_of(const std::vector<std::string>& values);
  Option& check(const std::function<std::string(const std::string& text)>& complaint);  // empty: the text is right
  Option& replace(const std::function<std::string(const std::string& text)>& meaning);  // what the text stands for
  Option& excludes(const Option& other);
  Option& show_default();
  Option& repeatable();            // a list, one value each time
  Option& list();                  // likewise, also as 1,2,3
  Option& joined(char separator);  // what is said several times becomes one text
  Option& describe(const std::string& help);
  Option& hidden();  // from --help

 private:
  CLI::Option* option_;
};

// What --help says, as data: for the shells' completion and the man page.
struct OptionText {
  std::vector<std::string> names;    // "-m", "--model"
  std::string value;                 // "DIR"; empty: a flag
  std::vector<std::string> choices;  // the values, where there are only some
  std::string help;
  std::string default_value;  // where --help shows it
  bool required, repeatable;
};

struct CommandText {
  std::string name, help, example;
  std::vector<OptionText> options;  // without hidden ones
  std::vector<CommandText> commands;
};

std::vector<std::string> command_names(const CommandText& command);  // of its commands

// A command, or a command of a command; the command line owns it.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // T: std::string, int32_t, int64_t, double; std::optional of std::string, double, uint64_t; std::vector of
  // std::string, int32_t, int64_t. The value outlives the command line, and keeps what it has where the option is not
  // given.
  template <class T>
  Option add_option(const std::string& name, T& value, const std::string& help) const;
  // One of some names; chosen(i) is told which.
  Option add_choice(const std::string& name, std::span<const std::string_view> values,
                    const std::function<void(size_t i)>& chosen, const std::string& help) const;
  Option add_flag(const std::string& name, bool& value, const std::string& help) const;
  Option find(const std::string& name) const;

  Command add_command(const std::string& name, const std::string& description, const std::string& example) const;
  void require_command() const;  // one of them
  bool is_given() const;
  void when_parsed(const std::function<void()>& f) const;
  Command whole() const;  // the command line that it is a command of
  CommandText describe() const;
  std::string help() const;

 private:
  CLI::App* app_;
};

class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& description, const std::string& version,
              const std::string& footer);
  ~CommandLine();

  Command root() const;

  // An exit status, where the command line is wrong or has asked for help or the version: that has been printed.
  std::optional<int> parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace pinion
