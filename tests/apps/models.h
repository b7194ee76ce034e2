// Servers of several models.
#pragma once

#include "tests/apps/server.h"

namespace pinion {

// Both tiny models, the first with a longer context, and a copy.
struct ModelFolders : Folder {
  ModelFolders() {
    fs::copy(kDemo, path / "demo");
    fs::copy(kStories, path / "stories260k");
    fs::copy(kStories, path / "other");
    json config = read_json(path / "demo/config.json");
    config["max_position_embeddings"] = 8192;
    write_file(path / "demo/config.json", config.dump());
  }
};

inline const std::vector<std::string> kNames = {"demo", "stories260k", "other"};

inline json request(const std::string& model, int seed = 1) {
  return {{"model", model}, {"prompt", "Once upon a time"}, {"max_tokens", 30}, {"seed", seed}, {"temperature", 1}};
}

inline std::string completed(const Server& server, const json& body) {
  const json reply = server.post("/v1/completions", body);
  EXPECT_EQ(reply["model"], body["model"]);
  return reply["choices"][0]["text"];
}

inline std::string status(const Server& server, const std::string& model) {
  return json::parse(server.get("/v1/models/" + model))["status"]["value"];
}

inline std::vector<std::string> loaded(const Server& server) {
  std::vector<std::string> names;
  const json models = json::parse(server.get("/v1/models"))["data"];
  for (const json& model : models) {
    if (model["status"]["value"] == "loaded") names.push_back(model["id"]);
  }
  return names;
}

using Names = std::vector<std::string>;

}  // namespace pinion
