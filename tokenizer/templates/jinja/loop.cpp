// See loop.h.
#include "tokenizer/templates/jinja/loop.h"

#include <utility>

#include "tokenizer/templates/jinja/builtin.h"

namespace pinion::jinja {

Loop::Loop(const Statement& statement, ScopePointer scope, Next next, std::optional<int64_t> length, int64_t depth)
    : statement_(statement),
      scope_(std::move(scope)),
      next_(std::make_shared<const Next>(std::move(next))),
      length_(length),
      depth_(depth) {}

bool Loop::peek() {
  Value item;
  const auto next = next_;
  if (!after_ && (*next)(&item)) after_ = std::move(item);
  return after_.has_value();
}

bool Loop::advance(Value* item) {
  if (!peek()) return false;
  ++index_;
  before_ = std::exchange(current_, std::exchange(after_, {}));
  *item = *current_;
  return true;
}

std::optional<int64_t> Loop::length() {
  if (length_) return length_;
  Items rest;
  if (after_) rest.push_back(*after_);
  const auto next = next_;
  for (Value item; (*next)(&item);) rest.push_back(item);
  length_ = index_ + 1 + static_cast<int64_t>(rest.size());
  after_.reset();
  next_ = std::make_shared<const Next>(jinja::iterate(Value::list(std::move(rest))));
  return length_;
}

bool Loop::has_changed(const Value& now) {
  if (last_seen_ && equal(*last_seen_, now)) return false;
  last_seen_ = now;
  return true;
}

Value Loop::neighbour(bool is_there, const std::optional<Value>& value, const char* which) const {
  return is_there ? *value : Value::undefined("there is no " + std::string(which) + " item");
}

namespace {

Loop& loop_of(const Slots& a) { return static_cast<Loop&>(*a[0].object()); }

Value cycled(Interpreter&, const Slots& a) {
  const Items& choices = a.rest.positional;
  if (choices.empty()) fail("no items for cycling given");
  return choices[static_cast<size_t>(loop_of(a).index()) % choices.size()];
}

Value changed(Interpreter&, const Slots& a) { return loop_of(a).has_changed(Value::tuple(a.rest.positional)); }

constexpr Builtin kMethods[] = {{"cycle", "/ self *", cycled}, {"changed", "/ self *", changed}};

}  // namespace

std::optional<Value> Loop::attribute(const std::string& name) {
  if (name == "index") return index_ + 1;
  if (name == "index0") return index_;
  if (name == "first") return index_ == 0;
  if (name == "last") return !peek();
  if (name == "length") return *length();
  if (name == "revindex") return *length() - index_;
  if (name == "revindex0") return *length() - index_ - 1;
  if (name == "depth") return depth_ + 1;
  if (name == "depth0") return depth_;
  if (name == "previtem") return neighbour(index_ > 0, before_, "previous");
  if (name == "nextitem") return neighbour(peek(), after_, "next");
  if (const Builtin* method = find(kMethods, name)) return bound(*method, ObjectPointer(shared_from_this()));
  return {};
}

Value Loop::call(Interpreter& interpreter, const Arguments& arguments) {
  if (!statement_.is_recursive) fail("The loop must have the 'recursive' marker to be called recursively.");
  if (arguments.positional.size() != 1) fail("loop() takes one argument");
  return interpreter.render_loop(statement_, scope_, arguments.positional[0], depth_ + 1);
}

}  // namespace pinion::jinja
