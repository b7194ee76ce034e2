#include "apps/cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "loader/files/mapped_file.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

struct Target {
  fs::path path;
  int descriptor = -1;         // of this process, if the path means one: /dev/stdout
  bool is_descriptor = false;  // of this process or another one
};

// Recognises names below /proc/N/fd and /proc/N/task/N/fd. They look like links to the open file, but a rename would
// replace the file's name, or /dev/stdout itself, instead of its contents.
void look_for_descriptor(const fs::path& folder, const std::string& name, Target* out) {
  const std::string text = folder.string();
  if (!text.starts_with("/proc/") || folder.filename() != "fd") return;
  out->is_descriptor = true;
  if (!text.starts_with("/proc/" + std::to_string(getpid()) + "/")) return;
  int number = -1;
  const char* end = name.data() + name.size();
  if (std::from_chars(name.data(), end, number).ptr == end) out->descriptor = number;
}

Target follow_links(const std::string& path) {
  constexpr int kMaxLinks = 40;  // the kernel refuses longer chains
  Target target{path};
  std::error_code code;
  for (int i = 0; i < kMaxLinks; ++i) {
    const fs::path parent = target.path.parent_path();
    look_for_descriptor(fs::canonical(parent.empty() ? "." : parent, code), target.path.filename().string(), &target);
    if (target.is_descriptor || !fs::is_symlink(target.path, code)) break;
    target.path = parent / fs::read_symlink(target.path, code);
  }
  return target;
}

// Writes at the descriptor's own position, so that a shell's >> appends.
std::FILE* open_descriptor(int descriptor) {
  const int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  std::FILE* file = copy < 0 ? nullptr : fdopen(copy, "wb");
  if (copy >= 0 && !file) close(copy);
  return file;
}

std::FILE* open_aside(const std::string& path, const struct stat* replaced) {
  const mode_t mode = replaced ? replaced->st_mode & 0777 : 0666;
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (descriptor < 0) return nullptr;
  if (replaced) fchmod(descriptor, mode);  // open() applied the umask; file systems without modes may refuse
  return fdopen(descriptor, "wb");
}

}  // namespace

OutputFile::~OutputFile() {
  if (file_ && !partial_path_.empty()) std::remove(partial_path_.c_str());
}

Error OutputFile::failure() const { return error("cannot write", path_, {}, std::strerror(errno)); }

Error OutputFile::open(const std::string& path) {
  path_ = path;
  const Target target = follow_links(path);
  target_ = target.path.string();
  struct stat status = {};
  const bool exists = stat(target_.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) return failure();
  if (target.descriptor >= 0) {
    file_.reset(open_descriptor(target.descriptor));
  } else if (target.is_descriptor || (exists && !S_ISREG(status.st_mode))) {
    file_.reset(std::fopen(target_.c_str(), "wb"));
  } else {
    partial_path_ = target_ + ".partial." + std::to_string(getpid());
    file_.reset(open_aside(partial_path_, exists ? &status : nullptr));
  }
  return file_ ? Error() : failure();
}

Error OutputFile::write(const void* data, size_t bytes) {
  return std::fwrite(data, 1, bytes, file_.get()) == bytes ? Error() : failure();
}

// A mount point cannot be renamed over (containers mount single files): it is overwritten with the bytes instead.
Error OutputFile::replace() {
  if (std::rename(partial_path_.c_str(), target_.c_str()) == 0) return {};
  if (errno != EBUSY) return failure();
  MappedFile written;
  if (Error e = map_file(partial_path_, &written)) return e;
  const std::span<const std::byte> bytes = written.contents();
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(target_.c_str(), "wb"));
  if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) return failure();
  if (std::fflush(file.get()) != 0) return failure();
  std::remove(partial_path_.c_str());
  return {};
}

Error OutputFile::finish() {
  if (std::fflush(file_.get()) != 0) return failure();
  if (Error e = partial_path_.empty() ? Error{} : replace()) return e;
  file_.reset();
  return {};
}

Error OutputFile::finish(std::string_view text) {
  if (Error e = write(text.data(), text.size())) return e;
  return finish();
}

Error write_output_file(const std::string& path, std::string_view text) {
  OutputFile file;
  if (Error e = file.open(path)) return e;
  return file.finish(text);
}

Error make_folder(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  return code ? error("cannot make the folder", path.string(), {}, code.message()) : Error();
}

static_assert(std::endian::native == std::endian::little, "the .npy header declares little-endian data");

// Version 1.0: magic, version, length, and a Python dictionary padded to a multiple of 64 bytes.
Error write_npy_header(OutputFile& file, int64_t rows, int64_t columns) {
  std::string description = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", " +
                            std::to_string(columns) + "), }";
  constexpr size_t kFixedBytes = 10;
  description.append(63 - (kFixedBytes + description.size()) % 64, ' ');
  description += '\n';
  const auto length = static_cast<uint16_t>(description.size());
  std::string header = {
      '\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, static_cast<char>(length & 255), static_cast<char>(length >> 8)};
  header += description;
  return file.write(header.data(), header.size());
}

}  // namespace pinion
