#include "apps/get/place.h"

#include "apps/cli/output_file.h"
#include "apps/get/download.h"
#include "loader/files/mapped_file.h"
#include "loader/files/user_folders.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

Error make_folder(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  return code ? error("cannot make the folder", path.string(), {}, code.message()) : Error();
}

}  // namespace

Error make_place(const std::string& to, const std::string& name, const Repository& repository, Place* out) {
  if (!to.empty()) {
    out->folder = to;
    return make_folder(out->folder);
  }
  const std::string cache = hugging_face_cache_folder();
  if (cache.empty()) return error("no folder for the cache", "get", "HOME, HF_HOME or --to DIR");
  const size_t slash = name.find('/');
  out->repository = fs::path(cache) / ("models--" + name.substr(0, slash) + "--" + name.substr(slash + 1));
  out->folder = out->repository / "snapshots" / repository.commit;
  if (Error e = make_folder(out->repository / "blobs")) return e;
  return make_folder(out->folder);
}

bool is_there(const Place& place, const RemoteFile& file) {
  if (!place.is_cache()) return has_content(place.target(file), file);
  std::error_code code;
  const fs::path target = place.target(file);
  const uintmax_t bytes = fs::file_size(target, code);
  if (code || bytes != static_cast<uintmax_t>(file.bytes)) return false;
  return unwritten_bytes(target) == 0 || has_content(target, file);  // another tool may have reserved its space only
}

Error link_file(const Place& place, const RemoteFile& file) {
  if (!place.is_cache()) return {};
  std::error_code code;
  const fs::path link = place.folder / file.name, blob = fs::path("../../blobs") / file.hash;
  if (fs::read_symlink(link, code) == blob) return {};
  fs::remove(link, code);
  fs::create_symlink(blob, link, code);
  return code ? error("cannot make the link", link.string(), {}, code.message()) : Error();
}

Error write_revision(const Place& place, const std::string& revision, const std::string& commit) {
  if (!place.is_cache() || revision == commit) return {};
  const fs::path path = place.repository / "refs" / revision;
  if (Error e = make_folder(path.parent_path())) return e;
  return write_output_file(path.string(), commit);
}

}  // namespace pinion
