#include "apps/get/download.h"

#include <fcntl.h>
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
#include <vector>

#include "apps/cli/console.h"

namespace pinion {
namespace {

constexpr int64_t kMaxAnswerBytes = int64_t{64} << 20;

// Of a file as the repository states it: SHA-256 of the bytes, or git's SHA-1 of a blob.
class ContentHash {
 public:
  explicit ContentHash(const RemoteFile& file) : is_sha256_(file.is_sha256) {
    sha256_init(&sha256_);
    sha1_init(&sha1_);
    const std::string header = "blob " + std::to_string(file.bytes);
    if (!is_sha256_) sha1_update(&sha1_, header.size() + 1, reinterpret_cast<const uint8_t*>(header.c_str()));
  }

  void add(std::span<const std::byte> part) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(part.data());
    if (is_sha256_) {
      sha256_update(&sha256_, part.size(), bytes);
    } else {
      sha1_update(&sha1_, part.size(), bytes);
    }
  }

  std::string hexadecimal() {
    std::array<uint8_t, SHA256_DIGEST_SIZE> digest;
    const size_t bytes = is_sha256_ ? SHA256_DIGEST_SIZE : SHA1_DIGEST_SIZE;
    if (is_sha256_) {
      sha256_digest(&sha256_, bytes, digest.data());
    } else {
      sha1_digest(&sha1_, bytes, digest.data());
    }
    std::string text;
    for (const uint8_t byte : std::span(digest).first(bytes)) {
      text += "0123456789abcdef"[byte >> 4];
      text += "0123456789abcdef"[byte & 15];
    }
    return text;
  }

 private:
  bool is_sha256_;
  sha256_ctx sha256_;
  sha1_ctx sha1_;
};

// What is wrong with an attempt, and whether another may go better.
struct Failure {
  Error error;
  bool may_pass = false;
  int64_t wait_s = 0;
};

Failure failure_of(const Response& response, const std::string& url) {
  const std::string status = "HTTP " + std::to_string(response.status);
  switch (response.status) {
    case 200:
    case 206:
      return {};
    case 401:
    case 403:
      return {error("the server refuses", url,
                    "a name that exists, and for private and gated models a token in HF_TOKEN and their conditions "
                    "accepted on their page",
                    status)};
    case 404:
      return {error("no such repository, revision or file", url, {}, status)};
    case 429:
      return {error("too many requests", url, "to wait and try again", status), true, response.retry_after_s};
    default:
      return {error("the server fails", url, {}, status), response.status >= 500, response.retry_after_s};
  }
}

Failure attempt(Source& source, const Request& request, const Sink& sink) {
  Response response;
  Error sink_error;
  if (Error e = source.http.ask(request, sink, &response, &sink_error)) return {std::move(e), true};
  if (sink_error) return {std::move(sink_error)};
  return failure_of(response, request.url);
}

// once(&brought): one attempt, and whether it brought anything.
template <class F>
Error with_retries(const Source& source, F&& once) {
  for (int64_t failures = 0;;) {
    bool brought = false;
    const Failure failure = once(&brought);
    if (!failure.error) return {};
    failures = brought ? 1 : failures + 1;
    if (!failure.may_pass || failures > source.retries) return failure.error;
    const int64_t wait_ms = int64_t{250} << std::min<int64_t>(failures - 1, 5);
    const int64_t asked_ms = std::min<int64_t>(failure.wait_s, 60) * 1000;
    if (asked_ms > 0) note("the server asks for a pause: going on in " + std::to_string(asked_ms / 1000) + " s");
    std::this_thread::sleep_for(std::chrono::milliseconds(std::max(wait_ms, asked_ms)));
  }
}

// TARGET.incomplete, open and locked.
struct PartialFile {
  std::filesystem::path path;
  int descriptor = -1;
  int64_t bytes = 0;

  ~PartialFile() {
    if (descriptor >= 0) close(descriptor);
  }
};

Error system_error(const char* what, const std::filesystem::path& path) {
  return error(what, path.string(), {}, std::strerror(errno));
}

Error open_partial(const std::filesystem::path& target, PartialFile* out) {
  out->path = target;
  out->path += ".incomplete";
  out->descriptor = open(out->path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (out->descriptor < 0) return system_error("cannot write", out->path);
  if (flock(out->descriptor, LOCK_EX | LOCK_NB) != 0) {
    return error("another process is downloading it", out->path.string());
  }
  struct stat status;
  if (fstat(out->descriptor, &status) != 0) return system_error("cannot read", out->path);
  out->bytes = status.st_size;
  return {};
}

Error start_over(const RemoteFile& file, PartialFile* partial, ContentHash* hash) {
  if (ftruncate(partial->descriptor, 0) != 0) return system_error("cannot write", partial->path);
  partial->bytes = 0;
  *hash = ContentHash(file);
  return {};
}

Error hash_descriptor(int descriptor, const std::filesystem::path& path, ContentHash* hash) {
  std::vector<std::byte> buffer(1 << 20);
  for (int64_t at = 0;;) {
    const ssize_t bytes = pread(descriptor, buffer.data(), buffer.size(), at);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return system_error("cannot read", path);
    if (bytes == 0) return {};
    hash->add(std::span(buffer).first(static_cast<size_t>(bytes)));
    at += bytes;
  }
}

Error append(std::span<const std::byte> part, PartialFile* partial, ContentHash* hash) {
  hash->add(part);
  while (!part.empty()) {
    const ssize_t written = pwrite(partial->descriptor, part.data(), part.size(), partial->bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("cannot write", partial->path);
    partial->bytes += written;
    part = part.subspan(static_cast<size_t>(written));
  }
  return {};
}

// Asks for what is missing and appends what comes.
Failure continue_file(Source& source, const std::string& url, const RemoteFile& file, PartialFile* partial,
                      ContentHash* hash, const std::function<void(int64_t)>& progress) {
  bool is_first = true;
  const Sink sink = [&](const Response& response, std::span<const std::byte> part) -> Error {
    if (is_first && response.from == 0) {
      if (Error e = start_over(file, partial, hash)) return e;
    }
    if (is_first && response.from != partial->bytes) {
      return error("the server sends another part", url, std::to_string(partial->bytes), std::to_string(response.from));
    }
    is_first = false;
    if (partial->bytes + std::ssize(part) > file.bytes) {
      return error("longer than the repository says", url, std::to_string(file.bytes) + " bytes");
    }
    if (Error e = append(part, partial, hash)) return e;
    progress(partial->bytes);
    return {};
  };
  const Request request = {.url = url, .token = source.token, .from = partial->bytes};
  Failure failure = attempt(source, request, sink);
  if (!failure.error && partial->bytes < file.bytes) {
    failure = {error("shorter than the repository says", url, std::to_string(file.bytes) + " bytes",
                     std::to_string(partial->bytes)),
               true};
  }
  return failure;
}

}  // namespace

Error download_text(Source& source, const std::string& url, std::string* out) {
  return with_retries(source, [&](bool*) {
    out->clear();
    return attempt(source, {.url = url, .token = source.token}, [&](const Response&, std::span<const std::byte> part) {
      if (std::ssize(*out) + std::ssize(part) > kMaxAnswerBytes) return error("too long an answer", url);
      out->append(reinterpret_cast<const char*>(part.data()), part.size());
      return Error();
    });
  });
}

Error download_file(Source& source, const std::string& url, const RemoteFile& file, const std::filesystem::path& target,
                    const std::function<void(int64_t bytes)>& progress) {
  PartialFile partial;
  ContentHash hash(file);
  if (Error e = open_partial(target, &partial)) return e;
  if (partial.bytes > file.bytes) {
    if (Error e = start_over(file, &partial, &hash)) return e;
  }
  if (Error e = hash_descriptor(partial.descriptor, partial.path, &hash)) return e;
  progress(partial.bytes);
  if (partial.bytes < file.bytes) {
    int64_t most = partial.bytes;  // a server that knows no ranges begins anew each time
    Error e = with_retries(source, [&](bool* brought) {
      Failure failure = continue_file(source, url, file, &partial, &hash, progress);
      *brought = partial.bytes > most;
      most = std::max(most, partial.bytes);
      return failure;
    });
    if (e) return e;
  }
  if (const std::string found = hash.hexadecimal(); found != file.hash) {
    unlink(partial.path.c_str());
    return error("the hash differs, so what came was deleted", url, file.hash, found);
  }
  if (fsync(partial.descriptor) != 0) return system_error("cannot write", partial.path);
  if (std::rename(partial.path.c_str(), target.c_str()) != 0) return system_error("cannot write", target);
  return {};
}

bool has_content(const std::filesystem::path& path, const RemoteFile& file) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return false;
  if (std::filesystem::file_size(path, code) != static_cast<uintmax_t>(file.bytes)) return false;
  PartialFile whole{.path = path, .descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  ContentHash hash(file);
  return whole.descriptor >= 0 && !hash_descriptor(whole.descriptor, path, &hash) && hash.hexadecimal() == file.hash;
}

}  // namespace pinion
