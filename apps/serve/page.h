// The page that browsers are shown: plain files of apps/serve/page, built into the program.
#pragma once

#include <span>

#include "apps/serve/api.h"

namespace pinion {

struct PageFile {
  std::string_view name, text;
};
std::span<const PageFile> page_files();

Reply show_page(const Serving& serving, const HttpRequest& http);
Reply show_style(const Serving& serving, const HttpRequest& http);
Reply show_app(const Serving& serving, const HttpRequest& http);
Reply show_chats(const Serving& serving, const HttpRequest& http);
Reply show_client(const Serving& serving, const HttpRequest& http);
Reply show_markdown(const Serving& serving, const HttpRequest& http);
Reply show_messages(const Serving& serving, const HttpRequest& http);
Reply show_settings(const Serving& serving, const HttpRequest& http);

}  // namespace pinion
