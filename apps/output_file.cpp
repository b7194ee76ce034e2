#include "apps/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace pinion {

OutputFile::~OutputFile() {
  if (file_) std::remove(partial_path_.c_str());
}

Error OutputFile::open(const std::string& path) {
  path_ = path;
  partial_path_ = path + ".partial." + std::to_string(getpid());
  file_.reset(std::fopen(partial_path_.c_str(), "wbx"));
  if (!file_) return error("cannot write", path_, {}, std::strerror(errno));
  return {};
}

Error OutputFile::write(const void* data, size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_.get()) == bytes) return {};
  return error("cannot write", path_, {}, std::strerror(errno));
}

Error OutputFile::finish() {
  if (std::fflush(file_.get()) != 0) return error("cannot write", path_, {}, std::strerror(errno));
  if (std::rename(partial_path_.c_str(), path_.c_str()) != 0) {
    return error("cannot write", path_, {}, std::strerror(errno));
  }
  file_.reset();
  return {};
}

}  // namespace pinion
