// Where memory belongs to nodes (sockets, or parts of one), a page lies on the node of the thread that first writes to
// it.
#pragma once

#include <cstddef>

#include "engine/model/model.h"
#include "engine/team/team.h"

namespace pinion {

// Writes a zero into every page of `arena`, which is all zeros, that one of the model's matrices, already placed there,
// has panels in: each worker into those of its own tasks. A page, 2 MB where the system gives huge ones, that several
// workers or matrices share lies near whoever comes first. The caller's thread is not pinned afterwards.
void touch_first(Team& team, const Model& model, std::byte* arena);

}  // namespace pinion
