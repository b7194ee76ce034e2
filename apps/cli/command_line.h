// Options of a command line, over CLI11. Only command_line.cpp includes CLI11, which takes seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace pinion {

// One option, described further by chained calls: add_option(...).required().
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required(bool is_required = true) const;
  Option range(double min, double max) const;  // also refuses NaN and text that is not a number
  Option whole() const;                        // refuses 1.5
  Option not_empty(const std::string& complaint) const;
  Option one_of(const std::vector<std::string>& values) const;
  Option check(const std::function<std::string(const std::string& text)>& complaint) const;  // empty: the text is valid
  Option replace(const std::function<std::string(const std::string& text)>& meaning) const;  // replaces the text
  Option excludes(const Option& other) const;
  Option list() const;                  // a vector with one or several values per use: 1,2,3
  Option several() const;               // a vector with one or several words per use: 1 2 3
  Option joined(char separator) const;  // joins the values of repeated uses into one text
  Option describe(const std::string& help) const;
  Option hidden() const;  // omits it from --help

 private:
  CLI::Option* option_;
};

// A command or sub-command, owned by the command line.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // `spelling`: names and the value's placeholder, "-m,--model DIR". T: std::string, int32_t, int64_t, double;
  // std::optional of std::string, double, uint64_t; std::vector of std::string, int32_t, int64_t, with one value per
  // use. `value` must outlive the command line. It is unchanged if the option is absent: --help shows the default,
  // unless it is 0, empty, or a list. help.json has its help.
  template <class T>
  Option add_option(const std::string& spelling, T& value) const;
  template <class T>
  Option add_number(const std::string& spelling, T& value, double min, double max) const {
    return add_option(spelling, value).range(min, max);
  }
  template <class T>
  Option add_path(const std::string& spelling, T& value) const {
    return add_option(spelling, value).not_empty("want a name, have \"\"");
  }
  // One of several names; calls chosen(i) with the index of the given one, or sets an enumeration to it.
  Option add_choice(const std::string& spelling, std::span<const std::string_view> values,
                    const std::function<void(size_t i)>& chosen) const;
  template <class Enum>
    requires std::is_enum_v<Enum>
  Option add_choice(const std::string& spelling, std::span<const std::string_view> values, Enum& value) const {
    return add_choice(spelling, values, [&value](size_t i) { value = static_cast<Enum>(i); });
  }
  Option add_flag(const std::string& name, bool& value) const;
  Option find(const std::string& name) const;

  Command add_command(const std::string& name) const;  // described in help.json
  void require_command() const;                        // one of the sub-commands
  bool is_given() const;
  void when_parsed(const std::function<void()>& f) const;
  Command root() const;                            // the program
  std::vector<std::string> command_names() const;  // of its sub-commands
  std::vector<std::string> option_names() const;   // the long ones, without hidden options
  // The contents of --help as data: a list of the command, whose path is `path`, and all commands below it.
  // {"path", "name", "help", "example", "commands": [{"name", "help"}], "options": [{"names", "value", "kind",
  // "choices", "help", "default", "repeatable"}]}; kind: of the value for completion: flag, choice, folder, file, other
  nlohmann::ordered_json describe(const std::string& path = {}) const;
  std::string help() const;

 private:
  CLI::App* app_;
};

// apps/cli/help.json, compiled into the program: {"commands": {NAME: {"help", "example", "options": {SPELLING: help}}},
// "options": those of several commands, "foreign": {command of another program: the one that does it here}}.
std::string_view help_file_text();
const nlohmann::ordered_json& help_table(const char* name);

class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& description, const std::string& version,
              const std::string& footer);
  ~CommandLine();

  Command root() const;

  // Returns an exit status after an error, --help or --version, whose text is printed already.
  std::optional<int> parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace pinion
