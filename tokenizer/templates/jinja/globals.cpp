// Functions that templates call by name: Jinja's own, and those that transformers adds.
#include <array>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <utility>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/interpreter.h"
#include "tokenizer/templates/jinja/operators.h"

namespace pinion::jinja {
namespace {

struct Range : Object {
  Range(int64_t first, int64_t last, int64_t by) : start(first), stop(last), step(by) {
    int64_t way = 0;
    const auto [low, high] = step > 0 ? std::pair(start, stop) : std::pair(stop, start);
    if (__builtin_sub_overflow(high, low, &way) || step == std::numeric_limits<int64_t>::min()) fail_overflow();
    count = way > 0 ? (way - 1) / std::abs(step) + 1 : 0;
  }
  std::string type_name() const override { return "range"; }
  std::string repr() const override {
    const std::string more = step == 1 ? "" : ", " + std::to_string(step);
    return "range(" + std::to_string(start) + ", " + std::to_string(stop) + more + ")";
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

Value range(Interpreter&, const Slots& a) {
  constexpr int64_t kMost = 100000;  // the sandbox's
  const int64_t first = need_integer(a[0]), step = a.integer(2, 1);
  const int64_t start = a.has(1) ? first : 0, stop = a.has(1) ? need_integer(a[1]) : first;
  if (step == 0) fail("range() arg 3 must not be zero");
  const auto made = std::make_shared<Range>(start, stop, step);
  if (made->count > kMost) fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  return ObjectPointer(made);
}

// What dict(...) makes of its arguments.
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
      const Items both = to_items(item);
      if (both.size() != 2) fail("dictionary update sequence needs pairs");
      set(&pairs, both[0], both[1]);
    }
  }
  for (const auto& [name, value] : a.rest.named) set(&pairs, name, value);
  return pairs;
}

Value mapping(Interpreter&, const Slots& a) { return Value::mapping(pairs_of(a)); }

Value name_space(Interpreter&, const Slots& a) {
  Pairs pairs = pairs_of(a);
  for (const Pair& pair : pairs) {
    if (pair.key.is_text() && pair.key.text()->starts_with('_')) fail("a namespace's names cannot begin with _");
  }
  return ObjectPointer(std::make_shared<Namespace>(std::move(pairs)));
}

// Gives its items in turn.
struct Cycler : Object, std::enable_shared_from_this<Cycler> {
  explicit Cycler(Items all) : items(std::move(all)) {}
  std::string type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(const std::string& name) override;

  Items items;
  size_t at = 0;
};

Cycler& cycler_of(const Slots& a) { return static_cast<Cycler&>(*a[0].object()); }

Value next_of(Interpreter&, const Slots& a) {
  Cycler& cycler = cycler_of(a);
  const size_t at = cycler.at;
  cycler.at = (at + 1) % cycler.items.size();
  return cycler.items[at];
}

Value reset(Interpreter&, const Slots& a) {
  cycler_of(a).at = 0;
  return {};
}

constexpr Builtin kOfCyclers[] = {{"next", "/ self", next_of}, {"reset", "/ self", reset}};

std::optional<Value> Cycler::attribute(const std::string& name) {
  if (name == "current") return items[at];
  const Builtin* method = find(kOfCyclers, name);
  return method ? std::optional(bound(*method, ObjectPointer(shared_from_this()))) : std::nullopt;
}

Value cycler(Interpreter&, const Slots& a) {
  if (a.rest.positional.empty()) fail("at least one item has to be provided");
  return ObjectPointer(std::make_shared<Cycler>(a.rest.positional));
}

// Nothing the first time it is called, then a separator.
struct Joiner : Object {
  explicit Joiner(Value text) : separator(std::move(text)) {}
  std::string type_name() const override { return "Joiner"; }
  bool is_callable() const override { return true; }
  Value call(Interpreter&, const Arguments&) override {
    return std::exchange(was_called, true) ? separator : Value("");
  }

  Value separator;
  bool was_called = false;
};

Value joiner(Interpreter&, const Slots& a) { return ObjectPointer(std::make_shared<Joiner>(a.get(0, ", "))); }

Value raise_exception(Interpreter&, const Slots& a) { fail(to_text(a[0])); }

Value strftime_now(Interpreter&, const Slots& a) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 1024> text{};
  return std::string(text.data(), std::strftime(text.data(), text.size(), need_text(a[0]).c_str(), &local));
}

constexpr Builtin kFunctions[] = {
    {"range", "/ start | stop step", range},
    {"dict", "/ *", mapping},
    {"namespace", "/ *", name_space},
    {"cycler", "/ *", cycler},
    {"joiner", "| sep", joiner},
    {"raise_exception", "message", raise_exception},
    {"strftime_now", "format", strftime_now},
};

}  // namespace

std::span<const Builtin> global_functions() { return kFunctions; }

}  // namespace pinion::jinja
