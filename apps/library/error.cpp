#include "apps/library/error.h"

#include <algorithm>
#include <array>

namespace pinion {
namespace {

thread_local std::array<char, 2048> last_text = {};

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

}  // namespace

pinion_status failed(pinion_status status, std::string_view text) noexcept {
  size_t bytes = std::min(text.size(), last_text.size() - 1);
  while (bytes > 0 && bytes < text.size() && continues_character(text[bytes])) --bytes;
  std::ranges::copy(text.substr(0, bytes), last_text.begin());
  last_text[bytes] = '\0';
  return status;
}

}  // namespace pinion

const char* pinion_error_text() { return pinion::last_text.data(); }
