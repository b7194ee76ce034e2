#include "apps/library/interface.h"

#include <array>

#include "apps/model/build.h"
#include "engine/team/team.h"

namespace pinion {
namespace {

thread_local std::array<char, 2048> last_text = {};

bool is_continuation_byte(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

pinion_status failed(pinion_status status, std::string_view text) noexcept {
  size_t bytes = std::min(text.size(), last_text.size() - 1);
  while (bytes > 0 && bytes < text.size() && is_continuation_byte(text[bytes])) --bytes;
  std::ranges::copy(text.substr(0, bytes), last_text.begin());
  last_text[bytes] = '\0';
  return status;
}

PassLock::PassLock(PassMutex& passes) : passes_(passes) {
  if (passes.owner.load() == std::this_thread::get_id()) return;
  lock_ = std::unique_lock(passes.mutex);
  passes.owner = std::this_thread::get_id();
  has_affinity_ = sched_getaffinity(0, sizeof affinity_, &affinity_) == 0;
}

PassLock::~PassLock() {
  if (!is_held()) return;
  Team::unpin_caller();  // updates the team's record of the thread, too
  if (has_affinity_) sched_setaffinity(0, sizeof affinity_, &affinity_);
  passes_.owner = std::thread::id();
}

}  // namespace pinion

const char* pinion_error_text() { return pinion::last_text.data(); }

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
