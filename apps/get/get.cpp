// pinion get: downloads the files of a model's repository that a model folder needs.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <tuple>

#include "apps/commands.h"
#include "apps/get/download.h"
#include "engine/team/memory.h"
#include "kernels/base/text.h"
#include "loader/config/layer_tensors.h"
#include "loader/files/json.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 43;  // 8 TB, so that sums of sizes do not overflow

// True for parts of names that neither refer to another folder nor need escaping in a URL.
bool is_plain(std::string_view part) {
  constexpr std::string_view kAllowed = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.";
  return !part.empty() && part.size() <= 200 && !part.starts_with('.') && !part.ends_with('.') &&
         part.find_first_not_of(kAllowed) == part.npos;
}

bool is_weights(std::string_view name) { return name.ends_with(".safetensors") || name.ends_with(".gguf"); }

bool is_plain_path(std::string_view path) { return std::ranges::all_of(split(path, '/'), is_plain); }

bool is_gguf_name(std::string_view name) {
  return name.ends_with(".gguf") && is_plain_path(name) && std::ranges::count(name, '/') <= 1;
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

// The complaint about "ORG/NAME" or "ORG/NAME:TAG", or about a branch, tag or commit; empty if it is right.
std::string complain_about_name(std::string_view text) {
  const auto [name, tag] = split_tag(std::string(text));
  const size_t slash = name.find('/');
  if (text.ends_with(':') || (!tag.empty() && !is_plain(tag))) return "want a tag as in ORG/NAME:Q4_K_M";
  if (slash != name.npos && is_plain_path(name) && name.find('/', slash + 1) == name.npos) return {};
  return "want ORG/NAME of letters, digits, '-', '_' and '.', as in Qwen/Qwen3-0.6B";
}

std::string complain_about_revision(std::string_view revision) {
  return is_plain_path(revision) ? "" : "want a branch, a tag or a commit";
}

// Parses the answer of the Hub's API. Skips files in folders, except GGUF files and those of modules.
Error parse_repository(std::string_view text, const std::string& url, Repository* out) {
  Json json;
  if (Error e = parse_json(text, url, &json)) return e;
  JsonFields fields{json, url};
  out->commit = fields.text("sha");
  if (fields.error) return fields.error;
  if (!is_hexadecimal(out->commit, 40)) return error("not a commit", url, "40 hexadecimal digits", brief(out->commit));
  const Json* files = fields.find("siblings");
  if (!files || !files->is_array()) return error("no list of files", url, "siblings");
  for (const Json& entry : *files) {
    JsonFields file{entry, url};
    RemoteFile remote{.name = file.text("rfilename")};
    if (file.error) return file.error;
    const bool has_weights = is_gguf_name(remote.name) || (is_weights(remote.name) && is_plain(remote.name));
    if (!(is_model_file(remote.name) && is_plain_path(remote.name)) && !has_weights) continue;
    if (Error e = read_file(entry, url, &remote)) return e;
    out->files.push_back(std::move(remote));
  }
  std::ranges::sort(out->files, {}, &RemoteFile::name);
  const auto twice = std::ranges::adjacent_find(out->files, {}, &RemoteFile::name);
  if (twice != out->files.end()) return error("a file is listed twice", url, {}, twice->name);
  return {};
}

// Null: missing.
const RemoteFile* find_file(const Repository& repository, std::string_view name) {
  const auto file = std::ranges::lower_bound(repository.files, name, {}, &RemoteFile::name);
  return file == repository.files.end() || file->name != name ? nullptr : &*file;
}

struct GetOptions {
  std::string name;
  std::string revision = "main";
  std::string to;
  int64_t retries = 5;
};

struct Download {
  Source source;
  std::string endpoint;
  std::string name, tag;
  Repository repository;
  Destination destination;
};

std::string size_text(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string environment(const char* variable, const char* otherwise) {
  const char* value = std::getenv(variable);
  return value && *value ? value : otherwise;
}

Error read_environment(Download* out) {
  out->endpoint = environment("HF_ENDPOINT", "https://huggingface.co");
  while (out->endpoint.ends_with('/')) out->endpoint.pop_back();
  if (!out->endpoint.starts_with("https://") && !out->endpoint.starts_with("http://")) {
    return error("not an address", "HF_ENDPOINT", "https://HOST", out->endpoint);
  }
  out->source.token = environment("HF_TOKEN", "");
  return check_token(out->source.token, "HF_TOKEN");
}

// Downloads the missing files. progress(bytes): present so far, of all files.
Error fetch(Download& download, const std::vector<RemoteFile>& files, const std::function<void(int64_t)>& progress) {
  int64_t before = 0;
  for (const RemoteFile& file : files) {
    if (!is_downloaded(download.destination, file)) {
      const std::string url =
          download.endpoint + "/" + download.name + "/resolve/" + download.repository.commit + "/" + file.name;
      const auto in_all = [&](int64_t bytes) { progress(before + bytes); };
      if (Error e = download_file(download.source, url, file, download.destination.target(file), in_all)) return e;
    }
    if (Error e = link_file(download.destination, file)) return e;
    before += file.bytes;
    progress(before);
  }
  return {};
}

// The weight files that the loader opens: a GGUF file with its parts, the single file, or the shards that the index
// names.
Error list_weights(const Download& download, const std::string& gguf, std::vector<RemoteFile>* out) {
  const Repository& repository = download.repository;
  std::set<std::string> names;
  if (!gguf.empty()) {
    for (const std::string& part : gguf_parts(gguf)) names.insert(part);
  } else if (find_file(repository, kSingleFile)) {
    names.emplace(kSingleFile);
  } else if (find_file(repository, kIndexFile)) {
    if (Error e = read_shards(download.destination.folder / kIndexFile, &names)) return e;
  } else {
    return error("no weights that pinion reads", download.name, "model.safetensors, or shards with their index");
  }
  for (const std::string& name : names) {
    const RemoteFile* file = find_file(repository, name);
    if (!file) return error("no such file", download.name, {}, name);
    out->push_back(*file);
  }
  return {};
}

// Size of the packed weights of a checkpoint in floating point.
int64_t packed_weight_bytes(const ModelConfig& config, Quant quant) {
  const LoadOptions load = {.quant = quant};
  int64_t bytes = 0;
  for (const MatrixTensor& m : all_matrices(config)) {
    bytes += packed_bytes(
        m.is_exact ? Format::bf16 : weight_format(load, config, m.module() + ".weight", m.role, m.expert != kNoExpert),
        m.n, m.k);
  }
  return bytes;
}

// "about 0.6 GB of memory as w8a8, 12 GB free"
std::string memory_text(const ModelConfig& config, Quant quant) {
  const FreeMemory free = free_memory();
  const auto needed = [&](Quant mode) { return packed_weight_bytes(config, mode); };
  const auto needed_text = [&](Quant mode) {
    return size_text(needed(mode)) + " as " + std::string(kQuantNames[static_cast<size_t>(mode)]);
  };
  const std::string text = "about " + needed_text(quant) + " in memory, " + size_text(free.bytes) + " " + free.limit;
  if (needed(quant) <= free.bytes) return text;
  if (needed(Quant::w4a8) > free.bytes) return text + ": it does not fit";
  return text + ": it fits with --quant w4a8, " + size_text(needed(Quant::w4a8));
}

// Compares the download with disk and memory. Only a full disk is an error: the files may be for another machine.
Error announce(const Download& download, bool is_gguf, const std::vector<RemoteFile>& weights) {
  ModelConfig config;
  const std::string folder = download.destination.folder.string();
  if (!is_gguf) {
    if (Error e = read_model_config(folder, &config)) return e;
  }
  int64_t all = 0, missing = 0;
  for (const RemoteFile& file : weights) {
    all += file.bytes;
    if (is_downloaded(download.destination, file)) continue;
    std::error_code code;
    const auto partial = std::filesystem::file_size(download.destination.target(file).string() + ".incomplete", code);
    missing += file.bytes - (code ? 0 : std::min(file.bytes, static_cast<int64_t>(partial)));
  }
  std::error_code code;
  const auto space = std::filesystem::space(folder, code);
  const int64_t free = code ? missing : static_cast<int64_t>(space.available);
  note(download.name + ": " + size_text(all) + " of weights, " + size_text(missing) + " to download, " +
       size_text(free) + " free on the disk" + (is_gguf ? "" : "; " + memory_text(config, default_quant(folder))));
  if (missing <= free) return {};
  return error("too little space on the disk", folder, size_text(missing), size_text(free));
}

// model: the folder, or the GGUF file.
Error get(const GetOptions& options, Download* out, std::string* model) {
  if (Error e = read_environment(out)) return e;
  if (Error e = out->source.http.open()) return e;
  std::string answer;
  const std::string revision = replaced(options.revision, "/", "%2F");  // "refs/pr/1" is one component of the path
  const std::string url = out->endpoint + "/api/models/" + out->name + "/revision/" + revision + "?blobs=true";
  if (Error e = download_text(out->source, url, &answer)) return e;
  if (Error e = parse_repository(answer, url, &out->repository)) return e;
  std::string gguf;
  std::vector<std::string> names;
  for (const RemoteFile& file : out->repository.files) names.push_back(file.name);
  const bool has_gguf = std::ranges::any_of(names, is_gguf_name);
  const bool has_weights = find_file(out->repository, kSingleFile) || find_file(out->repository, kIndexFile);
  if (!out->tag.empty() || !find_file(out->repository, "config.json") || (has_gguf && !has_weights)) {
    if (Error e = choose_gguf(names, out->tag, out->name, &gguf)) {
      return out->tag.empty() && e.expected.empty() ? error("no config.json: not a model folder", out->name) : e;
    }
  }
  if (Error e = make_destination(options.to, out->name, out->repository, &out->destination)) return e;
  std::vector<RemoteFile> weights, others = out->repository.files;
  std::erase_if(
      others, [&](const RemoteFile& file) { return !gguf.empty() || (is_weights(file.name) && is_plain(file.name)); });
  if (Error e = fetch(*out, others, [](int64_t) {})) return e;
  if (Error e = list_weights(*out, gguf, &weights)) return e;
  if (Error e = announce(*out, !gguf.empty(), weights)) return e;
  *model = (gguf.empty() ? out->destination.folder : out->destination.folder / gguf).string();
  int64_t all = 1;
  for (const RemoteFile& file : weights) all += file.bytes;
  ProgressBar bar("downloading");
  const auto show = [&](int64_t bytes) { bar.show(bytes, all); };
  if (Error e = fetch(*out, weights, show)) return e;
  return write_revision(out->destination, options.revision, out->repository.commit);
}

int run_get(const GetOptions& options) {
  Download download;
  std::string model;
  std::tie(download.name, download.tag) = split_tag(options.name);
  download.source.retries = options.retries;
  if (Error e = get(options, &download, &model)) return fail(e);
  print(model + "\n");
  return kSuccess;
}

}  // namespace

Run setup_get(Command app) {
  auto options = std::make_shared<GetOptions>();
  app.add_option("model ORG/NAME", options->name).required().check(complain_about_name);
  app.add_option("--revision R", options->revision).check(complain_about_revision);
  app.add_path("--to DIR", options->to);
  app.add_number("--retries N", options->retries, 0, 1000).whole();
  return {[options] { return run_get(*options); }};
}

}  // namespace pinion
