#include "loader/files/user_folders.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

namespace pinion {
namespace {

std::string user_folder(const char* variable, const char* in_home, const char* name) {
  // The specification ignores relative paths.
  const char* base = std::getenv(variable);
  if (base && base[0] == '/') return std::string(base) + name;
  const char* home = std::getenv("HOME");
  std::error_code code;
  if (home && home[0] == '/' && std::filesystem::is_directory(home, code)) return std::string(home) + in_home + name;
  return {};
}

}  // namespace

std::string default_cache_folder() { return user_folder("XDG_CACHE_HOME", "/.cache", "/pinion"); }
std::string default_config_folder() { return user_folder("XDG_CONFIG_HOME", "/.config", "/pinion"); }
std::string default_state_folder() { return user_folder("XDG_STATE_HOME", "/.local/state", "/pinion"); }

std::string hugging_face_cache_folder() {
  for (const auto& [variable, name] :
       {std::pair("HF_HUB_CACHE", ""), {"HUGGINGFACE_HUB_CACHE", ""}, {"HF_HOME", "/hub"}}) {
    const char* folder = std::getenv(variable);
    if (folder && *folder) return std::string(folder) + name;
  }
  return user_folder("XDG_CACHE_HOME", "/.cache", "/huggingface/hub");
}

}  // namespace pinion
