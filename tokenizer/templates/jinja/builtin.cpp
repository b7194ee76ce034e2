// See builtin.h.
#include "tokenizer/templates/jinja/builtin.h"

#include <algorithm>

namespace pinion::jinja {
namespace {

struct Parameters {
  std::vector<std::string_view> names;
  size_t required = 0;
  bool by_position_only = false, takes_more = false;
};

Parameters read_parameters(std::string_view text) {
  Parameters result;
  bool is_optional = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word == "/") {
      result.by_position_only = true;
    } else if (word == "*") {
      result.takes_more = true;
    } else if (word == "|") {
      is_optional = true;
    } else {
      result.names.push_back(word);
      if (!is_optional) ++result.required;
    }
  }
  return result;
}

Slots bind(const Builtin& builtin, Arguments arguments) {
  const Parameters parameters = read_parameters(builtin.parameters);
  const std::string name(builtin.name);
  const size_t count = parameters.names.size();
  std::vector<std::optional<Value>> values(count);
  Arguments rest;
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < count) {
      values[i] = std::move(arguments.positional[i]);
    } else if (parameters.takes_more) {
      rest.positional.push_back(std::move(arguments.positional[i]));
    } else {
      fail(name + "() takes at most " + std::to_string(count) + " arguments, " +
           std::to_string(arguments.positional.size()) + " given");
    }
  }
  for (auto& [key, value] : arguments.named) {
    const auto found = std::ranges::find(parameters.names, key);
    if (!parameters.by_position_only && found != parameters.names.end()) {
      auto& slot = values[static_cast<size_t>(found - parameters.names.begin())];
      if (slot) fail(name + "() got multiple values for argument '" + key + "'");
      slot = std::move(value);
    } else if (parameters.takes_more) {
      rest.named.emplace_back(key, std::move(value));
    } else {
      fail(name + "() got an unexpected keyword argument '" + key + "'");
    }
  }
  for (size_t i = 0; i < parameters.required; ++i) {
    if (!values[i]) fail(name + "() misses an argument: '" + std::string(parameters.names[i]) + "'");
  }
  return {std::move(values), std::move(rest)};
}

struct Function : Object {
  Function(const Builtin& row, std::optional<Value> value) : builtin(row), self(std::move(value)) {}
  std::string type_name() const override { return "function"; }
  std::string repr() const override { return "<function " + std::string(builtin.name) + ">"; }
  bool is_callable() const override { return true; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    Arguments all = arguments;
    if (self) all.positional.insert(all.positional.begin(), *self);
    return run(interpreter, builtin, std::move(all));
  }

  const Builtin& builtin;
  std::optional<Value> self;
};

}  // namespace

Value run(Interpreter& interpreter, const Builtin& builtin, Arguments arguments) {
  return builtin.run(interpreter, bind(builtin, std::move(arguments)));
}

const Builtin* find(std::span<const Builtin> rows, std::string_view name) {
  const auto found = std::ranges::find(rows, name, &Builtin::name);
  return found == rows.end() ? nullptr : &*found;
}

const Builtin* find_filter(std::string_view name) {
  for (const auto& table :
       {text_filters(), number_filters(), list_filters(), choice_filters(), layout_filters(), markup_filters()}) {
    if (const Builtin* filter = find(table, name)) return filter;
  }
  return nullptr;
}

Value function(const Builtin& builtin) { return ObjectPointer(std::make_shared<Function>(builtin, std::nullopt)); }
Value bound(const Builtin& builtin, Value self) {
  return ObjectPointer(std::make_shared<Function>(builtin, std::move(self)));
}

}  // namespace pinion::jinja
