#include "engine/team/cgroup.h"

#include <fstream>

namespace pinion {

std::vector<std::string> cgroup_folders(const std::string& root, const std::string& controller) {
  std::vector<std::string> folders;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path", with version 1 also "4:cpu,cpuacct:/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_version_1 = controllers.find("," + controller + ",") != std::string::npos;
    if (!is_version_1 && controllers != ",,") continue;
    const std::string mount = root + "/sys/fs/cgroup" + (is_version_1 ? "/" + controller : "");
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    folders.push_back(mount + path);
    while (path.rfind('/') != std::string::npos) {
      path.resize(path.rfind('/'));
      folders.push_back(mount + path);
    }
  }
  return folders;
}

}  // namespace pinion
