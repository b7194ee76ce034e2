// The logic of `pinion tune`: which teams and chunks to try, which wins, and the text of the tune file. Pure functions:
// the command in apps/ does the timing and reads and writes the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/team/topology.h"
#include "kernels/base/error.h"

namespace pinion {

// The sets of CPUs worth a measurement, each once, the default team first. Cores come in the order of their kinds: of
// the fastest kind 1, 2, a quarter, half, three quarters and all, then with them half and all of the next, and so on.
// Whole kinds also with their cores' other hardware threads. None larger than what a container grants.
std::vector<std::vector<int32_t>> candidate_teams(const Topology& topology);

// Prefill chunks worth a measurement with a prompt of that length, the default first.
std::vector<int64_t> candidate_chunks(int64_t prompt_tokens, int64_t default_chunk);

// One candidate's measurements.
struct Measured {
  int64_t size = 0;  // threads, or tokens in one pass: the smaller wins a tie
  bool is_default = false;
  std::vector<double> rates = {};  // tokens a second, one a round
};

// The fastest by median; where others are within 2 % of it, the default or, if that is not among them, the smallest.
size_t best_of(std::span<const Measured> candidates);

// Whether to drop a candidate early: its best round is over 10 % slower than the fastest median. The default is never
// dropped: the result is compared with it.
bool is_clearly_behind(const Measured& candidate, std::span<const Measured> candidates);

// CPUs, and how fast they were, in tokens a second.
struct TunedTeam {
  std::vector<int32_t> cpus;
  double rate = 0;
  double default_rate = 0;  // of the default team, and of the default chunk, in the same run
};

struct TunedMachine {
  std::string machine;  // machine_key
  TunedTeam decode;
  TunedTeam prefill;
  int64_t prefill_chunk = 0;
  std::string access;                 // a row of kAccessPatterns; empty: the default
  std::string model, quant, kernels;  // with which it was measured
  std::string date;                   // "2026-11-21"
  std::string version;                // of the program
};

// What must be the same for a result to hold: the CPU's name, the cores that the process sees, by kind, their caches,
// the time that a container grants.
std::string machine_key(std::string_view cpu_name, const Topology& topology);

// The file: {"format": 1, "machines": [...]}. Reading checks every field; `where` names the file in errors.
std::string tune_file_text(std::span<const TunedMachine> machines);
Error parse_tune_file(std::string_view text, const std::string& where, std::vector<TunedMachine>* out);

// The entry of a machine; null where there is none.
const TunedMachine* find_machine(std::span<const TunedMachine> machines, std::string_view key);

// Also a file that somebody wrote by hand must name CPUs that the process may use.
Error check_usable(const TunedMachine& machine, const Topology& topology);

}  // namespace pinion
