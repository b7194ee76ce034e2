#include "apps/model/build.h"

#include "kernels/kernels.h"

namespace pinion {

std::string compiler_name() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

std::string build_commit() { return PINION_COMMIT; }

std::string build_text() {
  std::string kernels;
  for (const Variant& variant : kernel_variants()) kernels += std::string(" ") + variant.name;
  return "pinion " PINION_VERSION "\ncommit " + build_commit() + ", " + compiler_name() + "\nkernels:" + kernels +
         "\nlibraries: " PINION_LIBRARIES;
}

}  // namespace pinion
