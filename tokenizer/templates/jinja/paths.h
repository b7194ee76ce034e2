// "a.b.0": what filters with an attribute look up in an item.
#pragma once

#include <optional>

#include "tokenizer/templates/jinja/value.h"

namespace pinion::jinja {

class Path {
 public:
  // A text with dots, an index, or none for the item itself.
  explicit Path(const Value& attribute);
  // `absent`, unless none, stands for each part that is undefined.
  Value of(Value item, const Value& absent = {}) const;

 private:
  Items parts_;
};

// Texts in lower case, so that sorting minds no case.
Value without_case(const Value& value);

}  // namespace pinion::jinja
