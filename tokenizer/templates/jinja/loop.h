// The variable `loop` of a for loop.
#pragma once

#include <optional>
#include <string>

#include "tokenizer/templates/jinja/interpreter.h"

namespace pinion::jinja {

class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  // `statement` and what its parts refer to outlive the loop. Without a length it is counted when it is asked for.
  Loop(const Statement& statement, ScopePointer scope, Next next, std::optional<int64_t> length, int64_t depth);

  bool advance(Value* item);

  std::string type_name() const override { return "LoopContext"; }
  std::optional<Value> attribute(const std::string& name) override;
  std::optional<int64_t> length() override;
  bool is_callable() const override { return true; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override;  // of a recursive loop

  bool has_changed(const Value& now);
  int64_t index() const { return index_; }

 private:
  bool peek();
  Value neighbour(bool is_there, const std::optional<Value>& value, const char* which) const;

  const Statement& statement_;
  ScopePointer scope_;
  std::shared_ptr<const Next> next_;  // which may be replaced while it runs
  std::optional<int64_t> length_;
  int64_t depth_, index_ = -1;
  std::optional<Value> before_, current_, after_, last_seen_;
};

}  // namespace pinion::jinja
