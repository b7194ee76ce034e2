#include <cstdlib>
#include <new>
#include <string>

#include "apps/library/pinion.h"
#include "apps/model/build.h"

uint32_t pinion_api_version() { return PINION_API_VERSION; }

const char* pinion_version() { return PINION_VERSION; }

const char* pinion_build() {
  try {
    static const std::string text = pinion::build_text();
    return text.c_str();
  } catch (const std::bad_alloc&) {
    return "pinion " PINION_VERSION;
  }
}

void pinion_free(void* memory) { std::free(memory); }
