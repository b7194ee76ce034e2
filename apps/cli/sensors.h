// Sensors of the machine from sysfs: clock, temperature, energy. Values that it does not report are absent.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pinion {

struct EnergyCounter {
  std::string path;  // file with a growing number of microjoules
  double wraps_at;   // microjoules; 0: never
};

// The readable sensor files.
struct Sensors {
  std::vector<std::string> clocks;        // kHz, one file for each CPU of the team
  std::vector<std::string> temperatures;  // thousandths of a degree Celsius; the processor's zones if identifiable
  std::vector<EnergyCounter> energy;
};

// A -1 in `cpus` means all CPUs. `sysfs` is /sys, except in tests.
Sensors find_sensors(const std::string& sysfs, std::span<const int32_t> cpus);

struct SensorSample {
  std::optional<double> mhz;      // mean of the clocks
  std::optional<double> celsius;  // maximum of the temperatures
  std::vector<double> energy;     // microjoules of each counter; empty: no counters, or one could not be read
};

SensorSample read_sensors(const Sensors& sensors);

// Joules between two samples.
std::optional<double> joules_between(const Sensors& sensors, const SensorSample& before, const SensorSample& after);

struct ClockRange {
  double first_mhz;
  double min_mhz;
  bool throttled() const { return min_mhz < 0.9 * first_mhz; }
};

// Reported reasons why these CPUs stay below their full clock, one line each with a remedy. No board reports all of
// them. Sources: Linux, Documentation/admin-guide/pm/cpufreq.rst and intel_pstate.rst (governors),
// driver-api/thermal/sysfs-api.rst (cooling devices), hwmon/raspberrypi-hwmon.rst (power supply).
std::vector<std::string> clock_limits(const std::string& sysfs, std::span<const int32_t> cpus);

}  // namespace pinion
