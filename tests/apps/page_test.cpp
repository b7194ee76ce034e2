// The web page of the server: its files and, if Chromium is installed, its use.
#include "apps/serve/api.h"
#include "apps/serve/http.h"
#include "tests/apps/server.h"

namespace pinion {
namespace {

const std::vector<std::pair<std::string, std::string>> kFiles = {
    {"/", "text/html"},
    {"/style.css", "text/css"},
    {"/app.js", "text/javascript"},
    {"/chats.js", "text/javascript"},
    {"/client.js", "text/javascript"},
    {"/markdown.js", "text/javascript"},
    {"/messages.js", "text/javascript"},
    {"/settings.js", "text/javascript"},
};

TEST(Page, IsPublicAndSelfContained) {
  const Folder folder;
  write_file(folder / "keys", "secret\n");
  Server server(kStories, {"--api-key-file", folder / "keys"});
  for (const auto& [path, type] : kFiles) {
    const httplib::Result result = server.client().Get(path);
    ASSERT_TRUE(result) << path;
    EXPECT_EQ(result->status, 200) << path;
    EXPECT_EQ(result->get_header_value("Content-Type"), type + "; charset=utf-8");
    EXPECT_EQ(result->get_header_value("X-Content-Type-Options"), "nosniff");
    const std::string policy = result->get_header_value("Content-Security-Policy");
    EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'self';")) << policy;
    EXPECT_EQ(policy.find("unsafe"), std::string::npos) << policy;
    EXPECT_EQ(policy.find('*'), std::string::npos) << policy;
    const std::string& text = result->body;
    EXPECT_EQ(text, read_file(PINION_SOURCE_DIR "/apps/serve/page/" + (path == "/" ? "index.html" : path.substr(1))));
    for (const char* other : {"http://", "https://", "\"//", "'//", "innerHTML", "insertAdjacentHTML", "eval("}) {
      EXPECT_EQ(text.find(other), std::string::npos) << path << ": " << other;
    }
  }
  // The page references the files above.
  const std::string page = server.get("/");
  for (const char* name : {"href=\"style.css\"", "src=\"app.js\""}) EXPECT_NE(page.find(name), std::string::npos);
}

// The page shows the status of loading and continues by itself.
TEST(Page, IsAvailableDuringLoading) {
  constexpr Route kRoutes[] = {{"GET", "/", Api::openai, show_page, true, true},
                               {"GET", "/v1/models", Api::openai, list_models}};
  HttpListener listener;
  HttpOptions options;
  options.port = 0;
  ASSERT_FALSE(listener.bind(options, kRoutes));
  ASSERT_FALSE(listener.listen());
  httplib::Client client("127.0.0.1", listener.port());
  const httplib::Result page = client.Get("/"), models = client.Get("/v1/models");
  ASSERT_TRUE(page && models);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(models->status, 503);
  EXPECT_EQ(json::parse(models->body)["error"]["message"], "the model is being loaded");
}

std::string find_program(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (std::system(("command -v " + name + " >/dev/null").c_str()) == 0) return name;
  }
  return {};
}

TEST(Page, WorksInABrowser) {
  if (!std::string_view(PINION_EMULATOR).empty()) GTEST_SKIP() << "the emulated server is too slow for a browser";
  const std::string browser = find_program({"chromium", "chromium-browser", "google-chrome"});
  if (browser.empty()) GTEST_SKIP() << "no Chromium on this machine";
  if (find_program({"python3"}).empty()) GTEST_SKIP() << "no python3 on this machine";
  const Folder folder;
  write_file(folder / "keys", "secret\n");
  Server server(kDemo), locked(kDemo, {"--api-key-file", folder / "keys"});
  ASSERT_TRUE(server.port() > 0 && locked.port() > 0);
  const auto url = [](const Server& one) { return "http://127.0.0.1:" + std::to_string(one.port()); };
  const std::string command = "python3 -B " PINION_SOURCE_DIR "/tests/apps/page_in_browser.py " + browser + " " +
                              url(server) + " " + url(locked) + " >" + quoted(folder / "out") + " 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << read_file(folder / "out");
}

}  // namespace
}  // namespace pinion
