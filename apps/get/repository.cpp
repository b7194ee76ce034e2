#include "apps/get/repository.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/base/text.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/files/json.h"

namespace pinion {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 43;  // 8 TB, so that sums of sizes do not overflow

bool is_name_character(char c) {
  return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '-' || c == '_' || c == '.';
}

// True for parts of names that neither refer to another folder nor need escaping in a URL.
bool is_plain(std::string_view part) {
  return !part.empty() && part.size() <= 200 && !part.starts_with('.') && !part.ends_with('.') &&
         std::ranges::all_of(part, is_name_character);
}

Error read_file(const Json& json, const std::string& where, RemoteFile* out) {
  JsonFields fields{json, where + ": " + out->name};
  out->bytes = fields.integer("size", {}, 0, kMaxFileBytes);
  out->is_sha256 = fields.has("lfs");
  if (out->is_sha256) {
    JsonFields lfs = fields.fields("lfs");
    out->hash = lfs.text("sha256", "");
    if (out->hash.empty()) out->hash = lfs.text("oid");
    if (lfs.error) return lfs.error;
  } else {
    out->hash = fields.text("blobId");
  }
  if (fields.error) return fields.error;
  if (is_hexadecimal(out->hash, out->is_sha256 ? 64 : 40)) return {};
  return error("not a hash", fields.where, out->is_sha256 ? "64 hexadecimal digits" : "40 hexadecimal digits",
               brief(out->hash));
}

}  // namespace

std::string complain_about_name(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash != name.npos && is_plain(name.substr(0, slash)) && is_plain(name.substr(slash + 1))) return {};
  return "want ORG/NAME of letters, digits, '-', '_' and '.', as in Qwen/Qwen3-0.6B";
}

std::string complain_about_revision(std::string_view revision) {
  return std::ranges::all_of(split(revision, '/'), is_plain) ? "" : "want a branch, a tag or a commit";
}

// Escapes the slashes of "refs/pr/1", which is one component of the path.
std::string repository_url(const std::string& endpoint, const std::string& name, const std::string& revision) {
  return endpoint + "/api/models/" + name + "/revision/" + replaced(revision, "/", "%2F") + "?blobs=true";
}

std::string file_url(const std::string& endpoint, const std::string& name, const std::string& commit,
                     const std::string& file) {
  return endpoint + "/" + name + "/resolve/" + commit + "/" + file;
}

bool is_weights(std::string_view name) { return name.ends_with(".safetensors"); }

Error parse_repository(std::string_view text, const std::string& where, Repository* out) {
  Json json;
  if (Error e = parse_json(text, where, &json)) return e;
  JsonFields fields{json, where};
  out->commit = fields.text("sha");
  if (fields.error) return fields.error;
  if (!is_hexadecimal(out->commit, 40)) {
    return error("not a commit", where, "40 hexadecimal digits", brief(out->commit));
  }
  const Json* files = fields.find("siblings");
  if (!files || !files->is_array()) return error("no list of files", where, "siblings");
  for (const Json& entry : *files) {
    JsonFields file{entry, where};
    RemoteFile remote{.name = file.text("rfilename")};
    if (file.error) return file.error;
    if (!is_model_file(remote.name) && !(is_weights(remote.name) && is_plain(remote.name))) continue;
    if (Error e = read_file(entry, where, &remote)) return e;
    out->files.push_back(std::move(remote));
  }
  std::ranges::sort(out->files, {}, &RemoteFile::name);
  const auto twice = std::ranges::adjacent_find(out->files, {}, &RemoteFile::name);
  if (twice != out->files.end()) return error("a file is listed twice", where, {}, twice->name);
  return {};
}

const RemoteFile* find_file(const Repository& repository, std::string_view name) {
  const auto file = std::ranges::lower_bound(repository.files, name, {}, &RemoteFile::name);
  return file == repository.files.end() || file->name != name ? nullptr : &*file;
}

}  // namespace pinion
