// Damage to the weight cache (a disk's, a memory's): noticed by the seal, undone from the checkpoint.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/workers.h"
#include "loader/pack/pack_cache.h"

namespace pinion {

// Whether a block differs from its hash.
bool is_damaged(const PackCache& cache, const MappedFile& file, int64_t block);

// The blocks that do, ascending. Reads all of the mapped weights, as fast as the workers can.
std::vector<int64_t> damaged_blocks(const Workers& workers, const PackCache& cache, const MappedFile& file);

// Packs the matrices that lie in these blocks anew and writes the blocks where they lie, so that every process that
// maps the file has the right bytes. The jobs' `out` are left without memory. It takes repair_bytes of memory. An
// error: the file is not to be used.
int64_t repair_bytes(std::span<const PackJob> jobs);
Error repair_blocks(const Workers& workers, std::span<const PackJob> jobs, const PackCache& cache,
                    const MappedFile& file, std::span<const int64_t> blocks);

// Removes the file, unless another has its name by now.
void remove_damaged(const PackCache& cache, const MappedFile& file);

// Renews the seal: until the machine is started again, or somebody writes into the file, nobody needs to check. In vain
// where the file is read-only, or another has its name by now.
void note_checked(const PackCache& cache, const MappedFile& file);
bool was_checked(const PackCache& cache, const MappedFile& file);

}  // namespace pinion
