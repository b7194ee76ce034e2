// Which cores share SME units: those of a cluster often do, and wait for one another there.
#pragma once

#include <cstdint>
#include <string_view>

namespace pinion {

// Cores of one group share `units` units.
struct SmeShare {
  int64_t group = 0;
  int32_t units = 1;

  bool operator==(const SmeShare&) const = default;
};

// A CPU's, by its register SMIDR_EL1 as Linux writes it ("0x0000000041000001"); cluster: of the CPU's core, which
// counts where there is no such register, or a virtual machine's that names no implementer.
// Fields (Arm Architecture Reference Manual, DDI 0487): SH and Affinity say whether units are shared, Affinity2 and
// Affinity by whom, and NSMC how many there are beside the first.
SmeShare sme_share(std::string_view smidr, int32_t cpu, int32_t cluster);

}  // namespace pinion
