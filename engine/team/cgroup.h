// The control groups of this process: where a container's limits are written.
#pragma once

#include <string>
#include <vector>

namespace pinion {

// The folders of the groups that limit this process: its own and all above it, for `controller` ("cpu", "memory") in
// version 1 and for all controllers in version 2. A container may see its group's path as on the host, but only its own
// group mounted as root: the walk up finds that. So some may not exist. `root`: of the file system, "" but in tests.
std::vector<std::string> cgroup_folders(const std::string& root, const std::string& controller);

}  // namespace pinion
