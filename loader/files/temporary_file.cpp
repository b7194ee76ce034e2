#include "loader/files/temporary_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace pinion {

// Between creation and lock, another process may remove the file as abandoned: then a new one is created.
TemporaryFile::TemporaryFile(std::string target, std::string what)
    : final_path(std::move(target)), content(std::move(what)) {
  do {
    file.close();
    path = final_path + std::string(kTemporarySuffix);
    file.number = mkostemp(path.data(), O_CLOEXEC);
    if (file.is_open()) flock(file.number, LOCK_EX);
  } while (file.is_open() && access(path.c_str(), F_OK) != 0);
}

TemporaryFile::~TemporaryFile() {
  if (file.is_open() && !path.empty()) unlink(path.c_str());
}

Error TemporaryFile::failure(int code) const {
  return error("cannot write " + content, final_path, {}, std::strerror(code));
}

Error TemporaryFile::append(std::span<const std::byte> bytes) {
  if (!file.write(bytes, written)) return failure(errno);
  written += std::ssize(bytes);
  return {};
}

Error TemporaryFile::reserve(int64_t bytes) const {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && static_cast<rlim_t>(bytes) > limit.rlim_cur) return failure(EFBIG);
  int code = 0;
  do {
    code = posix_fallocate(file.number, 0, bytes);
  } while (code == EINTR);
  return code == 0 || code == EOPNOTSUPP || code == EINVAL ? Error{} : failure(code);
}

Error TemporaryFile::finish(const timespec (&times)[2]) {
  futimens(file.number, times);  // if this fails, the file looks older or newer than it is
  if (fsync(file.number) != 0) return failure(errno);
  if (rename(path.c_str(), final_path.c_str()) != 0) return failure(errno);
  path.clear();
  return {};
}

void remove_if_abandoned(const std::filesystem::path& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status = {};
  if (!file.is_open() || fstat(file.number, &status) != 0) return;
  const bool is_unlocked = flock(file.number, LOCK_EX | LOCK_NB) == 0;
  const bool has_no_locks = !is_unlocked && errno != EWOULDBLOCK;
  const bool is_old = std::time(nullptr) - std::max(status.st_atime, status.st_mtime) > 3600;
  if (is_unlocked || (has_no_locks && is_old)) unlink(path.c_str());
}

}  // namespace pinion
