// Errors on their way to C: a code, and the text of this thread's last failure. No exception gets past guarded().
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "apps/library/pinion.h"
#include "kernels/base/error.h"

namespace pinion {

// Takes no memory: a text that is too long is cut.
pinion_status failed(pinion_status status, std::string_view text) noexcept;

inline pinion_status failed(pinion_status status, const Error& e) { return failed(status, e.message()); }

template <class F>
pinion_status guarded(const F& f) noexcept {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return failed(PINION_ERROR_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return failed(PINION_ERROR_INTERNAL, e.what());
  } catch (...) {
    return failed(PINION_ERROR_INTERNAL, "an exception of unknown type");
  }
}

inline pinion_status missing(const char* argument) { return failed(PINION_ERROR_ARGUMENT, error("NULL", argument)); }

}  // namespace pinion
