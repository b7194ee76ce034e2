// Common mistakes of new users, and the messages with advice.
#include "tests/apps/program.h"

namespace pinion {
namespace {

const std::vector<std::string> kAnswer = {"--prompt-ids", "1,2", "--max-tokens", "1"};

std::vector<std::string> generate(const std::string& model) {
  std::vector<std::string> arguments = {"generate", "--model", model};
  arguments.insert(arguments.end(), kAnswer.begin(), kAnswer.end());
  return arguments;
}

TEST(Mistakes, NoCommandListsCommands) {
  const Outcome outcome = run_pinion({});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out, run_pinion({"--help"}).out);
  EXPECT_EQ(outcome.out, run_pinion({"help"}).out);
  EXPECT_NE(outcome.out.find("Talk with a model"), std::string::npos) << outcome.out;
  for (const char* help : {"help", "--help", "-h"}) {
    EXPECT_EQ(run_pinion({help, "golden", "check"}).out, run_pinion({"golden", "check", "--help"}).out);
  }
}

TEST(Mistakes, NearestCommandOrOptionIsSuggested) {
  const struct {
    std::vector<std::string> arguments;
    std::string cause;
  } kCases[] = {
      {{"chatt", "--model", kStories}, "no command \"chatt\"; did you mean chat?"},
      {{"gen"}, "did you mean generate?"},
      {{"benchmark"}, "did you mean bench?"},
      {{"run"}, "`pinion chat` talks with a model, `pinion generate` continues a text"},
      {{"pull", "Qwen/Qwen3-0.6B"}, "`pinion get ORG/NAME` downloads a model"},
      {{"server"}, "no command \"server\"; `pinion serve`"},
      {{"xyzzy"}, "no command \"xyzzy\" (--help"},
      {{"golden", "chek"}, "golden has no command chek; did you mean check?"},
      {{"generate", "--promt", "hi"}, "generate has no option --promt; did you mean --prompt?"},
      {{"generate", "--model", kStories, "--promt=hi"}, "no option --promt; did you mean --prompt?"},
      {{"chat", "--modle", kStories}, "chat has no option --modle; did you mean --model?"},
      {{"chat", "--model", kStories, "-x"}, "chat has no option -x (--help"},
      {{"golden", "check", "--matix"}, "check has no option --matix; did you mean --matrix?"},
      {{"--model", kStories, "chat"}, "options follow a command: pinion COMMAND --model"},
      {{"chat", kStories}, "\"" + kStories + "\" belongs to no option"},
      {{"generate", "--model", kStories, "--keep", ""}, "--keep: an empty pattern"},
      {{"generate", "--model", kStories, "--keep", ","}, "--keep"},
      {{"chat", "--model", kStories, "--seed", "1", "-s", "2"}, "--seed: given twice (--help"},
      {{"generate", "--model"}, "--model: wants DIR (--help"},
  };
  for (const auto& test : kCases) expect_failure(run_pinion(test.arguments), 2, test.cause);
}

TEST(Mistakes, LlamaCppOptionsAreAccepted) {
  const json long_names = run_json({"generate", "--model", kStories, "--prompt", "Once", "--max-tokens", "5",
                                    "--temperature", "0.5", "--seed", "3", "--threads", "1", "--json"});
  const json short_names =
      run_json({"generate", "-m", kStories, "-p", "Once", "-n", "5", "--temp", "0.5", "-s", "3", "-t", "1", "--json"});
  EXPECT_EQ(long_names["ids"], short_names["ids"]);
  EXPECT_EQ(short_names["stats"]["temperature"], 0.5);
  EXPECT_EQ(short_names["stats"]["threads"], 1);
  const Folder folder;
  write_file(folder / "prompt", "Once\n");
  EXPECT_EQ(run_json({"generate", "-m", kStories, "-f", folder / "prompt", "-n", "1", "--json"})["prompt_ids"],
            short_names["prompt_ids"]);
  const Outcome talk = run_pinion({"chat", "-m", kDemo, "-n", "3", "-c", "64", "--temp", "0", "-t", "1"}, "Hi\n");
  const Outcome whole = run_pinion({"chat", "-m", kDemo, "-n", "-1", "-c", "64", "--temp", "0", "-t", "1"}, "Hi\n");
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_GT(whole.out.size(), talk.out.size());
  EXPECT_EQ(talk.status, 0) << talk.err;
}

TEST(Mistakes, RepositoryIsFoundInCache) {
  const Folder cache;
  expect_failure(run_pinion(generate("Qwen/Qwen3-0.6B"), "", cache.path), 1,
                 "`pinion get Qwen/Qwen3-0.6B` downloads it");
  expect_failure(run_pinion(generate("a-model-without-an-organisation")), 1, "no such folder");
  expect_failure(run_pinion(generate("https://huggingface.co/Qwen/Qwen3-0.6B"), "", cache.path), 1,
                 "an address, where a folder or ORG/NAME was expected; `pinion get ORG/NAME` downloads");
  const fs::path repository = cache.path / "huggingface/hub/models--Tiny--Stories";
  for (const char* folder : {"blobs", "refs", "snapshots/0123abcd"}) fs::create_directories(repository / folder);
  write_file(repository / "refs/main", "0123abcd");
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    fs::copy_file(fs::path(kStories) / name, repository / "blobs" / name);
    fs::create_symlink("../../blobs/" + std::string(name), repository / "snapshots/0123abcd" / name);
  }
  const Outcome found = run_pinion(generate("Tiny/Stories"), "", cache.path);
  EXPECT_EQ(found.status, 0) << found.err;
  const Outcome bench = run_pinion({"bench", "-m", "Tiny/Stories", "-p", "4", "-n", "0", "-r", "1"}, "", cache.path);
  EXPECT_NE(bench.out.find("Tiny/Stories w8a8"), std::string::npos) << bench.out << bench.err;
  fs::create_symlink("../../blobs/none", repository / "snapshots/0123abcd/generation_config.json");
  expect_failure(run_pinion(generate("Tiny/Stories"), "", cache.path), 1,
                 "generation_config.json: a link to ../../blobs/none, which is not there; `pinion get Tiny/Stories`");
  fs::remove(repository / "snapshots/0123abcd/generation_config.json");
  fs::remove(repository / "blobs/model.safetensors");
  expect_failure(run_pinion(generate("Tiny/Stories"), "", cache.path), 1, "`pinion get Tiny/Stories` completes");
}

TEST(Mistakes, EmptySnapshotSuggestsDownload) {
  const Folder cache;
  const fs::path repository = cache.path / "huggingface/hub/models--Tiny--Stories";
  const std::string cause = "no config.json; `pinion get Tiny/Stories` completes the download";
  fs::create_directories(repository / "snapshots/0123abcd");
  expect_failure(run_pinion(generate("Tiny/Stories"), "", cache.path), 1, "`pinion get Tiny/Stories` completes it");
  expect_failure(run_pinion(generate(repository)), 1, cause);
  expect_failure(run_pinion(generate(repository / "snapshots/0123abcd/")), 1, cause);
  fs::create_directories(repository / "refs");
  write_file(repository / "refs/main", "0123abcd");
  expect_failure(run_pinion(generate("Tiny/Stories"), "", cache.path), 1, cause);
  fs::remove_all(repository / "snapshots");
  expect_failure(run_pinion(generate("Tiny/Stories"), "", cache.path), 1, "`pinion get Tiny/Stories` completes it");
  expect_failure(run_pinion(generate(repository)), 1, cause);
}

// A copy of the stories model with one changed file.
struct Changed : Folder {
  Changed(const std::string& removed, const std::string& added = "", const std::string& contents = "") {
    copy_stories(*this);
    fs::remove(path / removed);
    if (!added.empty()) write_file(path / added, contents);
  }
};

TEST(Mistakes, NonModelFilesAndFoldersAreNamed) {
  const Changed only_pickle("model.safetensors", "pytorch_model.bin", "PK\3\4");
  const Changed unfinished("model.safetensors", "model.safetensors.incomplete");
  const Changed short_file("model.safetensors", "model.safetensors",
                           read_file(kStories + "/model.safetensors").substr(0, 100000));
  const Changed short_header("model.safetensors", "model.safetensors",
                             read_file(kStories + "/model.safetensors").substr(0, 100));
  const Changed shards("model.safetensors", "model.safetensors.index.json",
                       R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})");
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
  const Changed lfs_weights("model.safetensors", "model.safetensors", pointer);
  const Changed lfs_tokenizer("tokenizer.json", "tokenizer.json", pointer);
  const Changed lfs_sentencepiece("tokenizer.json", "tokenizer.model", pointer);
  const Changed dangling("model.safetensors");
  fs::create_symlink("../../blobs/0123", dangling.path / "model.safetensors");
  const Folder empty;
  const Changed gguf("model.safetensors", "x.gguf", "GGUF");
  const std::pair<std::string, std::string> cases[] = {
      {only_pickle.path, "pytorch_model.bin, PyTorch's old format"},
      {unfinished.path, "the download is not complete: there is model.safetensors.incomplete"},
      {short_file.path, "file ends before this tensor; download it again"},
      {short_header.path, "file ends inside the safetensors header; download it again"},
      {shards.path, "2 of 2 shards are missing, the first is model-1.safetensors"},
      {lfs_weights.path, "model.safetensors: a git-lfs pointer instead of the file: `git lfs pull`"},
      {lfs_tokenizer.path, "tokenizer.json: a git-lfs pointer instead of the file: `git lfs pull`"},
      {lfs_sentencepiece.path, "tokenizer.model: a git-lfs pointer instead of the file: `git lfs pull`"},
      {dangling.path, "a link to ../../blobs/0123, which is not there"},
      {empty.path, "no config.json: not a model's folder"},
      {gguf.path, "but x.gguf, a GGUF file"},
      {gguf / "x.gguf", "file ends inside the header; download it again"},
  };
  for (const auto& [folder, cause] : cases) {
    expect_failure(run_pinion(generate(folder)), 1, cause);
    const bool is_tokenizer = folder == lfs_tokenizer.path || folder == lfs_sentencepiece.path;
    if (!is_tokenizer) expect_failure(run_pinion({"inspect", "--model", folder}), 1, cause);
  }
}

TEST(Mistakes, UnwrittenWeightsAreNoted) {
  const Folder folder;
  copy_stories(folder);
  const std::string file = folder / "model.safetensors";
  const auto bytes = static_cast<int64_t>(fs::file_size(file));
  // The hole begins at the next block of the file system, up to 64 KiB later.
  constexpr int64_t kWritten = 500000, kLargestBlock = 64 << 10;
  if (!leave_unwritten(file, kWritten)) GTEST_SKIP() << "the file system knows of none";
  for (const auto& command : {generate(folder.path), std::vector<std::string>{"inspect", "--model", folder.path},
                              std::vector<std::string>{"pack", "--model", folder.path}}) {
    const Outcome outcome = run_pinion(command);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const std::string before = "pinion: " + file + ": ";
    const std::string behind =
        " of its " + std::to_string(bytes) + " bytes were never written and count as 0; download what is missing\n";
    const size_t begin = outcome.err.find(before), end = outcome.err.find(behind);
    ASSERT_NE(begin, std::string::npos) << command[0] << ": " << outcome.err;
    ASSERT_NE(end, std::string::npos) << command[0] << ": " << outcome.err;
    const size_t number = begin + before.size();
    const int64_t unwritten = std::stoll(outcome.err.substr(number, end - number));
    EXPECT_LE(unwritten, bytes - kWritten);
    EXPECT_GT(unwritten, bytes - kWritten - kLargestBlock);
  }
}

TEST(Mistakes, FileOfModelMeansItsFolder) {
  for (const char* file : {"/model.safetensors", "/config.json"}) {
    const Outcome outcome = run_pinion(generate(kStories + file));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  }
}

}  // namespace
}  // namespace pinion
