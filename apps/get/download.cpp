#include "apps/get/download.h"

#include <fcntl.h>
#include <nettle/nettle-meta.h>
#include <nettle/sha1.h>
#include <nettle/sha2.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "apps/cli/console.h"
#include "apps/cli/output_file.h"
#include "kernels/base/text.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/files/mapped_file.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxAnswerBytes = int64_t{64} << 20;

// Computes the hash of a file in the repository's form: SHA-256 of the bytes, or git's SHA-1 of a blob.
class ContentHash {
 public:
  explicit ContentHash(const RemoteFile& file) : hash_(file.is_sha256 ? &nettle_sha256 : &nettle_sha1) {
    hash_->init(&context_);
    const std::string header = "blob " + std::to_string(file.bytes);
    if (!file.is_sha256) add(std::as_bytes(std::span(header.c_str(), header.size() + 1)));
  }

  void add(std::span<const std::byte> part) {
    hash_->update(&context_, part.size(), reinterpret_cast<const uint8_t*>(part.data()));
  }

  std::string hexadecimal() {
    std::array<uint8_t, SHA256_DIGEST_SIZE> digest;
    hash_->digest(&context_, hash_->digest_size, digest.data());
    std::string text;
    for (const uint8_t byte : std::span(digest).first(hash_->digest_size)) text += formatted("%02x", byte);
    return text;
  }

 private:
  const nettle_hash* hash_;
  union {
    sha256_ctx sha256;
    sha1_ctx sha1;
  } context_;
};

struct Failure {
  Error error;
  bool is_transient = false;  // another attempt may succeed
  int64_t wait_s = 0;
};

Failure failure_of(const ClientResponse& response, const std::string& url) {
  const std::string status = "HTTP " + std::to_string(response.status);
  if (is_success(response)) return {};
  if (response.status == 401 || response.status == 403) {
    return {error("the server refuses", url,
                  "a name that exists, and for private and gated models a token in HF_TOKEN and their conditions "
                  "accepted on their page",
                  status)};
  }
  if (response.status == 404) return {error("no such repository, revision or file", url, {}, status)};
  const bool is_busy = response.status == 429;
  return {is_busy ? error("too many requests", url, "to wait and try again", status)
                  : error("the server fails", url, {}, status),
          is_busy || response.status >= 500, response.retry_after_s};
}

Failure attempt(Source& source, const ClientRequest& request, const Sink& sink) {
  ClientResponse response;
  Error sink_error;
  if (Error e = source.http.ask(request, sink, &response, &sink_error)) return {std::move(e), true};
  if (sink_error) return {std::move(sink_error)};
  return failure_of(response, request.url);
}

// once(&progressed) makes one attempt and reports if it received anything.
template <class F>
Error with_retries(const Source& source, F&& once) {
  for (int64_t failures = 0;;) {
    bool progressed = false;
    const Failure failure = once(&progressed);
    if (!failure.error) return {};
    failures = progressed ? 1 : failures + 1;
    if (!failure.is_transient || failures > source.retries) return failure.error;
    const int64_t wait_ms = int64_t{250} << std::min<int64_t>(failures - 1, 5);
    const int64_t asked_ms = std::min<int64_t>(failure.wait_s, 60) * 1000;
    if (asked_ms > 0) note("the server asks for a pause of " + std::to_string(asked_ms / 1000) + " s");
    std::this_thread::sleep_for(std::chrono::milliseconds(std::max(wait_ms, asked_ms)));
  }
}

// TARGET.incomplete, open and locked.
struct PartialFile {
  fs::path path;
  FileDescriptor file = {};
  int64_t bytes = 0;
};

Error system_error(const char* what, const fs::path& path) {
  return error(what, path.string(), {}, std::strerror(errno));
}

Error open_partial(const fs::path& target, PartialFile* out) {
  out->path = target;
  out->path += ".incomplete";
  if (Error e = make_folder(target.parent_path())) return e;
  out->file.number = open(out->path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (!out->file.is_open()) return system_error("cannot write", out->path);
  const bool is_mine = flock(out->file.number, LOCK_EX | LOCK_NB) == 0;
  if (!is_mine) return error("another process is downloading it", out->path.string());
  struct stat status;
  if (fstat(out->file.number, &status) != 0) return system_error("cannot read", out->path);
  out->bytes = status.st_size;
  return {};
}

Error start_over(const RemoteFile& file, PartialFile* partial, ContentHash* hash) {
  if (ftruncate(partial->file.number, 0) != 0) return system_error("cannot write", partial->path);
  partial->bytes = 0;
  *hash = ContentHash(file);
  return {};
}

Error hash_contents(const FileDescriptor& file, const fs::path& path, ContentHash* hash) {
  std::vector<std::byte> buffer(1 << 20);
  for (int64_t at = 0;;) {
    const ssize_t bytes = pread(file.number, buffer.data(), buffer.size(), at);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return system_error("cannot read", path);
    if (bytes == 0) return {};
    hash->add(std::span(buffer).first(bytes));
    at += bytes;
  }
}

// Requests the missing bytes and appends them.
Failure continue_file(Source& source, const std::string& url, const RemoteFile& file, PartialFile* partial,
                      ContentHash* hash, const std::function<void(int64_t)>& progress) {
  bool is_first = true;
  const Sink sink = [&](const ClientResponse& reply, std::span<const std::byte> part) -> Error {
    if (Error e = is_first && reply.from == 0 ? start_over(file, partial, hash) : Error{}) return e;
    if (is_first && reply.from != partial->bytes) {
      return error("the server sends another range", url, partial->bytes, reply.from);
    }
    is_first = false;
    if (partial->bytes + std::ssize(part) > file.bytes) {
      return error("longer than the repository states", url, std::to_string(file.bytes) + " bytes");
    }
    hash->add(part);
    if (!partial->file.write(part, partial->bytes)) return system_error("cannot write", partial->path);
    partial->bytes += std::ssize(part);
    progress(partial->bytes);
    return {};
  };
  const ClientRequest request = {.url = url, .token = source.token, .from = partial->bytes};
  Failure failure = attempt(source, request, sink);
  if (!failure.error && partial->bytes < file.bytes) {
    failure = {error("shorter than the repository states", url, std::to_string(file.bytes) + " bytes", partial->bytes),
               true};
  }
  return failure;
}

bool has_content(const fs::path& path, const RemoteFile& file) {
  std::error_code code;
  if (!fs::is_regular_file(path, code)) return false;
  if (fs::file_size(path, code) != static_cast<uintmax_t>(file.bytes)) return false;
  const FileDescriptor whole(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ContentHash hash(file);
  return whole.is_open() && !hash_contents(whole, path, &hash) && hash.hexadecimal() == file.hash;
}

}  // namespace

Error download_text(Source& source, const std::string& url, std::string* out) {
  return with_retries(source, [&](bool*) {
    out->clear();
    return attempt(source, {.url = url, .token = source.token}, text_sink(out, kMaxAnswerBytes, url));
  });
}

Error download_file(Source& source, const std::string& url, const RemoteFile& file, const fs::path& target,
                    const std::function<void(int64_t bytes)>& progress) {
  PartialFile partial;
  ContentHash hash(file);
  if (Error e = open_partial(target, &partial)) return e;
  if (Error e = partial.bytes > file.bytes ? start_over(file, &partial, &hash) : Error{}) return e;
  if (Error e = hash_contents(partial.file, partial.path, &hash)) return e;
  progress(partial.bytes);
  if (partial.bytes < file.bytes) {
    int64_t max_bytes = partial.bytes;  // a server without range requests starts over each time
    Error e = with_retries(source, [&](bool* progressed) {
      Failure failure = continue_file(source, url, file, &partial, &hash, progress);
      *progressed = partial.bytes > max_bytes;
      max_bytes = std::max(max_bytes, partial.bytes);
      return failure;
    });
    if (e) return e;
  }
  if (const std::string found = hash.hexadecimal(); found != file.hash) {
    unlink(partial.path.c_str());
    return error("the hash differs, so the file was deleted", url, file.hash, found);
  }
  if (fsync(partial.file.number) != 0) return system_error("cannot write", partial.path);
  if (std::rename(partial.path.c_str(), target.c_str()) != 0) return system_error("cannot write", target);
  return {};
}

Error make_destination(const std::string& to, const std::string& name, const Repository& repository, Destination* out) {
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

bool is_downloaded(const Destination& destination, const RemoteFile& file) {
  if (!destination.is_cache()) return has_content(destination.target(file), file);
  std::error_code code;
  const fs::path target = destination.target(file);
  const uintmax_t bytes = fs::file_size(target, code);
  if (code || bytes != static_cast<uintmax_t>(file.bytes)) return false;
  // Another tool may have reserved the space without writing the contents.
  return unwritten_bytes(target) == 0 || has_content(target, file);
}

Error link_file(const Destination& destination, const RemoteFile& file) {
  if (!destination.is_cache()) return {};
  std::error_code code;
  const fs::path link = destination.folder / file.name;
  const fs::path blob = destination.target(file).lexically_relative(link.parent_path());
  if (Error e = make_folder(link.parent_path())) return e;
  if (fs::read_symlink(link, code) == blob) return {};
  fs::remove(link, code);
  fs::create_symlink(blob, link, code);
  return code ? error("cannot make the link", link.string(), {}, code.message()) : Error();
}

Error write_revision(const Destination& destination, const std::string& revision, const std::string& commit) {
  if (!destination.is_cache() || revision == commit) return {};
  const fs::path path = destination.repository / "refs" / revision;
  if (Error e = make_folder(path.parent_path())) return e;
  return write_output_file(path.string(), commit);
}

}  // namespace pinion
