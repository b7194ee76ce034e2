#include "apps/serve/page.h"

#include <algorithm>

namespace pinion {
namespace {

// A text of the model that became markup by some mistake could still load nothing, run nothing and send nothing away.
constexpr const char* kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

const char* media_type(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  return name.ends_with(".css") ? "text/css; charset=utf-8" : "text/javascript; charset=utf-8";
}

Reply file_reply(std::string_view name) {
  const std::span<const PageFile> files = page_files();
  const auto file = std::ranges::find(files, name, &PageFile::name);
  return {.type = media_type(name),
          .body = std::string(file->text),
          .headers = {{"Content-Security-Policy", kContentSecurityPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}}};
}

}  // namespace

Reply show_page(const Serving&, const HttpRequest&) { return file_reply("index.html"); }
Reply show_style(const Serving&, const HttpRequest&) { return file_reply("style.css"); }
Reply show_app(const Serving&, const HttpRequest&) { return file_reply("app.js"); }
Reply show_chats(const Serving&, const HttpRequest&) { return file_reply("chats.js"); }
Reply show_client(const Serving&, const HttpRequest&) { return file_reply("client.js"); }
Reply show_markdown(const Serving&, const HttpRequest&) { return file_reply("markdown.js"); }
Reply show_messages(const Serving&, const HttpRequest&) { return file_reply("messages.js"); }
Reply show_settings(const Serving&, const HttpRequest&) { return file_reply("settings.js"); }

}  // namespace pinion
