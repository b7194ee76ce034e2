#include "apps/bench/sensors.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace pinion {
namespace {

namespace fs = std::filesystem;

std::optional<double> read_number(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  if (!(file >> value)) return {};
  return value;
}

std::string read_word(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// Entries of a folder whose name begins with `prefix`, sorted.
std::vector<fs::path> entries(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failure)) {
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

std::vector<std::string> find_clocks(const fs::path& sysfs, std::span<const int32_t> cpus) {
  const fs::path folder = sysfs / "devices/system/cpu";
  std::vector<std::string> found;
  const auto add = [&](const fs::path& cpu) {
    const std::string path = cpu / "cpufreq/scaling_cur_freq";
    if (read_number(path)) found.push_back(path);
  };
  if (std::ranges::find(cpus, -1) != cpus.end()) {
    for (const fs::path& cpu : entries(folder, "cpu")) add(cpu);
  } else {
    for (const int32_t cpu : cpus) add(folder / ("cpu" + std::to_string(cpu)));
  }
  return found;
}

// A zone may be the battery's or the radio's: those named after a processor count, all only where none is.
std::vector<std::string> find_temperatures(const fs::path& sysfs) {
  std::vector<std::string> all, processors;
  for (const fs::path& zone : entries(sysfs / "class/thermal", "thermal_zone")) {
    const std::string path = zone / "temp";
    if (!read_number(path)) continue;
    all.push_back(path);
    const std::string type = read_word(zone / "type");
    for (const char* part : {"cpu", "soc", "pkg", "core", "cluster"}) {
      if (type.find(part) == std::string::npos) continue;
      processors.push_back(path);
      break;
    }
  }
  return processors.empty() ? all : processors;
}

// Whole packages: their cores and memory are counted inside them and would count twice.
std::vector<EnergyCounter> find_energy(const fs::path& sysfs) {
  std::vector<EnergyCounter> found;
  for (const fs::path& zone : entries(sysfs / "class/powercap", "")) {
    const std::string path = zone / "energy_uj";
    if (!read_word(zone / "name").starts_with("package") || !read_number(path)) continue;
    found.push_back({path, read_number(zone / "max_energy_range_uj").value_or(0)});
  }
  if (!found.empty()) return found;
  for (const fs::path& chip : entries(sysfs / "class/hwmon", "hwmon")) {
    for (const fs::path& input : entries(chip, "energy")) {
      const std::string name = input.filename();
      if (!name.ends_with("_input") || !read_number(input)) continue;
      const std::string label = read_word(chip / (name.substr(0, name.find('_')) + "_label"));
      if (!label.starts_with("Ecore")) found.push_back({input, 0});
    }
  }
  return found;
}

}  // namespace

Sensors find_sensors(const std::string& sysfs, std::span<const int32_t> cpus) {
  return {find_clocks(sysfs, cpus), find_temperatures(sysfs), find_energy(sysfs)};
}

SensorSample read_sensors(const Sensors& sensors) {
  SensorSample sample;
  double sum = 0, count = 0;
  for (const std::string& path : sensors.clocks) {
    const std::optional<double> khz = read_number(path);
    if (!khz || *khz <= 0) continue;
    sum += *khz / 1e3;
    ++count;
  }
  if (count > 0) sample.mhz = sum / count;
  for (const std::string& path : sensors.temperatures) {
    if (const std::optional<double> milli = read_number(path)) {
      sample.celsius = std::max(sample.celsius.value_or(-273), *milli / 1e3);
    }
  }
  for (const EnergyCounter& counter : sensors.energy) {
    const std::optional<double> microjoules = read_number(counter.path);
    if (!microjoules) {
      sample.energy.clear();
      break;
    }
    sample.energy.push_back(*microjoules);
  }
  return sample;
}

std::optional<double> joules_between(const Sensors& sensors, const SensorSample& before, const SensorSample& after) {
  if (before.energy.empty() || before.energy.size() != after.energy.size()) return {};
  double sum = 0;
  for (size_t i = 0; i < after.energy.size(); ++i) {
    double used = after.energy[i] - before.energy[i];
    if (used < 0) used += sensors.energy[i].wraps_at;
    if (used < 0) return {};
    sum += used;
  }
  return sum / 1e6;
}

}  // namespace pinion
