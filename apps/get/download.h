// One file over HTTP: continued where it broke off, tried again, checked, and only then under its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "apps/get/http.h"
#include "apps/get/repository.h"
#include "kernels/base/error.h"

namespace pinion {

struct Source {
  Http http;
  std::string token;  // empty: none
  int64_t retries;    // after attempts that brought nothing
};

// A text of at most 64 MiB.
Error download_text(Source& source, const std::string& url, std::string* out);

// What arrives lies in TARGET.incomplete until its size and hash are right. progress(bytes): so many are there.
Error download_file(Source& source, const std::string& url, const RemoteFile& file, const std::filesystem::path& target,
                    const std::function<void(int64_t bytes)>& progress);

// Whether a file has the size and the hash. One that is not there has not.
bool has_content(const std::filesystem::path& path, const RemoteFile& file);

}  // namespace pinion
