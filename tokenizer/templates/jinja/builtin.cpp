// Binding of arguments, tests, objects, and global functions. See builtin.h.
#include "tokenizer/templates/jinja/builtin.h"

#include <array>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <utility>

#include "kernels/base/text.h"

namespace pinion::jinja {
namespace {

struct Parameters {
  std::vector<std::string_view> names;
  size_t required = 0;
  bool positional_only = false, takes_more = false;
};

Parameters read_parameters(std::string_view text) {
  Parameters result;
  bool is_optional = false;
  for (const std::string_view word : split(text, ' ')) {
    if (word == "/") {
      result.positional_only = true;
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

Slots bind(Interpreter& interpreter, const Builtin& builtin, Arguments arguments) {
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
    if (!parameters.positional_only && found != parameters.names.end()) {
      auto& slot = values[found - parameters.names.begin()];
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
  return {interpreter, std::move(values), std::move(rest)};
}

bool has_remainder(const Value& value, int64_t divisor, int64_t remainder) {
  return equal(binary("%", value, divisor), remainder);
}

constexpr Builtin kTests[] = {
    {"defined", "value", [](const Slots& a) -> Value { return !a[0].is_undefined(); }},
    {"undefined", "value", [](const Slots& a) -> Value { return a[0].is_undefined(); }},
    {"none", "value", [](const Slots& a) -> Value { return a[0].is_none(); }},
    {"boolean", "value", [](const Slots& a) -> Value { return a[0].is<bool>(); }},
    {"true", "value", [](const Slots& a) -> Value { return a[0].is<bool>() && a[0].get<bool>(); }},
    {"false", "value", [](const Slots& a) -> Value { return a[0].is<bool>() && !a[0].get<bool>(); }},
    {"integer", "value", [](const Slots& a) -> Value { return a[0].is<int64_t>(); }},
    {"float", "value", [](const Slots& a) -> Value { return a[0].is<double>(); }},
    {"number", "value", [](const Slots& a) -> Value { return a[0].number().has_value(); }},
    {"string", "value", [](const Slots& a) -> Value { return a[0].is_text(); }},
    {"mapping", "value", [](const Slots& a) -> Value { return a[0].is<Mapping>(); }},
    {"sequence", "value", [](const Slots& a) -> Value { return is_sequence(a[0]); }},
    {"iterable", "value", [](const Slots& a) -> Value { return is_iterable(a[0]); }},
    {"even", "value", [](const Slots& a) -> Value { return has_remainder(a[0], 2, 0); }},
    {"odd", "value", [](const Slots& a) -> Value { return has_remainder(a[0], 2, 1); }},
    {"divisibleby", "value num", [](const Slots& a) -> Value { return equal(binary("%", a[0], a[1]), int64_t{0}); }},
    {"in", "value seq", [](const Slots& a) -> Value { return is_true("in", a[0], a[1]); }},
};

constexpr std::pair<std::string_view, std::string_view> kComparisons[] = {
    {"eq", "=="}, {"equalto", "=="}, {"ne", "!="}, {"gt", ">"},       {"greaterthan", ">"},
    {"ge", ">="}, {"lt", "<"},       {"le", "<="}, {"lessthan", "<"},
};

Value make_range(const Slots& a) {
  constexpr int64_t kMaxCount = 100000;  // the sandbox's limit
  const int64_t first = require_integer(a[0]), step = a.integer(2, 1);
  const int64_t start = a.has(1) ? first : 0, stop = a.has(1) ? require_integer(a[1]) : first;
  if (step == 0) fail("range() arg 3 must not be zero");
  int64_t distance = 0;
  const auto [low, high] = step > 0 ? std::pair(start, stop) : std::pair(stop, start);
  if (__builtin_sub_overflow(high, low, &distance) || step == std::numeric_limits<int64_t>::min()) fail_overflow();
  const int64_t count = distance > 0 ? (distance - 1) / std::abs(step) + 1 : 0;
  if (count > kMaxCount) fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  Items items;
  for (int64_t i = 0; i < count; ++i) items.emplace_back(start + i * step);
  std::string text = std::to_string(start) + ", " + std::to_string(stop);
  if (step != 1) text += ", " + std::to_string(step);
  return Object{.type_name = "range", .text = text, .items = Value::list(std::move(items)), .is_sequence = true};
}

// The contents of dict(mapping or pairs, name=value, ...).
Pairs pairs_of(const Slots& a) {
  Pairs pairs;
  if (a.rest.positional.size() > 1) fail("dict expected at most 1 argument");
  for (const Value& given : a.rest.positional) {
    if (given.pairs()) {
      pairs = *given.pairs();
      continue;
    }
    const Next next = iterate(given);
    for (Value item; next(&item);) {
      const Items pair = to_items(item);
      if (pair.size() != 2) fail("dictionary update sequence needs pairs");
      set(&pairs, pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : a.rest.named) set(&pairs, name, value);
  return pairs;
}

Value make_namespace(const Slots& a) {
  Pairs pairs = pairs_of(a);
  for (const Pair& pair : pairs) {
    if (pair.key.is_text() && pair.key.text()->starts_with('_')) fail("a namespace's names cannot begin with _");
  }
  return Object{.type_name = "Namespace", .attributes = std::move(pairs)};
}

Value strftime_now(const Slots& a) {
  const char* fixed = std::getenv(kFixedTime);
  const std::time_t now = fixed ? std::strtoll(fixed, nullptr, 10) : std::time(nullptr);
  std::tm date{};
  fixed ? gmtime_r(&now, &date) : localtime_r(&now, &date);
  std::array<char, 1024> text{};
  return std::string(text.data(), std::strftime(text.data(), text.size(), require_text(a[0]).c_str(), &date));
}

constexpr Builtin kGlobalFunctions[] = {
    {"range", "/ start | stop step", make_range},
    {"dict", "/ *", [](const Slots& a) { return Value::mapping(pairs_of(a)); }},
    {"namespace", "/ *", make_namespace},
    {"raise_exception", "message", [](const Slots& a) -> Value { fail(to_text(a[0])); }},
    {"strftime_now", "format", strftime_now},
};

}  // namespace

Value run(Interpreter& interpreter, const Builtin& builtin, Arguments arguments) {
  return builtin.run(bind(interpreter, builtin, std::move(arguments)));
}

const Builtin* find(std::span<const Builtin> rows, std::string_view name) {
  const auto found = std::ranges::find(rows, name, &Builtin::name);
  return found == rows.end() ? nullptr : &*found;
}

Value function(const Builtin& builtin, std::optional<Value> self) {
  const auto call = [&builtin, self](Interpreter& interpreter, Arguments arguments) {
    if (self) arguments.positional.insert(arguments.positional.begin(), *self);
    return run(interpreter, builtin, std::move(arguments));
  };
  return Object{.type_name = "function", .text = std::string(builtin.name), .call = call};
}

bool apply_test(Interpreter& interpreter, const std::string& name, Arguments arguments) {
  if (const Builtin* test = find(kTests, name)) return truth(run(interpreter, *test, std::move(arguments)));
  for (const auto& [word, op] : kComparisons) {
    if (name != word && name != op) continue;
    if (arguments.positional.size() != 2 || !arguments.named.empty()) fail(name + "() takes one argument");
    return is_true(op, arguments.positional[0], arguments.positional[1]);
  }
  fail("no test named '" + name + "'");
}

std::span<const Builtin> global_functions() { return kGlobalFunctions; }

}  // namespace pinion::jinja
