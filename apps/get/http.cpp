#include "apps/get/http.h"

#include <curl/curl.h>
#include <dlfcn.h>

#include <charconv>
#include <exception>
#include <string_view>

namespace pinion {

// The functions in use, by their names in the library.
struct Http::Library {
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

template <class F>
bool load(void* library, const char* name, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  return *out != nullptr;
}

// What one transfer's callbacks share. No exception may pass through libcurl.
struct Transfer {
  const Sink& sink;
  Response& response;
  Error& sink_error;
};

bool is_success(const Response& response) { return response.status == 200 || response.status == 206; }

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
  const auto& transfer = *static_cast<Transfer*>(context);
  if (!is_success(transfer.response)) return bytes;  // a page for people
  try {
    transfer.sink_error = transfer.sink(transfer.response, std::as_bytes(std::span(data, bytes)));
  } catch (const std::exception& failure) {
    transfer.sink_error = error(failure.what(), "download");
  }
  return transfer.sink_error ? CURL_WRITEFUNC_ERROR : bytes;
}

}  // namespace

Http::Http() = default;

Http::~Http() {
  if (handle_) curl_->easy_cleanup(handle_);
}

Error Http::open() {
  void* library = nullptr;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    if ((library = dlopen(name, RTLD_NOW)) != nullptr) break;
  }
  if (!library) return error("libcurl is not installed", "get", "libcurl.so.4: apt-get install libcurl4");
  auto curl = std::make_unique<Library>();
  const bool is_whole =
      load(library, "curl_global_init", &curl->global_init) && load(library, "curl_easy_init", &curl->easy_init) &&
      load(library, "curl_easy_reset", &curl->easy_reset) && load(library, "curl_easy_cleanup", &curl->easy_cleanup) &&
      load(library, "curl_easy_setopt", &curl->easy_setopt) &&
      load(library, "curl_easy_perform", &curl->easy_perform) &&
      load(library, "curl_easy_getinfo", &curl->easy_getinfo) &&
      load(library, "curl_easy_strerror", &curl->easy_strerror) &&
      load(library, "curl_slist_append", &curl->slist_append) &&
      load(library, "curl_slist_free_all", &curl->slist_free_all) && load(library, "curl_url", &curl->url) &&
      load(library, "curl_url_set", &curl->url_set) && load(library, "curl_url_get", &curl->url_get) &&
      load(library, "curl_url_cleanup", &curl->url_cleanup) && load(library, "curl_free", &curl->free);
  if (!is_whole || curl->global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return error("this libcurl cannot be used", "get", "7.85 or newer");
  }
  handle_ = curl->easy_init();
  if (!handle_) return error("libcurl cannot start", "get");
  curl_ = std::move(curl);
  return {};
}

Error Http::get(const Request& request, const Sink& sink, Response* out, Error* sink_error) {
  // "https://host:443", empty where the URL is none.
  const auto origin = [&](const std::string& url) {
    std::string text;
    CURLU* parts = curl_->url();
    if (curl_->url_set(parts, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK) {
      for (const CURLUPart part : {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT}) {
        char* piece = nullptr;
        if (curl_->url_get(parts, part, &piece, CURLU_DEFAULT_PORT) != CURLUE_OK) continue;
        text += std::string(piece) + "/";
        curl_->free(piece);
      }
    }
    curl_->url_cleanup(parts);
    return text;
  };
  const std::string home = origin(request.url);
  const bool is_https = home.starts_with("https/");  // and stays so
  const std::string range = std::to_string(request.from) + "-";
  std::string url = request.url;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    *out = {};
    *sink_error = {};
    Transfer transfer{sink, *out, *sink_error};
    curl_slist* headers = nullptr;
    if (!request.token.empty() && !home.empty() && origin(url) == home) {
      headers = curl_->slist_append(nullptr, ("Authorization: Bearer " + request.token).c_str());
    }
    curl_->easy_reset(handle_);
    const auto set = [&](CURLoption option, auto value) { curl_->easy_setopt(handle_, option, value); };
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_PROTOCOLS_STR, is_https ? "https" : "http,https");
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_USERAGENT, "pinion/" PINION_VERSION);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, 30L);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, 60L);
    if (request.from > 0) set(CURLOPT_RANGE, range.c_str());
    set(CURLOPT_HEADERFUNCTION, on_header);
    set(CURLOPT_HEADERDATA, &transfer);
    set(CURLOPT_WRITEFUNCTION, on_body);
    set(CURLOPT_WRITEDATA, &transfer);
    const CURLcode code = curl_->easy_perform(handle_);
    curl_->slist_free_all(headers);
    if (*sink_error) return {};
    if (code != CURLE_OK) return error(curl_->easy_strerror(code), url);
    curl_off_t retry_after_s = 0;
    curl_->easy_getinfo(handle_, CURLINFO_RETRY_AFTER, &retry_after_s);
    out->retry_after_s = retry_after_s;
    const char* next = nullptr;
    curl_->easy_getinfo(handle_, CURLINFO_REDIRECT_URL, &next);
    if (!next) return {};
    url = next;
  }
  return error("too many redirects", request.url, "at most " + std::to_string(kMaxRedirects));
}

}  // namespace pinion
