// For C++: handles of pinion.h that close themselves.
#pragma once

#include <memory>

#include "apps/library/pinion.h"

namespace pinion {

template <auto close>
struct Closes {
  void operator()(auto* handle) const { close(handle); }
};
using OwnModel = std::unique_ptr<pinion_model, Closes<pinion_model_close>>;
using OwnSession = std::unique_ptr<pinion_session, Closes<pinion_session_close>>;
using OwnResult = std::unique_ptr<pinion_result, Closes<pinion_result_free>>;

}  // namespace pinion
