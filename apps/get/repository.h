// File list of a repository on the Hugging Face Hub, from its API.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"

namespace pinion {

struct RemoteFile {
  std::string name;  // without folders
  int64_t bytes = 0;
  std::string hash = {};  // hexadecimal: SHA-256, or git's SHA-1 of a blob for small files
  bool is_sha256 = false;
};

struct Repository {
  std::string commit;
  std::vector<RemoteFile> files;  // all files that a model folder may need, sorted by name
};

// Check "ORG/NAME", and a branch, tag or commit. Return the complaint, or nothing.
std::string complain_about_name(std::string_view name);
std::string complain_about_revision(std::string_view revision);

std::string repository_url(const std::string& endpoint, const std::string& name, const std::string& revision);
std::string file_url(const std::string& endpoint, const std::string& name, const std::string& commit,
                     const std::string& file);

// Parses the API's answer. Skips files in folders.
Error parse_repository(std::string_view text, const std::string& where, Repository* out);

const RemoteFile* find_file(const Repository& repository, std::string_view name);  // null: missing

bool is_weights(std::string_view name);  // *.safetensors

}  // namespace pinion
