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

struct Function : Object {
  Function(const Builtin& row, std::optional<Value> value) : builtin(row), self(std::move(value)) {}
  std::string type_name() const override { return "function"; }
  std::string repr() const override { return "<function " + std::string(builtin.name) + ">"; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    Arguments all = arguments;
    if (self) all.positional.insert(all.positional.begin(), *self);
    return run(interpreter, builtin, std::move(all));
  }

  const Builtin& builtin;
  std::optional<Value> self;
};

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

struct Range : Object {
  Range(int64_t first, int64_t last, int64_t by) : start(first), stop(last), step(by) {
    int64_t distance = 0;
    const auto [low, high] = step > 0 ? std::pair(start, stop) : std::pair(stop, start);
    if (__builtin_sub_overflow(high, low, &distance) || step == std::numeric_limits<int64_t>::min()) fail_overflow();
    count = distance > 0 ? (distance - 1) / std::abs(step) + 1 : 0;
  }
  std::string type_name() const override { return "range"; }
  std::string repr() const override {
    const std::string by = step == 1 ? "" : ", " + std::to_string(step);
    return "range(" + std::to_string(start) + ", " + std::to_string(stop) + by + ")";
  }
  std::optional<int64_t> length() override { return count; }
  bool is_sequence() const override { return true; }
  std::optional<Value> item(int64_t index) override {
    if (index < 0) index += count;
    return index >= 0 && index < count ? std::optional<Value>(start + index * step) : std::nullopt;
  }
  bool equals(const Object& other) const override {
    const auto* range = dynamic_cast<const Range*>(&other);
    if (range == nullptr || count != range->count) return false;
    return count == 0 || (start == range->start && (count == 1 || step == range->step));
  }
  Next iterate() override {
    return
        [this, at = int64_t{0}](Value* out) mutable { return at < count ? (*out = start + at++ * step, true) : false; };
  }

  int64_t start, stop, step, count;
};

// Reads one item ahead for loop.last and loop.nextitem.
class ForLoop : public Loop, public std::enable_shared_from_this<ForLoop> {
 public:
  ForLoop(Next next, std::optional<int64_t> length)
      : next_(std::make_shared<const Next>(std::move(next))), length_(length) {}

  bool advance(Value* item) override {
    if (!peek()) return false;
    ++index_;
    previous_ = std::exchange(current_, std::exchange(following_, {}));
    *item = *current_;
    return true;
  }

  int64_t index() const { return index_; }
  std::string type_name() const override { return "LoopContext"; }

  std::optional<int64_t> length() override {
    if (length_) return length_;
    Items rest;
    if (following_) rest.push_back(*following_);
    const auto next = next_;
    for (Value item; (*next)(&item);) rest.push_back(item);
    length_ = index_ + 1 + std::ssize(rest);
    following_.reset();
    next_ = std::make_shared<const Next>(jinja::iterate(Value::list(std::move(rest))));
    return length_;
  }

  std::optional<Value> attribute(const std::string& name) override;

 private:
  bool peek() {
    Value item;
    const auto next = next_;
    if (!following_ && (*next)(&item)) following_ = std::move(item);
    return following_.has_value();
  }

  std::shared_ptr<const Next> next_;  // length() may replace it while it is being called
  std::optional<int64_t> length_;
  int64_t index_ = -1;
  std::optional<Value> previous_, current_, following_;
};

Value cycle(const Slots& a) {
  const Items& choices = a.rest.positional;
  if (choices.empty()) fail("no items for cycling given");
  return choices[static_cast<const ForLoop*>(a[0].object())->index() % choices.size()];
}

constexpr Builtin kCycle{"cycle", "/ self *", cycle};

std::optional<Value> ForLoop::attribute(const std::string& name) {
  if (name == "index") return index_ + 1;
  if (name == "index0") return index_;
  if (name == "first") return index_ == 0;
  if (name == "last") return !peek();
  if (name == "depth") return int64_t{1};  // recursive loops are not supported
  if (name == "depth0") return int64_t{0};
  if (name == "changed") fail("loop.changed is not supported");
  if (name == "length") return *length();
  if (name == "revindex") return *length() - index_;
  if (name == "revindex0") return *length() - index_ - 1;
  if (name == "previtem") return index_ > 0 ? *previous_ : Value::undefined("there is no previous item");
  if (name == "nextitem") return peek() ? *following_ : Value::undefined("there is no next item");
  if (name == "cycle") return function(kCycle, ObjectPtr(shared_from_this()));
  return {};
}

Value make_range(const Slots& a) {
  constexpr int64_t kMaxCount = 100000;  // the sandbox's limit
  const int64_t first = require_integer(a[0]), step = a.integer(2, 1);
  const int64_t start = a.has(1) ? first : 0, stop = a.has(1) ? require_integer(a[1]) : first;
  if (step == 0) fail("range() arg 3 must not be zero");
  const auto range = std::make_shared<Range>(start, stop, step);
  if (range->count > kMaxCount) fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  return ObjectPtr(range);
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
  return ObjectPtr(std::make_shared<Namespace>(std::move(pairs)));
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
  return ObjectPtr(std::make_shared<Function>(builtin, std::move(self)));
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

std::shared_ptr<Loop> make_loop(Next next, std::optional<int64_t> length) {
  return std::make_shared<ForLoop>(std::move(next), length);
}

std::optional<Value> Namespace::attribute(const std::string& name) {
  const Value* found = find(attributes, name);
  return found ? std::optional(*found) : std::nullopt;
}

std::span<const Builtin> global_functions() { return kGlobalFunctions; }

}  // namespace pinion::jinja
