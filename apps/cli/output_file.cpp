#include "apps/cli/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace pinion {

OutputFile::~OutputFile() {
  if (file_ && !partial_path_.empty()) std::remove(partial_path_.c_str());
}

Error OutputFile::open(const std::string& path) {
  path_ = path;
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  const bool is_special = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  partial_path_ = is_special ? "" : path + ".partial." + std::to_string(getpid());
  file_.reset(std::fopen(is_special ? path.c_str() : partial_path_.c_str(), "wb"));
  if (!file_) return error("cannot write", path_, {}, std::strerror(errno));
  return {};
}

Error OutputFile::write(const void* data, size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_.get()) == bytes) return {};
  return error("cannot write", path_, {}, std::strerror(errno));
}

Error OutputFile::finish() {
  if (std::fflush(file_.get()) != 0) return error("cannot write", path_, {}, std::strerror(errno));
  if (!partial_path_.empty() && std::rename(partial_path_.c_str(), path_.c_str()) != 0) {
    return error("cannot write", path_, {}, std::strerror(errno));
  }
  file_.reset();
  return {};
}

}  // namespace pinion
