#include "apps/cli/board_speed.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/cli/console.h"
#include "apps/cli/output_file.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"
#include "loader/files/user_folders.h"

namespace pinion {
namespace {

constexpr int64_t kFormat = 1;
constexpr int64_t kMostBytes = 4096;
constexpr double kMostGbPerSecond = 1e6;

}  // namespace

std::string board_speed_file() {
  std::array<char, 256> host = {};
  const std::string folder = default_config_folder();
  if (folder.empty() || gethostname(host.data(), host.size() - 1) != 0) return {};
  return folder + "/boards/" + host.data() + ".json";
}

double kept_board_speed() {
  const std::string path = board_speed_file();
  std::string text;
  Json json;
  if (path.empty() || read_text_file(path, kMostBytes, &text) || parse_json(text, path, &json)) return 0;
  JsonFields fields{json, path};
  const int64_t format = fields.integer("format");
  const double speed = fields.number("read_gb_per_s", {}, 0, kMostGbPerSecond);
  return fields.error || format != kFormat ? 0 : speed * 1e9;
}

Error keep_board_speed(double bytes_per_second) {
  const std::string path = board_speed_file();
  if (path.empty()) return error("no folder for the result", "tune", "HOME or XDG_CONFIG_HOME");
  std::error_code code;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(folder, code);
  if (code) return error("cannot make the folder", folder.string(), {}, code.message());
  const OrderedJson json = {{"format", kFormat}, {"read_gb_per_s", bytes_per_second / 1e9}};
  return write_output_file(path, json.dump(2) + "\n");
}

Error forget_board_speed() {
  const std::string path = board_speed_file();
  std::error_code code;
  std::filesystem::remove(path, code);
  return code ? error("cannot remove", path, {}, code.message()) : Error{};
}

}  // namespace pinion
