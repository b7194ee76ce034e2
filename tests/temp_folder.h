// A folder of a test's own that goes away with it.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

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

// Takes the end of a file away but not its length, as a download leaves it whose space was reserved. Whether the file
// system knows.
inline bool leave_unwritten(const std::filesystem::path& file, uintmax_t written_bytes) {
  const uintmax_t bytes = std::filesystem::file_size(file);
  std::filesystem::resize_file(file, written_bytes);
  std::filesystem::resize_file(file, bytes);
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  const off_t hole = lseek(descriptor, 0, SEEK_HOLE);
  close(descriptor);
  return hole >= 0 && static_cast<uintmax_t>(hole) < bytes;
}

}  // namespace pinion
