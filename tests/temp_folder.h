// A folder of a test's own that goes away with it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace pinion {

struct TempFolder {
  std::filesystem::path path;

  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "pinion-XXXXXX").string();
    if (mkdtemp(name.data())) path = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  operator const std::filesystem::path&() const { return path; }
  std::filesystem::path operator/(const std::string& name) const { return path / name; }
  std::string string() const { return path.string(); }

  std::filesystem::path write(const std::string& name, std::string_view text) const {
    std::ofstream(path / name, std::ios::binary) << text;
    return path / name;
  }
};

}  // namespace pinion
