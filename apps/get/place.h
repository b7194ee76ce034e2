// Where a repository's files lie on this machine: in the cache that all tools of Hugging Face share, or in a folder.
#pragma once

#include <filesystem>
#include <string>

#include "apps/get/repository.h"
#include "kernels/base/error.h"

namespace pinion {

// The cache has, in models--ORG--NAME: blobs/HASH with the contents, snapshots/COMMIT/FILE with links to them, and
// refs/REVISION with the commit.
struct Place {
  std::filesystem::path folder;      // of the model, with every file by its name
  std::filesystem::path repository;  // models--ORG--NAME; empty: a plain folder

  bool is_cache() const { return !repository.empty(); }
  std::filesystem::path target(const RemoteFile& file) const {
    return is_cache() ? repository / "blobs" / file.hash : folder / file.name;
  }
};

// `to` empty: the cache. Makes the folders.
Error make_place(const std::string& to, const std::string& name, const Repository& repository, Place* out);

// Whether a file is there as the repository has it. A blob of the cache has its hash for a name and was checked when it
// was written.
bool is_there(const Place& place, const RemoteFile& file);

// In the cache: the link to a blob, and the revision's commit.
Error link_file(const Place& place, const RemoteFile& file);
Error write_revision(const Place& place, const std::string& revision, const std::string& commit);

}  // namespace pinion
