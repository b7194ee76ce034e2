#include "apps/get/http.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <exception>

namespace pinion {

// The functions in use: curl_global_init as global_init, and so on.
#define PINION_CURL_FUNCTIONS(X) \
  X(global_init)                 \
  X(easy_init)                   \
  X(easy_reset)                  \
  X(easy_cleanup)                \
  X(easy_setopt)                 \
  X(easy_perform)                \
  X(easy_getinfo)                \
  X(easy_strerror)               \
  X(slist_append)                \
  X(slist_free_all)              \
  X(url)                         \
  X(url_set)                     \
  X(url_get)                     \
  X(url_cleanup)                 \
  X(free)

struct CurlLibrary {
#define PINION_DECLARE(name) decltype(&::curl_##name) name;
  PINION_CURL_FUNCTIONS(PINION_DECLARE)
#undef PINION_DECLARE
};

namespace {

constexpr int kMaxRedirects = 10;
constexpr size_t kMaxPageBytes = size_t{1} << 20;

#ifdef PINION_STATIC  // libcurl is linked in

Error load_curl(CurlLibrary* out) {
#define PINION_ASSIGN(name) out->name = ::curl_##name;
  PINION_CURL_FUNCTIONS(PINION_ASSIGN)
#undef PINION_ASSIGN
  return {};
}

// The location of certificates depends on the distribution, and is built into its own libcurl only.
const char* certificates() {
  const char* const named = std::getenv("SSL_CERT_FILE");
  if (named) return named;
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (access(path, R_OK) == 0) return path;
  }
  return nullptr;
}

#else

Error load_curl(CurlLibrary* out) {
  void* library = nullptr;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    if ((library = dlopen(name, RTLD_NOW)) != nullptr) break;
  }
  if (!library) return error("not installed", "libcurl", "libcurl.so.4: apt-get install libcurl4");
  bool is_complete = true;
#define PINION_LOAD(name)                                                           \
  out->name = reinterpret_cast<decltype(out->name)>(dlsym(library, "curl_" #name)); \
  is_complete = is_complete && out->name;
  PINION_CURL_FUNCTIONS(PINION_LOAD)
#undef PINION_LOAD
  return is_complete ? Error{} : error("too old", "libcurl", "7.85 or newer");
}

const char* certificates() { return nullptr; }  // libcurl's own default

#endif
#undef PINION_CURL_FUNCTIONS

// Shared by the callbacks of one transfer. No exception may pass through libcurl.
struct Transfer {
  const Sink& sink;
  ClientResponse& response;
  Error& sink_error;
  const std::string& url;
};

// "HTTP/1.1 206 Partial Content" begins a response; "Content-Range: bytes 100-199/200" has the offset of its body.
size_t on_header(const char* data, size_t, size_t bytes, void* context) noexcept {
  ClientResponse& response = static_cast<Transfer*>(context)->response;
  constexpr std::string_view kContentRange = "content-range:";
  const std::string_view line(data, bytes);
  const auto number_after = [&](size_t position, auto* out) {
    const size_t digit = line.find_first_of("0123456789", position);
    if (digit != line.npos) std::from_chars(line.data() + digit, line.data() + line.size(), *out);
  };
  if (line.starts_with("HTTP/")) {
    response = {};
    number_after(line.find(' '), &response.status);
  } else if (line.size() > kContentRange.size() && strncasecmp(data, kContentRange.data(), kContentRange.size()) == 0) {
    number_after(kContentRange.size(), &response.from);
  }
  return bytes;
}

size_t on_body(const char* data, size_t, size_t bytes, void* context) noexcept {
  auto& transfer = *static_cast<Transfer*>(context);
  try {
    if (is_success(transfer.response)) {
      transfer.sink_error = transfer.sink(transfer.response, std::as_bytes(std::span(data, bytes)));
    } else if (transfer.response.page.append(data, bytes).size() > kMaxPageBytes) {
      transfer.sink_error =
          error("too long an error page", transfer.url, {}, "HTTP " + std::to_string(transfer.response.status));
    }
  } catch (const std::exception& failure) {
    transfer.sink_error = error(failure.what(), "download");
  }
  return transfer.sink_error ? CURL_WRITEFUNC_ERROR : bytes;
}

// "https/host/443/"; empty for an invalid URL.
std::string origin_of(const CurlLibrary& curl, const std::string& url) {
  std::string text;
  CURLU* parts = curl.url();
  if (curl.url_set(parts, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK) {
    for (const CURLUPart part : {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT}) {
      char* value = nullptr;
      if (curl.url_get(parts, part, &value, CURLU_DEFAULT_PORT) != CURLUE_OK) continue;
      text += std::string(value) + "/";
      curl.free(value);
    }
  }
  curl.url_cleanup(parts);
  return text;
}

// Sends one request to `url`: the request's own or the target of a redirect.
CURLcode perform(const CurlLibrary& curl, CURL* handle, const std::string& url, const ClientRequest& request,
                 Transfer* transfer) {
  const std::string home = origin_of(curl, request.url);
  const std::string range = std::to_string(request.from) + "-";
  const bool is_home = !home.empty() && origin_of(curl, url) == home;
  curl_slist* headers = nullptr;
  const std::string key = "Authorization: Bearer " + request.token;
  if (is_home && !request.token.empty()) headers = curl.slist_append(headers, key.c_str());
  if (!request.body.empty()) headers = curl.slist_append(headers, "Content-Type: application/json");
  curl.easy_reset(handle);
  const auto set = [&](CURLoption option, auto value) { curl.easy_setopt(handle, option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, home.starts_with("https/") ? "https" : "http,https");
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_USERAGENT, "pinion/" PINION_VERSION);
  if (const char* file = certificates()) set(CURLOPT_CAINFO, file);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, 30L);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.idle_timeout_s));
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  if (request.from > 0) set(CURLOPT_RANGE, range.c_str());
  if (!request.body.empty()) {
    set(CURLOPT_POSTFIELDS, request.body.data());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }
  set(CURLOPT_HEADERFUNCTION, on_header);
  set(CURLOPT_HEADERDATA, transfer);
  set(CURLOPT_WRITEFUNCTION, on_body);
  set(CURLOPT_WRITEDATA, transfer);
  const CURLcode code = curl.easy_perform(handle);
  curl.slist_free_all(headers);
  return code;
}

}  // namespace

bool is_success(const ClientResponse& response) { return response.status == 200 || response.status == 206; }

Sink text_sink(std::string* out, int64_t max_bytes, const std::string& where) {
  return [=](const ClientResponse&, std::span<const std::byte> part) {
    if (std::ssize(*out) + std::ssize(part) > max_bytes) return error("too long an answer", where);
    out->append(reinterpret_cast<const char*>(part.data()), part.size());
    return Error();
  };
}

Error check_token(std::string_view token, const std::string& where) {
  if (std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; })) return {};
  return error("not a token", where, "printable characters without spaces");
}

HttpClient::HttpClient() = default;

HttpClient::~HttpClient() {
  if (handle_) curl_->easy_cleanup(handle_);
}

Error HttpClient::open() {
  auto curl = std::make_unique<CurlLibrary>();
  if (Error e = load_curl(curl.get())) return e;
  if (curl->global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) handle_ = curl->easy_init();
  if (!handle_) return error("cannot start", "libcurl");
  curl_ = std::move(curl);
  return {};
}

Error HttpClient::ask(const ClientRequest& request, const Sink& sink, ClientResponse* out, Error* sink_error) {
  std::string url = request.url;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    *out = {};
    *sink_error = {};
    Transfer transfer{sink, *out, *sink_error, url};
    const CURLcode code = perform(*curl_, handle_, url, request, &transfer);
    if (*sink_error) return {};
    if (code != CURLE_OK) {
      const std::string where = url == request.url ? url : request.url + " redirected to \"" + url + "\"";
      return error(curl_->easy_strerror(code), where);
    }
    curl_off_t retry_after_s = 0;
    curl_->easy_getinfo(handle_, CURLINFO_RETRY_AFTER, &retry_after_s);
    out->retry_after_s = retry_after_s;
    const char* next = nullptr;
    curl_->easy_getinfo(handle_, CURLINFO_REDIRECT_URL, &next);
    if (!next || !request.body.empty()) return {};
    url = next;
  }
  return error("too many redirects", request.url, at_most(kMaxRedirects));
}

}  // namespace pinion
