// pinion cpu: describes the machine: cores and their kinds, CPU features, kernel tables, teams, memory.
#include "kernels/cpu.h"

#include <nlohmann/json.hpp>

#include "apps/cli/sensors.h"
#include "apps/commands.h"
#include "apps/model/build.h"
#include "engine/measure/bandwidth.h"
#include "engine/team/memory.h"
#include "engine/team/topology.h"
#include "kernels/access_pattern.h"
#include "tokenizer/templates/limited_run.h"

namespace pinion {
namespace {

struct CpuOptions {
  RunOptions run;
  std::string topology;  // folder with a copy of another machine's /sys and /proc; empty: this machine
  bool bandwidth = false;
  bool json = false;
};

OrderedJson cores_json(const Topology& topology) {
  OrderedJson list = OrderedJson::array();
  for (const Core& core : topology.cores) {
    list.push_back({{"cpu", core.cpu}, {"kind", core.kind}, {"package", core.package}, {"max_mhz", core.max_mhz}});
  }
  return list;
}

OrderedJson kernels_json(const Kernels& chosen) {
  OrderedJson list = OrderedJson::array();
  const uint32_t features = cpu_features();
  for (const Variant& variant : kernel_variants()) {
    list.push_back({{"name", variant.name},
                    {"chosen", std::string_view(chosen.name) == variant.name},
                    {"missing", feature_names(variant.needs & ~features)}});
  }
  return list;
}

OrderedJson access_json(const AccessPattern& pattern) {
  return {{"name", pattern.name},
          {"suits", pattern.suits},
          {"streams", pattern.streams},
          {"rows_ahead", pattern.rows_ahead},
          {"load_bytes", pattern.load_bytes},
          {"w4_streams", pattern.w4_panels},
          {"w4_records_ahead", pattern.w4_records_ahead}};
}

// The cores of the machine at `root`, and the plan for them.
OrderedJson cores_report(const Topology& topology, const Plan& plan, const Tuning& tuning, const std::string& root) {
  // The state of the tune file: "none", "used" or the reason why it is not used.
  const std::string state = tuning.machine ? "used" : tuning.reason ? tuning.reason.message() : "none";
  const OrderedJson file = tuning.path.empty() ? OrderedJson(nullptr) : OrderedJson(tuning.path);
  return {{"cores", cores_json(topology)},
          {"kinds", topology.kinds},
          {"cpu_quota", topology.cpu_quota},
          {"team", plan.decode.cpus},
          {"prefill_team", plan.prefill.cpus},
          {"why_team", plan.why_team},
          {"prefill_chunk", plan.prefill_chunk},
          {"why_prefill_chunk", plan.why_chunk},
          {"default_team", default_team(topology)},
          {"why_default_team", why_default_team(topology)},
          {"tuning", {{"file", file}, {"state", state}}},
          {"clock_limits", clock_limits(root + "/sys", topology.cpus)},
          {"last_level_cache_bytes", topology.last_level_cache_bytes},
          {"memory_nodes", topology.memory_nodes}};
}

int run_recorded(const CpuOptions& options) {
  const std::string& root = options.topology;
  std::error_code code;
  if (!std::filesystem::is_directory(root + "/sys/devices/system/cpu", code)) {
    return fail(error("no copy of a machine", root, "a folder with its sys/devices/system/cpu"));
  }
  Topology topology;
  if (Error e = read_topology(&topology, root)) return fail(e);
  Plan plan;
  if (Error e = make_plan(options.run, topology, {}, &plan)) return fail(e);
  OrderedJson report = {{"cpu", root}};
  report.update(cores_report(topology, plan, {}, root));
  return print_report(report, options.json, "cpu");
}

int run_cpu(const CpuOptions& options) {
  if (!options.topology.empty()) return run_recorded(options);
  Topology topology;
  if (Error e = read_topology(&topology)) return fail(e);
  const Kernels* chosen = nullptr;
  if (Error e = select_kernels(options.run.kernels_name, &chosen)) return fail(e);
  const Tuning tuning = read_tuning(topology);
  Plan plan;
  if (Error e = make_plan(options.run, topology, tuning, &plan)) return fail(e);
  const FreeMemory free = free_memory();
  OrderedJson report = {{"cpu", cpu_name()},
                        {"features", feature_names(cpu_features())},
                        {"access_pattern", access_json(kAccessPatterns[plan.access])},
                        {"kernels", kernels_json(*chosen)},
                        {"not_built", OrderedJson::array()},
                        {"memory_bytes", total_memory_bytes()},
                        {"available_bytes", free.bytes},
                        {"available_limit", free.limit},
                        {"filters_calls", can_filter_calls()},
                        {"compiler", compiler_name()},
                        {"version", PINION_VERSION}};
  report.update(cores_report(topology, plan, tuning, ""));
#if defined(PINION_NO_SME2)
  report["not_built"].push_back("sme2");
#endif
  if (options.bandwidth) {
    if (Error e = check_threads(std::ssize(plan.decode.cpus))) return fail(e);
    Team workers(plan.decode.cpus, plan.decode.sme, plan.decode.slowness);
    ReadBuffer buffer;
    if (Error e = allocate_read_buffer(workers, roof_buffer_bytes(), &buffer)) return fail(e);
    report["read_gb_per_s"] = read_bandwidth(workers, buffer, 5) / 1e9;
    report["barrier_us"] = barrier_seconds(workers, 21) * 1e6;
  }
  return print_report(report, options.json, "cpu");
}

}  // namespace

Run setup_cpu(Command app) {
  auto options = std::make_shared<CpuOptions>();
  add_threads_option(app, &options->run);
  add_speed_options(app, &options->run);
  Option bandwidth = app.add_flag("--bandwidth", options->bandwidth);
  app.add_path("--topology DIR", options->topology).excludes(bandwidth);
  app.add_flag("--json", options->json);
  return {[options] { return run_cpu(*options); }};
}

}  // namespace pinion
