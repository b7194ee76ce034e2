// Downloads a repository's files into the Hugging Face cache or a folder: resumes, retries, checks size and hash.
#pragma once

#include <filesystem>
#include <vector>

#include "apps/get/http.h"

namespace pinion {

struct RemoteFile {
  std::string name;  // GGUF files may be in folders
  int64_t bytes = 0;
  std::string hash = {};  // hexadecimal: SHA-256, or git's SHA-1 of a blob for small files
  bool is_sha256 = false;
};

// On the Hugging Face Hub.
struct Repository {
  std::string commit;
  std::vector<RemoteFile> files;  // all files that a model folder may need, sorted by name
};

struct Source {
  HttpClient http;
  std::string token;  // empty: none
  int64_t retries;    // consecutive attempts that may fail without receiving anything
};

// Downloads a text of at most 64 MiB.
Error download_text(Source& source, const std::string& url, std::string* out);

// Downloads to TARGET.incomplete; renames it once size and hash are right. progress(bytes): present so far.
Error download_file(Source& source, const std::string& url, const RemoteFile& file, const std::filesystem::path& target,
                    const std::function<void(int64_t bytes)>& progress);

// The cache is shared with the Hugging Face tools and has, in models--ORG--NAME: blobs/HASH with the contents,
// snapshots/COMMIT/FILE with links to them, and refs/REVISION with the commit.
struct Destination {
  std::filesystem::path folder;      // model folder with every file under its name
  std::filesystem::path repository;  // models--ORG--NAME; empty: a plain folder

  bool is_cache() const { return !repository.empty(); }
  std::filesystem::path target(const RemoteFile& file) const {
    return is_cache() ? repository / "blobs" / file.hash : folder / file.name;
  }
};

// Makes the folders. `to` empty: the cache.
Error make_destination(const std::string& to, const std::string& name, const Repository& repository, Destination* out);

// True if a file is present with the right content. In the cache its size suffices: blobs are checked when written.
bool is_downloaded(const Destination& destination, const RemoteFile& file);

// For the cache only: the link to a blob, and the commit of a revision.
Error link_file(const Destination& destination, const RemoteFile& file);
Error write_revision(const Destination& destination, const std::string& revision, const std::string& commit);

}  // namespace pinion
