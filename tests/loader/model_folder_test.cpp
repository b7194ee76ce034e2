// Names of models and their folders, and the errors for incomplete folders.
#include "loader/checkpoint/model_folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "loader/checkpoint/checkpoint.h"
#include "loader/files/hints.h"
#include "loader/files/json.h"
#include "tests/loader/make_files.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLfsPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 988097824\n";

// A Hugging Face cache with one repository, as its tools lay it out.
struct HubCache : TempFolder {
  fs::path repository = path / "models--Org--Some--Model", snapshot = repository / "snapshots/0123abcd";

  HubCache() {
    setenv("HF_HUB_CACHE", path.c_str(), 1);
    for (const char* folder : {"blobs", "refs", "snapshots/0123abcd"}) fs::create_directories(repository / folder);
    write("models--Org--Some--Model/refs/main", "0123abcd");
    for (const char* name : {"config.json", "model.safetensors"}) {
      write("models--Org--Some--Model/blobs/" + std::string(name), "{}");
      fs::create_symlink("../../blobs/" + std::string(name), snapshot / name);
    }
  }
  ~HubCache() { unsetenv("HF_HUB_CACHE"); }
};

TEST(ModelFolder, PathsResolveToTheFolder) {
  const TempFolder folder;
  for (const char* name : {"config.json", "model.safetensors", "model-00001-of-00002.safetensors", "other.bin"}) {
    folder.write(name, "x");
  }
  const std::string at = folder.string();
  for (const char* own : {"", "/config.json", "/model.safetensors", "/model-00001-of-00002.safetensors"}) {
    EXPECT_EQ(find_model_folder(at + own), at);
  }
  for (const std::string& as_it_is : {at + "/", at + "/other.bin", at + "/absent", std::string(), std::string("a/b")}) {
    EXPECT_EQ(find_model_folder(as_it_is), as_it_is);
  }
}

TEST(ModelFolder, RepositoriesResolveInTheCache) {
  const HubCache cache;
  const std::string snapshot = cache.snapshot.string();
  EXPECT_EQ(find_model_folder("Org/Some--Model"), snapshot);
  EXPECT_EQ(find_model_folder(cache.repository.string()), snapshot);
  EXPECT_EQ(repository_name(snapshot), "Org/Some--Model");
  EXPECT_EQ(repository_name(snapshot + "/"), "Org/Some--Model");
  EXPECT_EQ(repository_name(cache.path), "");
  EXPECT_EQ(check_model_folder(snapshot).message(), "");
  EXPECT_EQ(find_model_folder("Org/Other"), "Org/Other");
  for (const char* bad : {"../x", "a/b/c", "", "nothing"}) {
    cache.write("models--Org--Some--Model/refs/main", bad);
    EXPECT_EQ(find_model_folder("Org/Some--Model"), "Org/Some--Model") << bad;
  }
}

TEST(ModelFolder, GgufFilesAreFoundByTag) {
  const HubCache cache;
  const std::string snapshot = cache.snapshot.string() + "/";
  const TempFolder folder;
  setenv("LLAMA_CACHE", (folder.string() + "/llama").c_str(), 1);
  setenv("OLLAMA_MODELS", (folder.string() + "/ollama").c_str(), 1);
  const fs::path files = cache.snapshot;
  for (const char* name : {"config.json", "model.safetensors"}) fs::remove(files / name);
  for (const char* name : {"Model-Q8_0.gguf", "Model-UD-Q4_K_M.gguf", "mmproj-Q4_K_M.gguf",
                           "parts/M-Q4_K_M-00002-of-00002.gguf", "parts/M-Q4_K_M-00001-of-00002.gguf"}) {
    fs::create_directories((files / name).parent_path());
    std::ofstream(files / name) << "GGUF";
  }
  EXPECT_EQ(find_model_folder("Org/Some--Model:q8_0"), snapshot + "Model-Q8_0.gguf");
  EXPECT_EQ(find_model_folder("Org/Some--Model:Q4_K_M"), snapshot + "parts/M-Q4_K_M-00001-of-00002.gguf");
  EXPECT_EQ(find_model_folder("Org/Some--Model"), snapshot + "parts/M-Q4_K_M-00001-of-00002.gguf");
  EXPECT_EQ(find_model_folder("Org/Some--Model:Q5_0"), "Org/Some--Model:Q5_0");
  EXPECT_EQ(check_folder("Org/Some--Model:Q5_0").message(),
            "Org/Some--Model:Q5_0: no GGUF file with this tag: want the end of one of Model-Q8_0, Model-UD-Q4_K_M, "
            "M-Q4_K_M, have Q5_0");
  EXPECT_EQ(check_folder("absent.gguf").message(), "absent.gguf: no such file");
  for (const char* name : {"llama", "ollama/blobs", "ollama/manifests/registry.ollama.ai/library/tiny", "one"}) {
    fs::create_directories(fs::path(folder.string()) / name);
  }
  folder.write("llama/Org_Other_Other.Q5_0.gguf", "GGUF");
  folder.write("llama/Org_Oth_er_Other.Q5_0.gguf", "GGUF");
  EXPECT_EQ(find_model_folder("Org/Oth:Q5_0"), "Org/Oth:Q5_0");  // another repository's file
  EXPECT_EQ(find_model_folder("Org/Other:Q5_0"), folder.string() + "/llama/Org_Other_Other.Q5_0.gguf");
  const std::string digest(64, 'a'), layer = R"({"mediaType": "application/vnd.ollama.image.)";
  const std::string manifest = R"({"layers": [)" + layer + R"(license", "digest": "sha256:b"}, )" + layer +
                               R"(model", "digest": "sha256:)" + digest + R"("}]})";
  folder.write("ollama/manifests/registry.ollama.ai/library/tiny/1b", manifest);
  EXPECT_EQ(find_model_folder("tiny:1b"), "tiny:1b");  // its blob is missing
  folder.write("ollama/blobs/sha256-" + digest, "GGUF");
  EXPECT_EQ(find_model_folder("tiny:1b"), folder.string() + "/ollama/blobs/sha256-" + digest);
  folder.write("one/model.gguf", "GGUF");
  EXPECT_EQ(find_model_folder(folder.string() + "/one"), folder.string() + "/one/model.gguf");
  unsetenv("LLAMA_CACHE");
  unsetenv("OLLAMA_MODELS");
}

TEST(ModelFolder, DamagedCacheEntryHasARemedy) {
  const HubCache cache;
  const std::string at = cache.snapshot.string(), advice = "`pinion get Org/Some--Model` completes the download";
  fs::remove(cache.repository / "blobs/model.safetensors");
  EXPECT_EQ(check_folder(at).message(),
            at + "/model.safetensors: a link to ../../blobs/model.safetensors, which is not there; " + advice);
  fs::remove(cache.snapshot / "model.safetensors");
  EXPECT_EQ(check_model_folder(at).message(), at + ": no model.safetensors; " + advice);
  cache.write("models--Org--Some--Model/blobs/77ff.incomplete", "");
  EXPECT_EQ(
      check_model_folder(at).message(),
      at + ": the download is not complete: there is ../../blobs/77ff.incomplete, but no model.safetensors; " + advice);
  fs::remove(cache.repository / "refs/main");
  EXPECT_EQ(check_folder("Org/Some--Model").message(),
            cache.repository.string() +
                ": its refs/main names no snapshot: give the folder of one, such as snapshots/" +
                cache.snapshot.filename().string());
  fs::remove_all(cache.repository / "snapshots");
  EXPECT_EQ(check_folder("Org/Some--Model").message(),
            cache.repository.string() + ": its download is not complete: `pinion get Org/Some--Model` completes it");
  EXPECT_EQ(check_folder("Org/Other").message(), "Org/Other: no such folder, nor a model of that name in " +
                                                     cache.string() +
                                                     "; `pinion get Org/Other` downloads it from Hugging Face");
}

TEST(ModelFolder, FilesAreIdentified) {
  const TempFolder folder;
  const std::string at = folder.string();
  const struct {
    const char* name;
    const char* contents;
    const char* kind;
  } kCases[] = {{"a.gguf", "x", "not a GGUF file"},
                {"pytorch_model.bin", "PK\3\4", "PyTorch's old format"},
                {"a.pth", "x", "PyTorch's old format"},
                {"adapter_model.safetensors", "x", "an adapter: "},
                {"notes.txt", "x", "a file, where a model's folder was expected"},
                {"empty", "", "empty file"}};
  for (const auto& test : kCases) {
    const std::string message = check_model_folder(folder.write(test.name, test.contents)).message();
    EXPECT_TRUE(message.starts_with(at + "/" + test.name + ": " + test.kind)) << message;
  }
  ASSERT_EQ(mkfifo((at + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(check_folder(at + "/pipe").message(), at + "/pipe: not a regular file");
}

TEST(ModelFolder, ForeignFilesInAFolderAreNamed) {
  const struct {
    std::vector<const char*> files;
    const char* message;
  } kCases[] = {
      {{}, ": no config.json: not a model's folder"},
      {{"notes.txt"}, ": no config.json: not a model's folder"},
      {{"m.gguf"}, ": no config.json, but m.gguf, a GGUF file"},
      {{"config.json"}, ": no model.safetensors; download what is missing"},
      {{"config.json", "pytorch_model.bin"}, ": no model.safetensors, but pytorch_model.bin, PyTorch's old format"},
      {{"config.json", "pytorch_model-00001-of-00002.bin"}, ": no model.safetensors, but pytorch_model-00001-of-00002"},
      {{"config.json", "model-00001-of-00002.safetensors"},
       ": no model.safetensors, but model-00001-of-00002.safetensors, a shard without model.safetensors.index.json"},
      {{"config.json", "consolidated.safetensors"}, ": no model.safetensors, but consolidated.safetensors, Mistral's"},
      {{"config.json", "x.safetensors"}, ": no model.safetensors, but x.safetensors, weights under another name"},
      {{"config.json", "model.safetensors.part", "x.gguf"},
       ": the download is not complete: there is model.safetensors.part, but no model.safetensors"},
      {{"config.json", ".cache/huggingface/download/x.77ff.incomplete"},
       ": the download is not complete: there is .cache/huggingface/download/x.77ff.incomplete, but no "},
      {{"config.json", "model.safetensors", "x.incomplete", "x.gguf"}, ""},
      {{"config.json", "model.safetensors.index.json"}, ""},
  };
  for (const auto& test : kCases) {
    const TempFolder folder;
    fs::create_directories(folder / ".cache/huggingface/download");
    for (const char* file : test.files) folder.write(file, "{}");
    const std::string message = check_model_folder(folder.path).message();
    if (*test.message) {
      EXPECT_TRUE(message.starts_with(folder.string() + test.message)) << message;
    } else {
      EXPECT_EQ(message, "");
    }
  }
}

TEST(ModelFolder, GitLfsPointersAndWebPagesAreNamed) {
  const TempFolder folder;
  Checkpoint checkpoint;
  Json json;
  const std::string where = folder.write("model.safetensors", kLfsPointer).string();
  const std::string pointer = ": a git-lfs pointer instead of the file: `git lfs pull` in its folder fetches it";
  EXPECT_EQ(open_checkpoint(folder.path, &checkpoint).message(), where + pointer);
  EXPECT_EQ(read_json_file(where, &json).message(), where + pointer);
  folder.write("model.safetensors", "<!DOCTYPE html>");
  EXPECT_TRUE(open_checkpoint(folder.path, &checkpoint).message().starts_with(where + ": a web page instead of"));
  EXPECT_EQ(with_foreign_hint({}, kLfsPointer).message(), "") << "no failure, no hint";
}

}  // namespace
}  // namespace pinion
