#include "apps/get/http.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <string_view>

namespace pinion {

// The functions in use, by their names in the library.
struct CurlLibrary {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_reset) easy_reset;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_perform) easy_perform;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
  decltype(&::curl_url) url;
  decltype(&::curl_url_set) url_set;
  decltype(&::curl_url_get) url_get;
  decltype(&::curl_url_cleanup) url_cleanup;
  decltype(&::curl_free) free;
};

namespace {

constexpr int kMaxRedirects = 10;
constexpr size_t kMaxPageBytes = size_t{1} << 20;

#ifdef PINION_STATIC  // linked with it

Error load(CurlLibrary* out) {
  *out = {curl_global_init,  curl_easy_init,    curl_easy_reset,    curl_easy_cleanup, curl_easy_setopt,
          curl_easy_perform, curl_easy_getinfo, curl_easy_strerror, curl_slist_append, curl_slist_free_all,
          curl_url,          curl_url_set,      curl_url_get,       curl_url_cleanup,  curl_free};
  return {};
}

// A distribution's libcurl knows where its certificates are; this one is to run on all of them.
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

template <class F>
bool find(void* library, const char* name, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  return *out != nullptr;
}

bool find_all(void* library, CurlLibrary* out) {
  return find(library, "curl_global_init", &out->global_init) && find(library, "curl_easy_init", &out->easy_init) &&
         find(library, "curl_easy_reset", &out->easy_reset) && find(library, "curl_easy_cleanup", &out->easy_cleanup) &&
         find(library, "curl_easy_setopt", &out->easy_setopt) &&
         find(library, "curl_easy_perform", &out->easy_perform) &&
         find(library, "curl_easy_getinfo", &out->easy_getinfo) &&
         find(library, "curl_easy_strerror", &out->easy_strerror) &&
         find(library, "curl_slist_append", &out->slist_append) &&
         find(library, "curl_slist_free_all", &out->slist_free_all) && find(library, "curl_url", &out->url) &&
         find(library, "curl_url_set", &out->url_set) && find(library, "curl_url_get", &out->url_get) &&
         find(library, "curl_url_cleanup", &out->url_cleanup) && find(library, "curl_free", &out->free);
}

Error load(CurlLibrary* out) {
  void* library = nullptr;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    if ((library = dlopen(name, RTLD_NOW)) != nullptr) break;
  }
  if (!library) return error("not installed", "libcurl", "libcurl.so.4: apt-get install libcurl4");
  if (!find_all(library, out)) return error("not one that can be used", "libcurl", "7.85 or newer");
  return {};
}

// It knows by itself.
const char* certificates() { return nullptr; }

#endif

// What one transfer's callbacks share. No exception may pass through libcurl.
struct Transfer {
  const Sink& sink;
  Response& response;
  Error& sink_error;
  const std::string& url;
};

// "HTTP/1.1 206 Partial Content" begins a response, "Content-Range: bytes 100-199/200" says where its body does.
size_t on_header(const char* data, size_t, size_t bytes, void* context) noexcept {
  Response& response = static_cast<Transfer*>(context)->response;
  const std::string_view line(data, bytes);
  const auto number_after = [&](size_t position, auto* out) {
    const size_t digit = line.find_first_of("0123456789", position);
    if (digit != line.npos) std::from_chars(line.data() + digit, line.data() + line.size(), *out);
  };
  const auto is_named = [&](std::string_view name) {
    if (line.size() < name.size()) return false;
    for (size_t i = 0; i < name.size(); ++i) {
      if ((line[i] | 0x20) != (name[i] | 0x20)) return false;
    }
    return true;
  };
  if (line.starts_with("HTTP/")) {
    response = {};
    number_after(line.find(' '), &response.status);
  } else if (is_named("content-range:")) {
    number_after(sizeof "content-range:" - 1, &response.from);
  }
  return bytes;
}

size_t on_body(const char* data, size_t, size_t bytes, void* context) noexcept {
  auto& transfer = *static_cast<Transfer*>(context);
  try {
    if (is_success(transfer.response)) {
      transfer.sink_error = transfer.sink(transfer.response, std::as_bytes(std::span(data, bytes)));
    } else if (transfer.response.page.append(data, bytes).size() > kMaxPageBytes) {  // it may never end
      transfer.sink_error =
          error("a page without end", transfer.url, {}, "HTTP " + std::to_string(transfer.response.status));
    }
  } catch (const std::exception& failure) {
    transfer.sink_error = error(failure.what(), "download");
  }
  return transfer.sink_error ? CURL_WRITEFUNC_ERROR : bytes;
}

// "https/host/443/"; empty where the URL is none.
std::string origin_of(const CurlLibrary& curl, const std::string& url) {
  std::string text;
  CURLU* parts = curl.url();
  if (curl.url_set(parts, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK) {
    for (const CURLUPart part : {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT}) {
      char* piece = nullptr;
      if (curl.url_get(parts, part, &piece, CURLU_DEFAULT_PORT) != CURLUE_OK) continue;
      text += std::string(piece) + "/";
      curl.free(piece);
    }
  }
  curl.url_cleanup(parts);
  return text;
}

// One request, of the URL itself or of one that a redirect named.
CURLcode perform(const CurlLibrary& curl, CURL* handle, const std::string& url, const Request& request,
                 Transfer* transfer) {
  const std::string home = origin_of(curl, request.url);
  const std::string range = std::to_string(request.from) + "-";
  const bool is_home = !home.empty() && origin_of(curl, url) == home;
  curl_slist* headers = nullptr;
  if (is_home && !request.token.empty()) {
    headers = curl.slist_append(headers, ("Authorization: Bearer " + request.token).c_str());
  }
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
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.most_idle_s));
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

bool is_success(const Response& response) { return response.status == 200 || response.status == 206; }

Error check_token(std::string_view token, const std::string& where) {
  if (std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; })) return {};
  return error("not a token", where, "printable characters without spaces");
}

Http::Http() = default;

Http::~Http() {
  if (handle_) curl_->easy_cleanup(handle_);
}

Error Http::open() {
  auto curl = std::make_unique<CurlLibrary>();
  if (Error e = load(curl.get())) return e;
  if (curl->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return error("cannot start", "libcurl");
  handle_ = curl->easy_init();
  if (!handle_) return error("cannot start", "libcurl");
  curl_ = std::move(curl);
  return {};
}

Error Http::ask(const Request& request, const Sink& sink, Response* out, Error* sink_error) {
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
  return error("too many redirects", request.url, "at most " + std::to_string(kMaxRedirects));
}

}  // namespace pinion
