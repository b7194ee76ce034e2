// pinion tune: measurements and the tune file, its use by later runs, and that a bad file never stops a run.
#include <set>

#include "tests/apps/program.h"

namespace pinion {
namespace {

struct Home : Folder {
  std::string file() const { return path / "pinion/tune.json"; }
  Outcome run(const std::vector<std::string>& arguments) const { return run_pinion(arguments, "", "", path); }
  json run_json(const std::vector<std::string>& arguments) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  }
};

const std::vector<std::string> kTune = {"tune", "--model", kStories, "--no-cache", "--seconds", "1"};

std::vector<std::string> tune(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = kTune;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> generate(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"generate", "--model",      kStories, "--no-cache", "--prompt",
                                        "Once",     "--max-tokens", "24",     "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string machine() {
  static const std::string key = run_json(tune({"--dry-run", "--json"}))["machine"];
  return key;
}

// A tune file with one worker and a chunk of 7, which no measurement would give.
json hand_made() {
  const int cpu = run_json({"cpu", "--json"})["default_team"].back();
  const json team = {{"cpus", json::array({cpu})}, {"tokens_per_second", 20}, {"default_tokens_per_second", 10}};
  const json one = {{"machine", machine()}, {"decode", team},       {"prefill", team},
                    {"prefill_chunk", 7},   {"model", "m"},         {"quant", "w8a8"},
                    {"kernels", "k"},       {"date", "2026-11-21"}, {"version", "0"}};
  return {{"format", 1}, {"machines", json::array({one})}};
}

void put(const Home& home, const std::string& text) {
  fs::create_directories(home.path / "pinion");
  write_file(home.file(), text);
}

TEST(Tune, LaterRunsUseTheResult) {
  const Home home;
  const json result = home.run_json(tune({"--json"}));
  EXPECT_EQ(result["file"], home.file());
  for (const char* part : {"decode_teams", "decode", "prefill_teams", "prefill"}) {
    int chosen = 0, defaults = 0;
    for (const json& trial : result[part]) {
      chosen += trial["chosen"] == true;
      defaults += trial["default"] == true;
      EXPECT_GT(trial["tokens_per_second"], 0.0);
      EXPECT_GE(trial["rounds"], 2);
    }
    EXPECT_EQ(chosen, 1);
    EXPECT_EQ(defaults, 1);
  }
  const json kept = read_json(home.file())["machines"][0];
  EXPECT_EQ(kept["machine"], result["machine"]);
  EXPECT_EQ(kept["model"], "stories260k");
  const json cpu = home.run_json({"cpu", "--json"});
  EXPECT_EQ(cpu["tuning"]["state"], "used");
  EXPECT_EQ(cpu["team"], kept["decode"]["cpus"]);
  EXPECT_EQ(cpu["prefill_team"], kept["prefill"]["cpus"]);
  EXPECT_EQ(cpu["prefill_chunk"], kept["prefill_chunk"]);
  EXPECT_EQ(cpu["access_pattern"]["name"], kept["access"]);
  std::set<std::string> patterns;
  for (const json& trial : result["decode"]) patterns.insert(trial["access"]);
  EXPECT_GE(patterns.size(), 3u) << "each was tried";
  EXPECT_TRUE(cpu["why_team"].get<std::string>().starts_with("tuned: "));
  EXPECT_EQ(home.run_json(generate())["stats"]["threads"], kept["decode"]["cpus"].size());
}

TEST(Tune, TableAndFileArePrinted) {
  const Home home;
  const Outcome kept = home.run(tune());
  EXPECT_EQ(kept.status, 0) << kept.err;
  for (const char* part : {"| decode on CPUs |", "| prefill on CPUs |", "chosen", "default"}) {
    EXPECT_NE(kept.out.find(part), std::string::npos) << kept.out;
  }
  EXPECT_TRUE(kept.out.ends_with("saved for this machine in " + home.file() + "\n")) << kept.out;

  const Home other;
  EXPECT_NE(other.run(tune({"--dry-run"})).out.find("nothing saved"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(other.path));
}

TEST(Tune, OptionsOverrideTheirPart) {
  const Home home;
  put(home, hand_made().dump());
  const json team = hand_made()["machines"][0]["decode"]["cpus"];
  const auto plan = [&](const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"cpu", "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return home.run_json(arguments);
  };
  EXPECT_EQ(plan({})["team"], team);
  EXPECT_EQ(plan({})["prefill_chunk"], 7);
  EXPECT_EQ(plan({"--prefill-chunk", "9"})["team"], team);
  EXPECT_EQ(plan({"--prefill-chunk", "9"})["prefill_chunk"], 9);
  const json all = plan({"--cores", "all"});
  EXPECT_EQ(all["team"].size(), all["cores"].size());
  EXPECT_EQ(all["prefill_team"], all["team"]);
  EXPECT_EQ(all["prefill_chunk"], 7);
  EXPECT_EQ(plan({"--threads", "1"})["team"], team);
  EXPECT_EQ(plan({"--threads", "2"})["team"].size(), 2u);
  EXPECT_EQ(plan({"--threads", "2"})["prefill_chunk"], 7);
  EXPECT_EQ(home.run_json({"inspect", "--model", kStories, "--json"})["run"]["prefill_chunk"], 7);
  const json records = home.run_json({"bench", "--model", kStories, "-p", "8", "-n", "4", "-r", "1", "-o", "json"});
  for (const json& record : records) EXPECT_EQ(record["cpus"], team);
}

TEST(Tune, TwoTeamsGiveSameTextAndBenchNamesBoth) {
  const Home home;
  json file = hand_made();
  const json cpus = run_json({"cpu", "--json", "--cores", "all"})["team"];
  file["machines"][0]["prefill"]["cpus"] = cpus;
  put(home, file.dump());
  const std::vector<std::string> run = generate();
  const json one = run_json(run), two = home.run_json(run);
  EXPECT_EQ(two["stats"]["prefill_threads"], cpus.size());
  EXPECT_EQ(two["stats"]["threads"], 1);
  EXPECT_EQ(two["stats"]["logits_hash"], one["stats"]["logits_hash"]);
  const json records = home.run_json(
      {"bench", "--model", kStories, "-p", "9", "-n", "4", "-pg", "8,4", "-r", "1", "--profile", "-o", "json"});
  ASSERT_EQ(records.size(), 3u);
  for (const json& record : records) {
    EXPECT_EQ(record["threads"], record["test"] == "tg4" ? 1 : cpus.size());
    EXPECT_EQ(record["profile"]["workers"].size(), record["threads"]);
  }
}

// One line reports it, and the run continues with the default.
TEST(Tune, UnusableFileIsNotedAndIgnored) {
  json other_machine = hand_made(), other_format = hand_made(), other_cpu = hand_made();
  other_machine["machines"][0]["machine"] = "Another CPU; CPUs 0-99";
  other_format["format"] = 0;
  other_cpu["machines"][0]["prefill"]["cpus"] = json::array({4000});
  const std::string whole = hand_made().dump();
  const Home home;
  for (const std::string& text : {std::string(), whole.substr(0, whole.size() / 2), std::string("\xff\x00", 2),
                                  std::string("[]"), other_machine.dump(), other_format.dump(), other_cpu.dump()}) {
    put(home, text);
    const Outcome outcome = home.run(generate());
    EXPECT_EQ(outcome.status, 0) << text;
    EXPECT_TRUE(outcome.err.starts_with("pinion: ")) << outcome.err;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    const json plain = run_json({"cpu", "--json"}), with_file = home.run_json({"cpu", "--json"});
    EXPECT_EQ(with_file["team"], plain["default_team"]) << text;
    EXPECT_EQ(with_file["prefill_chunk"], 256);
    EXPECT_NE(with_file["tuning"]["state"], "none");
    EXPECT_EQ(home.run(generate({"--threads", "1", "--prefill-chunk", "9"})).err, "") << "it was not to be asked";
  }
  fs::remove(home.file());
  fs::create_directories(home.file());
  EXPECT_EQ(home.run(generate()).status, 0);
}

TEST(Tune, EntryIsReplacedAndForgotten) {
  const Home home;
  json file = hand_made();
  file["machines"].push_back(file["machines"][0]);
  file["machines"][1]["machine"] = "Another CPU";
  put(home, file.dump());
  EXPECT_EQ(home.run(tune()).status, 0);
  EXPECT_EQ(read_json(home.file())["machines"].size(), 2u);
  EXPECT_EQ(home.run({"tune", "--forget"}).out, "removed from " + home.file() + "\n");
  ASSERT_EQ(read_json(home.file())["machines"].size(), 1u);
  EXPECT_EQ(read_json(home.file())["machines"][0]["machine"], "Another CPU");
  EXPECT_EQ(home.run({"tune", "--forget"}).out, "nothing was saved for this machine\n");

  put(home, hand_made().dump());
  EXPECT_EQ(home.run({"tune", "--forget"}).status, 0);
  EXPECT_TRUE(fs::is_empty(home.path / "pinion"));
}

TEST(Tune, FailuresAreOneLine) {
  const Home home;
  write_file(home / "pinion", "a file, not a folder");
  expect_failure(home.run(tune()), 1, "cannot make the folder");
  EXPECT_EQ(home.run(generate()).status, 0);
  const Home damaged;
  put(damaged, "{");
  const Outcome removed = damaged.run({"tune", "--forget"});
  EXPECT_EQ(removed.status, 0);
  EXPECT_NE(removed.err.find("invalid JSON"), std::string::npos) << removed.err;
  EXPECT_TRUE(removed.out.starts_with("removed from ")) << removed.out;
  EXPECT_EQ(damaged.run({"tune", "--forget"}).out, "nothing was saved for this machine\n");
  expect_failure(run_pinion({"tune", "--model", "/nonexistent"}), 1, "no such folder");
}

}  // namespace
}  // namespace pinion
