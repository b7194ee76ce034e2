#include "engine/team/sme_units.h"

#include <cstdlib>
#include <string>

namespace pinion {
namespace {

// Of a group's number: what it is made of.
enum Source : int64_t { kCluster, kCpu, kAffinity };
int64_t group_of(Source source, uint64_t number) {
  return static_cast<int64_t>(source) << 32 | static_cast<int64_t>(number & 0xffffffffu);
}

uint64_t field(uint64_t value, int first, int bits) { return value >> first & ((uint64_t{1} << bits) - 1); }

}  // namespace

SmeShare sme_share(std::string_view smidr, int32_t cpu, int32_t cluster) {
  const uint64_t value = std::strtoull(std::string(smidr).c_str(), nullptr, 16);
  const uint64_t implementer = field(value, 24, 8);
  if (implementer == 0) return {group_of(kCluster, static_cast<uint64_t>(cluster)), 1};
  constexpr uint64_t kByAffinity = 0, kShared = 3;  // of SH
  const uint64_t sharing = field(value, 13, 2), affinity = field(value, 32, 20) << 12 | field(value, 0, 12);
  const bool is_shared = sharing == kShared || (sharing == kByAffinity && affinity != 0);
  if (!is_shared) return {group_of(kCpu, static_cast<uint64_t>(cpu)), 1};
  return {group_of(kAffinity, affinity), static_cast<int32_t>(field(value, 56, 4)) + 1};
}

}  // namespace pinion
