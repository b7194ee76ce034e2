// What was said, kept beside the conversation for when the program must end in the middle of an answer.
#pragma once

#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "apps/cli/console.h"
#include "kernels/base/error.h"

namespace pinion {

class LastWords {
 public:
  void set(const OrderedJson& messages);  // all that was said; an answer begins
  void add(std::string_view text);        // to the answer

  // Writes it, as /save does, to a new file in the user's state folder. From any thread. Nothing was said: no path.
  Error save(std::string* path);

 private:
  std::mutex mutex_;
  OrderedJson messages_ = OrderedJson::array();
  std::string answer_;
};

}  // namespace pinion
