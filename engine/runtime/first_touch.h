// NUMA first touch: a page lies on the node of the thread that first writes to it.
#pragma once

#include <cstddef>

#include "engine/model/model.h"
#include "engine/team/team.h"

namespace pinion {

// Each worker writes one zero into every page of `arena` that holds panels of its own tasks, so that weights lie near
// the core that reads them. The model's matrices are placed in `arena`, which is all zeros. A page that several workers
// or matrices share goes to whoever comes first. Leaves the caller's thread unpinned.
void touch_first(Team& team, const Model& model, std::byte* arena);

}  // namespace pinion
