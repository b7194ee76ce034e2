#include "loader/config/user_folders.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace pinion {
namespace {

std::string user_folder(const char* variable, const char* in_home) {
  // Relative paths are to be ignored, says the specification.
  const char* base = std::getenv(variable);
  if (base && base[0] == '/') return std::string(base) + "/pinion";
  const char* home = std::getenv("HOME");
  std::error_code code;
  if (home && home[0] == '/' && std::filesystem::is_directory(home, code)) return std::string(home) + in_home;
  return {};
}

}  // namespace

std::string default_cache_folder() { return user_folder("XDG_CACHE_HOME", "/.cache/pinion"); }

std::string default_config_folder() { return user_folder("XDG_CONFIG_HOME", "/.config/pinion"); }

}  // namespace pinion
