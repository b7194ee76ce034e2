#include "apps/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/cli/console.h"
#include "kernels/base/text.h"
#include "loader/files/hints.h"
#include "loader/files/json.h"

namespace pinion {
namespace {

constexpr std::string_view kExample = "Example: ";

// "-m,--model DIR": the names, and the placeholder of the value.
std::pair<std::string, std::string> parts_of(const std::string& spelling) {
  const size_t blank = std::min(spelling.find(' '), spelling.size());
  return {spelling.substr(0, blank), spelling.substr(std::min(blank + 1, spelling.size()))};
}

// Value names such as F and F.json mean files.
const char* kind_of(const std::string& value, bool has_choices) {
  if (value.empty()) return "flag";
  if (has_choices) return "choice";
  if (value == "DIR") return "folder";
  return value == "F" || value.find('.') != std::string::npos ? "file" : "other";
}

// The help of an option in help.json: the command's own, or that of several commands.
std::string help_of(const CLI::App& command, const std::string& spelling) {
  static const OrderedJson kNone = OrderedJson::object();
  const OrderedJson& commands = help_table("commands");
  const auto row = commands.find(command.get_name());
  const OrderedJson& own = row != commands.end() && row->contains("options") ? (*row)["options"] : kNone;
  return own.value(spelling, help_table("options").value(spelling, ""));
}

OrderedJson describe_option(const CLI::Option& option) {
  std::vector<std::string> names, choices;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  const std::string type = option.get_type_name();  // "MODE:{none,w8a8,w4a8}"
  const size_t colon = type.find(':');
  const std::string value = option.get_items_expected_max() > 0 ? type.substr(0, colon) : "";
  if (colon != std::string::npos) {
    const auto list = std::string_view(type).substr(colon + 2, type.size() - colon - 3);
    for (const std::string_view choice : split(list, ',')) choices.emplace_back(choice);
  }
  return {{"names", names},
          {"value", value},
          {"kind", kind_of(value, !choices.empty())},
          {"choices", choices},
          {"help", option.get_description()},
          {"default", option.get_default_str()},
          {"repeatable",
           option.get_items_expected_max() > 1 || option.get_multi_option_policy() == CLI::MultiOptionPolicy::Join}};
}

// CLI11 reports counts: "--seed: At Most 1 required but received 2", "--seed: 1 required N missing".
std::string reworded(std::string text) {
  if (const size_t at = text.find("At Most 1 required"); at != text.npos) return text.substr(0, at) + "given twice";
  constexpr std::string_view kConvert = "Could not convert: ", kHas = " = ";
  if (const size_t has = text.find(kHas); text.starts_with(kConvert) && has != text.npos) {
    return text.substr(kConvert.size(), has - kConvert.size()) + ": want a whole number, have " +
           text.substr(has + kHas.size());
  }
  constexpr std::string_view kNone = "1 required ", kMissing = " missing";
  const size_t at = text.find(kNone);
  if (at == text.npos || !text.ends_with(kMissing)) return text;
  return text.replace(at, kNone.size(), "wants ").erase(text.size() - kMissing.size());
}

// A plainer message than CLI11's for unknown words and missing commands; empty: use CLI11's.
std::string plain_message(CLI::App* app) {
  while (app->remaining().empty() && !app->get_subcommands().empty()) app = app->get_subcommands().front();
  const std::vector<std::string> unknown = app->remaining();
  const std::string& command = app->get_name();
  const std::vector<std::string> commands = Command(app).command_names();
  if (unknown.empty())
    return commands.empty() || !app->get_parent() ? "" : command + " wants a command: " + joined(commands);
  const std::string word = unknown.front().substr(0, unknown.front().find('='));
  const bool is_option = word.starts_with('-');
  if (is_option && !app->get_parent()) return "options follow a command: pinion COMMAND " + word;
  if (is_option) return command + " has no option " + word + did_you_mean(word, Command(app).option_names());
  if (!commands.empty()) return command + " has no command " + word + did_you_mean(word, commands);
  return "\"" + word + "\" belongs to no option: quote text with spaces, and give a model's folder with --model";
}

}  // namespace

const OrderedJson& help_table(const char* name) {
  static const OrderedJson kTables = OrderedJson::parse(help_file_text());
  return kTables[name];
}

Option Option::required(bool is_required) const { return Option(option_->required(is_required)); }

Option Option::check(const std::function<std::string(const std::string& text)>& complaint) const {
  return Option(option_->check(CLI::Validator([complaint](std::string& text) { return complaint(text); }, "")));
}

Option Option::replace(const std::function<std::string(const std::string& text)>& meaning) const {
  const auto replace_text = [meaning](std::string& text) {
    text = meaning(text);
    return std::string();
  };
  return Option(option_->transform(CLI::Validator(replace_text, "")));
}

Option Option::range(double min, double max) const {
  return check([min, max](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && value >= min && value <= max) return {};
    std::ostringstream message;
    message.precision(16);
    message << "want a number from " << min << " to " << max << ", have " << text;
    return message.str();
  });
}

Option Option::whole() const {
  return check([](const std::string& text) {
    const bool is_whole = !text.empty() && text.find_first_not_of("+-0123456789") == std::string::npos;
    return is_whole ? std::string() : "want a whole number, have " + text;
  });
}

Option Option::one_of(const std::vector<std::string>& values) const {
  return Option(option_->check(CLI::IsMember(values)));
}

Option Option::not_empty(const std::string& complaint) const {
  return check([complaint](const std::string& text) { return text.empty() ? complaint : ""; });
}

Option Option::excludes(const Option& other) const { return Option(option_->excludes(other.option_)); }

Option Option::list() const { return Option(option_->delimiter(',')); }
Option Option::several() const { return Option(option_->allow_extra_args(true)); }
Option Option::joined(char separator) const { return Option(option_->join(separator)); }
Option Option::describe(const std::string& help) const { return Option(option_->description(help)); }
Option Option::hidden() const { return Option(option_->group("")); }

template <class T>
Option Command::add_option(const std::string& spelling, T& value) const {
  const auto [names, placeholder] = parts_of(spelling);
  CLI::Option* option =
      app_->add_option(names, value, help_of(*app_, spelling))->type_name(placeholder)->allow_extra_args(false);
  if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    if (value != T{}) option->capture_default_str();
  }
  return Option(option);
}

template Option Command::add_option(const std::string&, std::string&) const;
template Option Command::add_option(const std::string&, int32_t&) const;
template Option Command::add_option(const std::string&, int64_t&) const;
template Option Command::add_option(const std::string&, double&) const;
template Option Command::add_option(const std::string&, std::optional<std::string>&) const;
template Option Command::add_option(const std::string&, std::optional<double>&) const;
template Option Command::add_option(const std::string&, std::optional<uint64_t>&) const;
template Option Command::add_option(const std::string&, std::vector<std::string>&) const;
template Option Command::add_option(const std::string&, std::vector<int32_t>&) const;
template Option Command::add_option(const std::string&, std::vector<int64_t>&) const;

Option Command::add_choice(const std::string& spelling, std::span<const std::string_view> values,
                           const std::function<void(size_t i)>& chosen) const {
  const std::vector<std::string> names(values.begin(), values.end());
  const auto choose = [names, chosen](const auto& text) { chosen(std::ranges::find(names, text) - names.begin()); };
  const auto [option, placeholder] = parts_of(spelling);
  return Option(
             app_->add_option_function<std::string>(option, choose, help_of(*app_, spelling))->type_name(placeholder))
      .one_of(names);
}

Option Command::add_flag(const std::string& name, bool& value) const {
  return Option(app_->add_flag(name, value, help_of(*app_, name)));
}

Option Command::find(const std::string& name) const { return Option(app_->get_option(name)); }

Command Command::add_command(const std::string& name) const {
  const OrderedJson& row = help_table("commands")[name];
  CLI::App* command = app_->add_subcommand(name, row["help"]);
  command->footer(std::string(kExample) + row["example"].get<std::string>());
  return Command(command);
}

void Command::require_command() const { app_->require_subcommand(1); }

bool Command::is_given() const { return app_->parsed(); }

void Command::when_parsed(const std::function<void()>& f) const { app_->parse_complete_callback(f); }

std::vector<std::string> Command::command_names() const {
  std::vector<std::string> names;
  for (const CLI::App* command : app_->get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> Command::option_names() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

Command Command::root() const {
  CLI::App* app = app_;
  while (app->get_parent()) app = app->get_parent();
  return Command(app);
}

OrderedJson Command::describe(const std::string& path) const {
  std::string example = app_->get_footer();
  if (example.starts_with(kExample)) example.erase(0, kExample.size());
  OrderedJson nodes = OrderedJson::array(), options = OrderedJson::array(), commands = OrderedJson::array();
  for (const CLI::Option* option : app_->get_options()) {
    if (!option->get_group().empty()) options.push_back(describe_option(*option));
  }
  nodes.push_back({{"path", path}, {"help", app_->get_description()}, {"example", example}, {"options", options}});
  for (CLI::App* command : app_->get_subcommands({})) {
    const std::string& name = command->get_name();
    commands.push_back({{"name", name}, {"help", command->get_description()}});
    for (const OrderedJson& node : Command(command).describe(path.empty() ? name : path + " " + name)) {
      nodes.push_back(node);
    }
  }
  nodes[0]["commands"] = std::move(commands);
  return nodes;
}

std::string Command::help() const { return app_->help(); }

CommandLine::CommandLine(const std::string& program, const std::string& description, const std::string& version,
                         const std::string& footer)
    : app_(std::make_unique<CLI::App>(description, program)) {
  // main() reports a missing command. If CLI11 did, it would call an unknown command a missing one.
  app_->require_subcommand(0, 1);
  app_->footer(footer);
  app_->set_version_flag("--version", version);
}

CommandLine::~CommandLine() = default;

Command CommandLine::root() const { return Command(app_.get()); }

std::optional<int> CommandLine::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& help) {
    std::ostringstream text;
    const int status = app_->exit(help, text, text);
    print(text.str());
    return status;
  } catch (const CLI::ParseError& usage) {
    const std::string message = plain_message(app_.get());
    return fail_usage(message.empty() ? reworded(usage.what()) : message);
  }
  return {};
}

}  // namespace pinion
