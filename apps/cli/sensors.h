// What the board says about itself while it works: clock, temperature, energy. Whatever it does not say is absent.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pinion {

struct EnergyCounter {
  std::string path;  // of a number of microjoules that only rises
  double wraps_at;   // microjoules; 0: never
};

// The files that are there and can be read.
struct Sensors {
  std::vector<std::string> clocks;        // kHz, one for each CPU of the team
  std::vector<std::string> temperatures;  // thousandths of a degree, of the processor where that is known
  std::vector<EnergyCounter> energy;
};

// `cpus` without a number in it (-1): all of them. `sysfs` is /sys but in tests.
Sensors find_sensors(const std::string& sysfs, std::span<const int32_t> cpus);

struct SensorSample {
  std::optional<double> mhz;      // mean of the clocks
  std::optional<double> celsius;  // the hottest
  std::vector<double> energy;     // microjoules of each counter; empty: none, or one could not be read
};

SensorSample read_sensors(const Sensors& sensors);

// Joules between two samples.
std::optional<double> joules_between(const Sensors& sensors, const SensorSample& before, const SensorSample& after);

struct ClockRange {
  double first_mhz;
  double least_mhz;
  bool throttled() const { return least_mhz < 0.9 * first_mhz; }
};

// What keeps these CPUs below their full clock, a line each with what to do about it. Only what the board says: none of
// it says everything. Sources: Linux, Documentation/admin-guide/pm/cpufreq.rst and intel_pstate.rst (governors),
// driver-api/thermal/sysfs-api.rst (cooling devices), hwmon/raspberrypi-hwmon.rst (the supply).
std::vector<std::string> clock_limits(const std::string& sysfs, std::span<const int32_t> cpus);

}  // namespace pinion
