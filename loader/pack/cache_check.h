// Damage to the weight cache, by a disk or memory: detected with the seal, repaired from the checkpoint.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/workers.h"
#include "loader/pack/pack_cache.h"

namespace pinion {

// True if a segment differs from its hash.
bool is_segment_damaged(const PackCache& cache, const MappedFile& file, int64_t segment);

// The damaged segments, ascending. Reads all packed weights, as fast as the workers can.
std::vector<int64_t> damaged_segments(const Workers& workers, const PackCache& cache, const MappedFile& file);

// Memory that repair_segments takes.
int64_t repair_bytes(std::span<const PackJob> jobs);

// Packs the matrices in these segments again and overwrites the segments in place, so that every process that maps the
// file sees the right bytes. The jobs' `out` point to freed memory afterwards. On an error the file must not be used.
Error repair_segments(const Workers& workers, std::span<const PackJob> jobs, const PackCache& cache,
                      const MappedFile& file, std::span<const int64_t> segments);

// Removes the file, unless another file has its name by now.
void remove_damaged(const PackCache& cache, const MappedFile& file);

// Renews the seal, so that no further check is needed until the next boot or the next write into the file. No effect if
// the file is read-only or another file has its name by now.
void mark_checked(const PackCache& cache, const MappedFile& file);
bool was_checked(const PackCache& cache, const MappedFile& file);

}  // namespace pinion
