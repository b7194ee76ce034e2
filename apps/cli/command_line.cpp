#include "apps/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "apps/cli/console.h"

namespace pinion {

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::check(const std::function<std::string(const std::string& text)>& complaint) {
  option_->check(CLI::Validator([complaint](std::string& text) { return complaint(text); }, ""));
  return *this;
}

Option& Option::replace(const std::function<std::string(const std::string& text)>& meaning) {
  option_->transform(CLI::Validator(
      [meaning](std::string& text) {
        text = meaning(text);
        return std::string();
      },
      ""));
  return *this;
}

Option& Option::range(double least, double most) {
  return check([least, most](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && value >= least && value <= most) return {};
    std::ostringstream message;
    message.precision(16);
    message << "want a number from " << least << " to " << most << ", have " << text;
    return message.str();
  });
}

Option& Option::whole() {
  return check([](const std::string& text) {
    const bool is_whole = !text.empty() && text.find_first_not_of("+-0123456789") == std::string::npos;
    return is_whole ? std::string() : "want a whole number, have " + text;
  });
}

Option& Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::repeatable() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::list() {
  option_->delimiter(',');
  return repeatable();
}

Option& Option::joined(char separator) {
  option_->join(separator);
  return *this;
}

Option& Option::describe(const std::string& help) {
  option_->description(help);
  return *this;
}

Option& Option::hidden() {
  option_->group("");
  return *this;
}

template <class T>
Option Command::add_option(const std::string& name, T& value, const std::string& help) const {
  return Option(app_->add_option(name, value, help));
}

template Option Command::add_option(const std::string&, std::string&, const std::string&) const;
template Option Command::add_option(const std::string&, int32_t&, const std::string&) const;
template Option Command::add_option(const std::string&, int64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, double&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<std::string>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<double>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<uint64_t>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::string>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<int32_t>&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<int64_t>&, const std::string&) const;

Option Command::add_choice(const std::string& name, std::span<const std::string_view> values,
                           const std::function<void(size_t i)>& chosen, const std::string& help) const {
  const std::vector<std::string> names(values.begin(), values.end());
  const auto choose = [names, chosen](const std::string& text) {
    chosen(static_cast<size_t>(std::ranges::find(names, text) - names.begin()));
  };
  return Option(app_->add_option_function<std::string>(name, choose, help)).one_of(names);
}

Option Command::add_flag(const std::string& name, bool& value, const std::string& help) const {
  return Option(app_->add_flag(name, value, help));
}

Option Command::find(const std::string& name) const { return Option(app_->get_option(name)); }

Command Command::add_command(const std::string& name, const std::string& description,
                             const std::string& example) const {
  CLI::App* command = app_->add_subcommand(name, description);
  command->footer("Example: " + example);
  return Command(command);
}

void Command::require_command() const { app_->require_subcommand(1); }

bool Command::is_given() const { return app_->parsed(); }

void Command::when_parsed(const std::function<void()>& f) const { app_->parse_complete_callback(f); }

CommandLine::CommandLine(const std::string& program, const std::string& description, const std::string& version,
                         const std::string& footer)
    : app_(std::make_unique<CLI::App>(description, program)) {
  app_->require_subcommand(0,
                           1);  // the caller notices that there is none: so an unknown one is named, not called missing
  app_->footer(footer);
  app_->set_version_flag("--version", version);
}

CommandLine::~CommandLine() = default;

Command CommandLine::root() const { return Command(app_.get()); }

std::optional<int> CommandLine::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app_->exit(help);
  } catch (const CLI::ParseError& usage) {
    return fail_usage(usage.what());
  }
  return {};
}

}  // namespace pinion
