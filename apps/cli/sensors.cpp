#include "apps/cli/sensors.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/team/topology.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

constexpr double kFullClock = 0.95;  // share of the maximum from which a clock counts as full

std::optional<double> read_number(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

// Entries of a folder whose name begins with `prefix`, sorted.
std::vector<fs::path> entries_of(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failure)) {
    if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

std::vector<fs::path> cpu_folders(const fs::path& sysfs, std::span<const int32_t> cpus) {
  const fs::path folder = sysfs / "devices/system/cpu";
  if (std::ranges::find(cpus, -1) != cpus.end()) return entries_of(folder, "cpu");
  std::vector<fs::path> found;
  for (const int32_t cpu : cpus) found.push_back(folder / ("cpu" + std::to_string(cpu)));
  return found;
}

// Zones named after a processor, or all zones if there is none: others belong to the battery or the radio.
std::vector<std::string> find_temperatures(const fs::path& sysfs) {
  constexpr const char* kProcessorNames[] = {"cpu", "soc", "pkg", "core", "cluster"};
  std::vector<std::string> all, processors;
  for (const fs::path& zone : entries_of(sysfs / "class/thermal", "thermal_zone")) {
    const std::string path = zone / "temp";
    if (!read_number(path)) continue;
    all.push_back(path);
    const auto is_named = [type = read_word(zone / "type")](const char* name) { return type.find(name) != type.npos; };
    if (std::ranges::any_of(kProcessorNames, is_named)) processors.push_back(path);
  }
  return processors.empty() ? all : processors;
}

// Whole packages only: they include their cores and memory.
std::vector<EnergyCounter> find_energy(const fs::path& sysfs) {
  std::vector<EnergyCounter> found;
  for (const fs::path& zone : entries_of(sysfs / "class/powercap", "")) {
    const std::string path = zone / "energy_uj";
    if (!read_word(zone / "name").starts_with("package") || !read_number(path)) continue;
    found.push_back({path, read_number(zone / "max_energy_range_uj").value_or(0)});
  }
  if (!found.empty()) return found;
  for (const fs::path& chip : entries_of(sysfs / "class/hwmon", "hwmon")) {
    for (const fs::path& input : entries_of(chip, "energy")) {
      const std::string name = input.filename();
      if (!name.ends_with("_input") || !read_number(input)) continue;
      const std::string label = read_word(chip / (name.substr(0, name.find('_')) + "_label"));
      if (!label.starts_with("Ecore")) found.push_back({input, 0});
    }
  }
  return found;
}

std::string mhz_text(double khz) { return std::to_string(static_cast<int64_t>(khz / 1e3)); }

// The command that writes `value` into a file of every CPU.
std::string write_command(const std::string& value, const std::string& file) {
  return "run: echo " + value + " | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/" + file;
}

// Empty: the governor is not known to limit the clock.
std::string governor_limit(const fs::path& cpufreq) {
  const std::string governor = read_word(cpufreq / "scaling_governor"), driver = read_word(cpufreq / "scaling_driver");
  // These leave the clock to the CPU: their governor "powersave" is the default and raises the clock under load.
  if (driver.starts_with("intel_pstate") || driver.starts_with("amd-pstate-epp")) {
    const std::string preference = read_word(cpufreq / "energy_performance_preference");
    if (!preference.ends_with("power")) return {};
    return "energy preference " + preference + "; " +
           write_command("balance_performance", "energy_performance_preference");
  }
  const std::string wanted = "governor " + governor + "; " + write_command("performance", "scaling_governor");
  if (governor == "powersave") return wanted;
  const std::optional<double> set = read_number(cpufreq / "scaling_setspeed");
  const std::optional<double> full = read_number(cpufreq / "cpuinfo_max_freq");
  return governor == "userspace" && set && full && *set < kFullClock * *full ? wanted : std::string();
}

// A configured maximum below the CPU's own.
std::string ceiling_limit(const fs::path& cpufreq) {
  const std::optional<double> ceiling = read_number(cpufreq / "scaling_max_freq");
  const std::optional<double> full = read_number(cpufreq / "cpuinfo_max_freq");
  if (!ceiling || !full || *ceiling >= kFullClock * *full) return {};
  return "at most " + mhz_text(*ceiling) + " of " + mhz_text(*full) + " MHz allowed; " +
         write_command(std::to_string(static_cast<int64_t>(*full)), "scaling_max_freq");
}

// Active cooling devices that work by lowering a CPU's clock.
void add_cooling(const fs::path& sysfs, std::vector<std::string>* out) {
  for (const fs::path& device : entries_of(sysfs / "class/thermal", "cooling_device")) {
    const std::string type = read_word(device / "type");
    if (type.find("cpufreq") == std::string::npos && type != "Processor") continue;
    const double state = read_number(device / "cur_state").value_or(0);
    if (state <= 0) continue;
    out->push_back("throttled by heat (" + type + " at step " + std::to_string(static_cast<int64_t>(state)) + " of " +
                   std::to_string(static_cast<int64_t>(read_number(device / "max_state").value_or(state))) +
                   "); cool the board");
  }
}

void add_supply(const fs::path& sysfs, std::vector<std::string>* out) {
  for (const fs::path& chip : entries_of(sysfs / "class/hwmon", "hwmon")) {
    if (read_word(chip / "name") == "rpi_volt" && read_number(chip / "in0_lcrit_alarm").value_or(0) > 0) {
      out->push_back("the supply's voltage was too low; use a stronger power supply");
    }
  }
}

}  // namespace

std::vector<std::string> clock_limits(const std::string& sysfs, std::span<const int32_t> cpus) {
  std::vector<std::pair<std::string, std::vector<int32_t>>> limits;  // with the CPUs concerned
  for (const fs::path& cpu : cpu_folders(sysfs, cpus)) {
    for (const std::string& limit : {governor_limit(cpu / "cpufreq"), ceiling_limit(cpu / "cpufreq")}) {
      if (limit.empty()) continue;
      auto same = std::ranges::find(limits, limit, &decltype(limits)::value_type::first);
      if (same == limits.end()) same = limits.insert(same, {limit, {}});
      same->second.push_back(std::atoi(cpu.filename().c_str() + std::strlen("cpu")));
    }
  }
  std::vector<std::string> lines;
  for (auto& [limit, limited] : limits) {
    std::ranges::sort(limited);
    lines.push_back("CPUs " + cpus_text(limited) + ": " + limit);
  }
  add_cooling(sysfs, &lines);
  add_supply(sysfs, &lines);
  return lines;
}

Sensors find_sensors(const std::string& sysfs, std::span<const int32_t> cpus) {
  Sensors found = {{}, find_temperatures(sysfs), find_energy(sysfs)};
  for (const fs::path& cpu : cpu_folders(sysfs, cpus)) {
    const std::string path = cpu / "cpufreq/scaling_cur_freq";
    if (read_number(path)) found.clocks.push_back(path);
  }
  return found;
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
    if (const auto microjoules = read_number(counter.path)) sample.energy.push_back(*microjoules);
  }
  if (sample.energy.size() < sensors.energy.size()) sample.energy.clear();
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
