// The tensors of a checkpoint that a model consists of.
#pragma once

#include <vector>

#include "engine/model/model.h"
#include "loader/pack/pack.h"

namespace pinion {

// Reads everything that `model`, whose configuration and checkpoint are there, needs of the checkpoint: small vectors
// at once, matrices as jobs that pack them. Errors name the tensor: missing, of another shape, holding a NaN, or one
// that nothing asked for.
Error bind_tensors(const LoadOptions& options, Model* model, std::vector<PackJob>* jobs);

}  // namespace pinion
