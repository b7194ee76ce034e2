// The command line: help, exit statuses, one line per error.
#include "tests/apps/program.h"

namespace pinion {
namespace {

const std::vector<std::vector<std::string>> kCommands = {
    {"generate"}, {"chat"},   {"logits"},           {"tokenize"},           {"detokenize"}, {"template"},
    {"bench"},    {"golden"}, {"golden", "record"}, {"golden", "check"},    {"inspect"},    {"pack"},
    {"tune"},     {"cpu"},    {"completion"},       {"completion", "fish"}, {"man"}};

TEST(Usage, CommandsHaveHelpWithExample) {
  for (std::vector<std::string> command : kCommands) {
    command.push_back("--help");
    const Outcome outcome = run_pinion(command);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.out.find("Example: pinion " + command[0]), std::string::npos) << outcome.out;
  }
}

TEST(Usage, WrongArgumentsAreOneLineAndStatus2) {
  const std::string file = kDemo + "/config.json";
  const struct {
    std::vector<std::string> arguments;
    std::string cause;
  } kCases[] = {
      {{"nonsense"}, "nonsense"},
      {{"generate"}, "--model"},
      {{"generate", "--model", kStories, "--bogus"}, "--bogus"},
      {{"generate", "--model", kStories, "--prompt", "a", "--prompt-ids", "1"}, "excludes"},
      {{"generate", "--model", kStories, "--prompt-ids", "1,x"}, "have \"x\""},
      {{"generate", "--model", kStories, "--prompt-ids", "1,-2"}, "have \"-2\""},
      {{"generate", "--model", kStories, "--prompt", "a", "--temperature", "nan"}, "--temperature"},
      {{"generate", "--model", kStories, "--prompt", "a", "--top-p", "1.5"}, "--top-p"},
      {{"generate", "--model", kStories, "--prompt", "a", "--threads", "0"}, "--threads"},
      {{"generate", "--model", kStories, "--prompt", "a", "--max-tokens", "99999999999999999999"}, "--max-tokens"},
      {{"generate", "--model", kStories, "--prompt", "a", "--max-tokens", "2.5"}, "want a whole number, have 2.5"},
      {{"generate", "--model", kStories, "--prompt", "a", "--quant", "w3"}, "w3"},
      {{"generate", "--model", kStories, "--prompt", "a", "--head", "w5"}, "w5"},
      {{"generate", "--model", kStories, "--prompt-ids", "1,2,,3"}, "have \",3\""},
      {{"generate", "--model", kStories, "--prompt-ids", "1,2,"}, "have \"\""},
      {{"generate", "--model", kStories, "--prompt-file", ""}, "--prompt-file: want a name"},
      {{"generate", "--model", kStories, "--prompt", "a", "--calibrate", ""}, "--calibrate: want a name"},
      {{"template", "--model", kStories, "--messages", ""}, "--messages: want a name"},
      {{"get", "tiny/stories", "--to", ""}, "--to: want a name"},
      {{"golden", "check", "--model", kStories, "--golden", ""}, "--golden: want a name"},
      {{"golden", "check", "--model", kStories, "--golden", file, "--junit", file}, "--junit would replace"},
      {{"logits", "--model", kStories, "--out", "F.npy"}, "no prompt"},
      {{"logits", "--model", kStories, "--prompt", "a"}, "--out"},
      {{"detokenize", "--model", kStories, "--ids", "1;2"}, "have \"1;2\""},
      {{"bench"}, "no model"},
      {{"bench", "--model", kStories, "-p", "0", "-n", "0,0"}, "nothing to measure"},
      {{"bench", "--model", kStories, "-p", "8,x"}, "have x"},
      {{"bench", "--model", kStories, "-n", "4,-1"}, "have -1"},
      {{"bench", "--model", kStories, "-o", "xml"}, "xml"},
      {{"tune"}, "no model"},
      {{"tune", "--model", kStories, "--seconds", "0"}, "--seconds"},
      {{"golden"}, "record, check"},
      {{"golden", "check", "--model", kStories}, "--golden"},
      {{"golden", "check", "--golden", file}, "want either --model DIR or --url URL"},
      {{"golden", "record", "--prompts", file, "--out", "G.json"}, "want either --model DIR or --url URL"},
      {{"golden", "check", "--golden", file, "--url", "localhost:80"}, "want an address like"},
      {{"golden", "check", "--golden", file, "--url", "http://[::1]", "--threads", "2"}, "--threads excludes --url"},
      {{"golden", "record", "--prompts", file, "--out", "G", "--url", "http://[::1]", "--kv", "q8"}, "excludes --url"},
  };
  for (const auto& test : kCases) expect_failure(run_pinion(test.arguments), 2, test.cause);
}

TEST(Usage, FailuresAreOneLineAndStatus1) {
  const struct {
    std::vector<std::string> options;
    std::string cause;
  } kCases[] = {
      {{"--kernels", "abacus"}, "abacus"},
      {{"--cores", "0-99999"}, "0-99999"},
      {{"--cores", "none"}, "none"},
      {{"--cores", "0", "--threads", "2"}, "more threads than cores"},
      {{"--prompt-file", "/nonexistent/file"}, "/nonexistent/file"},
      {{"--quant", "none", "--calibrate", "self"}, "--calibrate: mode none has no weights to calibrate"},
      {{"--quant", "w8a8", "--calibrate", "/nonexistent/file"}, "/nonexistent/file"},
      {{"--quant", "w4a8", "--head", "w4", "--keep", "mlp,head"},
       "lm_head.weight: kept by the pattern \"head\", but given another format: want bf16, have w4"},
  };
  for (const auto& test : kCases) {
    std::vector<std::string> arguments = {"generate", "--model", kStories};
    arguments.insert(arguments.end(), test.options.begin(), test.options.end());
    expect_failure(run_pinion(arguments, "Hello"), 1, test.cause);
  }
}

TEST(Usage, VersionListsBuild) {
  const std::string text = run_pinion({"--version"}).out;
  EXPECT_TRUE(text.starts_with("pinion ")) << text;
  EXPECT_NE(text.find("\ncommit "), std::string::npos) << text;
  EXPECT_NE(text.find("\nkernels: "), std::string::npos) << text;
  EXPECT_NE(text.find(" scalar\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nlibraries: hwloc "), std::string::npos) << text;
}

TEST(Usage, ClosedOutputEndsQuietly) {
  const std::string command = "XDG_CONFIG_HOME=/nonexistent " + std::string(PINION_EMULATOR) + " " +
                              quoted(PINION_BINARY) + " generate --model " + quoted(kStories) +
                              " --no-cache --prompt Once --ignore-eos --max-tokens 200 2>&1 >&- | cat >";
  const Folder folder;
  ASSERT_EQ(std::system((command + quoted(folder / "err")).c_str()), 0);
  EXPECT_LE(std::ranges::count(read_file(folder / "err"), '\n'), 1);
}

}  // namespace
}  // namespace pinion
