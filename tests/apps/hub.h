// A repository on the model hub, and the answers of its server.
#pragma once

#include <map>
#include <string>

#include "tests/apps/http_server.h"
#include "tests/apps/program.h"

namespace pinion {

inline const std::string kCommit(40, 'c');
inline const std::string kApi = "/api/models/tiny/stories/revision/main?blobs=true";
inline const std::string kResolve = "/tiny/stories/resolve/" + kCommit + "/";

// The first word of a command's output for a file.
inline std::string hash_by(const std::string& command, const std::string& content) {
  const Folder folder;
  write_file(folder / "in", content);
  EXPECT_EQ(std::system((command + " <" + quoted(folder / "in") + " >" + quoted(folder / "out")).c_str()), 0);
  const std::string out = read_file(folder / "out");
  return out.substr(0, out.find(' '));
}

inline std::string git_hash(const std::string& content) {
  return hash_by("sha1sum", "blob " + std::to_string(content.size()) + std::string(1, '\0') + content);
}

// A repository and its server. Weights are stored as large files (LFS) with a SHA-256.
struct Hub {
  std::map<std::string, std::string> files;
  json siblings = json::array();

  Hub() {
    for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}) {
      add(name, read_file(fs::path(kStories) / name));
    }
  }

  void add(const std::string& name, const std::string& content) {
    files[name] = content;
    json entry = {{"rfilename", name}, {"size", content.size()}, {"blobId", git_hash(content)}};
    if (name.ends_with(".safetensors") || name.ends_with(".gguf")) {
      entry["lfs"] = {{"sha256", hash_by("sha256sum", content)}, {"size", content.size()}};
    }
    siblings.push_back(entry);
  }

  json& entry(const std::string& name) {
    for (json& one : siblings) {
      if (one["rfilename"] == name) return one;
    }
    return siblings.emplace_back();
  }

  FakeResponse answer(const FakeRequest& request) const {
    if (request.path == kApi) return {.body = json{{"sha", kCommit}, {"siblings", siblings}}.dump()};
    const auto file =
        request.path.starts_with(kResolve) ? files.find(request.path.substr(kResolve.size())) : files.end();
    if (file == files.end()) return {.status = 404};
    const std::string& whole = file->second;
    const auto range = request.headers.find("range");
    if (range == request.headers.end()) return {.body = whole};
    const size_t from = std::stoul(range->second.substr(std::string("bytes=").size()));
    if (from >= whole.size()) return {.status = 416};
    return {.status = 206,
            .body = whole.substr(from),
            .headers = {"Content-Range: bytes " + std::to_string(from) + "-" + std::to_string(whole.size() - 1) + "/" +
                        std::to_string(whole.size())}};
  }
};

}  // namespace pinion
