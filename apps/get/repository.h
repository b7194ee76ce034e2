// What a repository of the Hugging Face Hub holds, as its API answers.
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
  std::string hash = {};  // in hexadecimal digits: SHA-256, or of small files git's SHA-1 of a blob
  bool is_sha256 = false;
};

struct Repository {
  std::string commit;
  std::vector<RemoteFile> files;  // those that a model folder may need, by name; all weights among them
};

// "ORG/NAME", and a branch, tag or commit. Empty: right; else what is wrong.
std::string complain_about_name(std::string_view name);
std::string complain_about_revision(std::string_view revision);

std::string repository_url(const std::string& endpoint, const std::string& name, const std::string& revision);
std::string file_url(const std::string& endpoint, const std::string& name, const std::string& commit,
                     const std::string& file);

// The API's answer. Names with folders in them are no concern of this program, whatever they are.
Error parse_repository(std::string_view text, const std::string& where, Repository* out);

const RemoteFile* find_file(const Repository& repository, std::string_view name);  // nullptr: not there

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";

bool is_weights(std::string_view name);  // *.safetensors

}  // namespace pinion
