#include "engine/measure/tuning.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "engine/measure/statistics.h"
#include "loader/files/json.h"

namespace pinion {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Cpus = std::vector<int32_t>;

constexpr int kFormat = 1;       // raised when a field changes its meaning; files of other formats are not used
constexpr double kTie = 0.98;    // see best_candidate()
constexpr double kBehind = 0.9;  // see is_clearly_behind()
constexpr int64_t kMaxCpus = 4096;
constexpr int64_t kMaxChunk = 65536;

Cpus first_cpus(std::span<const Core> cores) {
  Cpus cpus;
  for (const Core& core : cores) cpus.push_back(core.cpu);
  return cpus;
}

// All hardware threads, the first one of each core before the siblings: a shortened team keeps one worker per core.
Cpus all_cpus(std::span<const Core> cores) {
  Cpus cpus = first_cpus(cores);
  for (const Core& core : cores) cpus.insert(cpus.end(), core.siblings.begin(), core.siblings.end());
  return cpus;
}

OrderedJson team_json(const TunedTeam& team) {
  return {{"cpus", team.cpus}, {"tokens_per_second", team.rate}, {"default_tokens_per_second", team.default_rate}};
}

double fastest_median(std::span<const Measured> candidates) {
  double fastest = 0;
  for (const Measured& candidate : candidates) fastest = std::max(fastest, median_of(candidate.rates));
  return fastest;
}

TunedTeam read_team(JsonFields fields) {
  TunedTeam team;
  for (const int64_t cpu : fields.integers("cpus", 0, kMaxCpus)) {
    if (std::ranges::find(team.cpus, cpu) != team.cpus.end()) fields.fail("cpus", "CPU listed twice");
    team.cpus.push_back(static_cast<int32_t>(cpu));
  }
  if (team.cpus.empty()) fields.fail("cpus", "missing field");
  team.rate = fields.number("tokens_per_second", {}, 0);
  team.default_rate = fields.number("default_tokens_per_second", {}, 0);
  return team;
}

Error read_machine(const Json& json, const std::string& where, TunedMachine* out) {
  JsonFields fields{json, where};
  out->machine = fields.text("machine");
  out->decode = read_team(fields.fields("decode"));
  out->prefill = read_team(fields.fields("prefill"));
  out->prefill_chunk = fields.integer("prefill_chunk", {}, 1, kMaxChunk);
  out->access = fields.text("access", "");  // absent from older files
  out->model = fields.text("model");
  out->quant = fields.text("quant");
  out->kernels = fields.text("kernels");
  out->date = fields.text("date");
  out->version = fields.text("version");
  return fields.error;
}

}  // namespace

std::vector<Cpus> candidate_teams(const Topology& topology) {
  std::vector<Core> cores = topology.cores;
  // Sorted by package, too: half of a machine with two sockets is then one socket, with its memory.
  std::ranges::sort(cores, {}, [](const Core& core) { return std::tuple(core.kind, core.package, core.cpu); });
  std::vector<Cpus> teams = {default_team(topology)};
  const double limit = topology.cpu_quota > 0 ? std::max(1.0, topology.cpu_quota) : std::numeric_limits<double>::max();
  const auto add = [&](const Cpus& cpus) {
    const bool is_known =
        std::ranges::any_of(teams, [&](const Cpus& team) { return std::ranges::is_permutation(team, cpus); });
    if (!is_known && !cpus.empty() && static_cast<double>(cpus.size()) <= limit) teams.push_back(cpus);
  };
  const std::span<const Core> all = cores;
  size_t faster = 0;
  for (int32_t kind = 0; kind < topology.kinds; ++kind) {
    const auto n = static_cast<size_t>(std::ranges::count(cores, kind, &Core::kind));
    const std::vector<size_t> counts = kind == 0
                                           ? std::vector<size_t>{1, std::min<size_t>(2, n), n / 4, n / 2, n * 3 / 4, n}
                                           : std::vector<size_t>{n / 2, n};
    for (const size_t count : counts) add(first_cpus(all.first(faster + count)));
    faster += n;
    add(all_cpus(all.first(faster)));
  }
  return teams;
}

std::vector<int64_t> candidate_chunks(int64_t prompt_tokens, int64_t default_chunk) {
  std::vector<int64_t> chunks = {default_chunk};
  for (const int64_t chunk : {32, 64, 128, 512, 1024}) {
    // A chunk that is longer than the prompt, also the default one, acts like a chunk of the prompt's length.
    if (chunk <= prompt_tokens && chunk != std::min(prompt_tokens, default_chunk)) chunks.push_back(chunk);
  }
  return chunks;
}

size_t best_candidate(std::span<const Measured> candidates) {
  const double fastest = fastest_median(candidates);
  const auto rank = [&](const Measured& candidate) {
    const double rate = median_of(candidate.rates);
    return std::tuple(rate < fastest * kTie, !candidate.is_default, candidate.size, -rate);
  };
  return std::ranges::min_element(candidates, {}, rank) - candidates.begin();
}

bool is_clearly_behind(const Measured& candidate, std::span<const Measured> candidates) {
  if (candidate.is_default || candidate.rates.empty()) return false;
  const double fastest = fastest_median(candidates);
  return std::ranges::max(candidate.rates) < fastest * kBehind;
}

std::string machine_key(std::string_view cpu_name, const Topology& topology) {
  std::ostringstream key;
  key << cpu_name << "; CPUs " << cpus_text(topology.cpus);
  for (int32_t kind = 0; kind < topology.kinds; ++kind) {
    std::vector<Core> cores = topology.cores;
    std::erase_if(cores, [kind](const Core& core) { return core.kind != kind; });
    key << "; cores of kind " << kind << ": " << cpus_text(first_cpus(cores));
  }
  key << "; last-level caches: " << topology.last_level_cache_bytes;
  if (topology.cpu_quota > 0) key << "; quota: " << topology.cpu_quota;
  return key.str();
}

std::string tune_file_text(std::span<const TunedMachine> machines) {
  OrderedJson list = OrderedJson::array();
  for (const TunedMachine& each : machines) {
    list.push_back({{"machine", each.machine},
                    {"decode", team_json(each.decode)},
                    {"prefill", team_json(each.prefill)},
                    {"prefill_chunk", each.prefill_chunk},
                    {"access", each.access},
                    {"model", each.model},
                    {"quant", each.quant},
                    {"kernels", each.kernels},
                    {"date", each.date},
                    {"version", each.version}});
  }
  const OrderedJson file = {{"format", kFormat}, {"machines", list}};
  return file.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

Error parse_tune_file(std::string_view text, const std::string& where, std::vector<TunedMachine>* out) {
  out->clear();
  Json json;
  if (Error e = parse_json(text, where, &json)) return e;
  JsonFields fields{json, where};
  const int64_t format = fields.integer("format");
  if (fields.error) return fields.error;
  if (format != kFormat) {
    return error("written by another version of the program", where, "format " + std::to_string(kFormat), format);
  }
  const Json* list = fields.find("machines");
  if (!list || !list->is_array()) return error("no list of machines", where);
  std::vector<TunedMachine> machines;
  for (const Json& item : *list) {
    const std::string entry = where + ": machine " + std::to_string(machines.size());
    if (Error e = read_machine(item, entry, &machines.emplace_back())) return e;
  }
  *out = std::move(machines);
  return {};
}

const TunedMachine* find_machine(std::span<const TunedMachine> machines, std::string_view key) {
  const auto found = std::ranges::find(machines, key, &TunedMachine::machine);
  return found == machines.end() ? nullptr : &*found;
}

Error check_usable(const TunedMachine& machine, const Topology& topology) {
  for (const TunedTeam* team : {&machine.decode, &machine.prefill}) {
    for (const int32_t cpu : team->cpus) {
      if (std::ranges::find(topology.cpus, cpu) != topology.cpus.end()) continue;
      return error("CPU not available to this process", "tuned team", cpus_text(topology.cpus), cpu);
    }
  }
  return {};
}

}  // namespace pinion
