// Logic of `pinion tune`: candidate teams and chunks, the choice among them, and the text of the tune file. Pure
// functions; the command in apps/ measures, and reads and writes the file.
#pragma once

#include "engine/team/topology.h"
#include "kernels/base/error.h"

namespace pinion {

// Distinct sets of CPUs to measure, the default team first: 1, 2, a quarter, half, three quarters and all cores of the
// fastest kind, then all of these with half and all of the next kind, and so on. Sets of whole kinds also come with the
// cores' sibling threads. No set exceeds the container's quota.
std::vector<std::vector<int32_t>> candidate_teams(const Topology& topology);

// Prefill chunks to measure with a prompt of that length, the default first.
std::vector<int64_t> candidate_chunks(int64_t prompt_tokens, int64_t default_chunk);

// One candidate's measurements.
struct Measured {
  int64_t size = 0;  // number of threads, or of tokens per pass; the smaller candidate wins a tie
  bool is_default = false;
  std::vector<double> rates = {};  // tokens/s, one per round
};

// Index of the fastest candidate by median. Among those within 2 % of it, the default wins, else the smallest.
size_t best_candidate(std::span<const Measured> candidates);

// True if the candidate's best round is over 10 % slower than the fastest median; never for the default.
bool is_clearly_behind(const Measured& candidate, std::span<const Measured> candidates);

struct TunedTeam {
  std::vector<int32_t> cpus;
  double rate = 0;          // tokens/s
  double default_rate = 0;  // of the default team and chunk in the same run
};

struct TunedMachine {
  std::string machine;  // machine_key
  TunedTeam decode;
  TunedTeam prefill;
  int64_t prefill_chunk = 0;
  std::string access;                 // name of a row of kAccessPatterns; empty: the default
  std::string model, quant, kernels;  // of the measurement
  std::string date;                   // "2026-11-21"
  std::string version;                // of the program
};

// Identifies the machine for which a result holds: name of the CPU, usable cores by kind, last-level caches, quota.
std::string machine_key(std::string_view cpu_name, const Topology& topology);

// The file: {"format": 1, "machines": [...]}. Reading checks every field; `where` names the file in errors.
std::string tune_file_text(std::span<const TunedMachine> machines);
Error parse_tune_file(std::string_view text, const std::string& where, std::vector<TunedMachine>* out);

// The entry of a machine; null: none.
const TunedMachine* find_machine(std::span<const TunedMachine> machines, std::string_view key);

// Fails if an entry, written by hand for example, has CPUs that the process may not use.
Error check_usable(const TunedMachine& machine, const Topology& topology);

}  // namespace pinion
