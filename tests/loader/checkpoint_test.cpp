#include "loader/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include "tests/loader/make_files.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

std::string one_tensor(const std::string& name, const std::string& text = "abcd") {
  return safetensors_text(R"({")" + name + R"(": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}})", text);
}

std::string open_message(const fs::path& folder) {
  Checkpoint checkpoint;
  return open_checkpoint(folder, &checkpoint).message();
}

TEST(Checkpoint, OpensASingleFile) {
  const TempFolder folder;
  folder.write("model.safetensors", one_tensor("a"));
  Checkpoint checkpoint;
  ASSERT_EQ(open_checkpoint(folder.path, &checkpoint).message(), "");
  ASSERT_NE(checkpoint.find("a"), nullptr);
  EXPECT_EQ(checkpoint.find("b"), nullptr);
  EXPECT_EQ(checkpoint.find(""), nullptr);
  EXPECT_EQ(checkpoint.tensor_bytes, 4);
}

TEST(Checkpoint, OpensShardsThroughSymbolicLinks) {
  const TempFolder folder;
  const TempFolder blobs;
  folder.write("model.safetensors.index.json", R"({"metadata": {"total_size": 8},
    "weight_map": {"b": "model-1.safetensors", "a": "model-2.safetensors"}})");
  folder.write("model-1.safetensors", one_tensor("b", "bbbb"));
  fs::create_symlink(blobs.write("blob", one_tensor("a", "aaaa")), folder.path / "model-2.safetensors");
  Checkpoint checkpoint;
  ASSERT_EQ(open_checkpoint(folder.path, &checkpoint).message(), "");
  ASSERT_EQ(checkpoint.tensors.size(), 2u);
  EXPECT_EQ(static_cast<char>(checkpoint.find("a")->data[0]), 'a');
  EXPECT_EQ(static_cast<char>(checkpoint.find("b")->data[0]), 'b');
}

TEST(Checkpoint, SelectsAndRenamesTensors) {
  const TempFolder folder;
  folder.write("model.safetensors.index.json", R"({"metadata": {}, "weight_map": {"tower.a": "1.safetensors",
    "text.model.b": "2.safetensors", "c": "3.safetensors"}})");
  folder.write("1.safetensors", one_tensor("tower.a"));
  folder.write("2.safetensors", one_tensor("text.model.b", "bbbb"));
  folder.write("3.safetensors", one_tensor("c"));
  Checkpoint checkpoint;
  ASSERT_EQ(open_checkpoint(folder.path, &checkpoint).message(), "");
  const TensorSelection selection = {{"tower."}, {{"text.model.", "model."}, {"text.", "other."}}};
  ASSERT_EQ(select_tensors(selection, &checkpoint).message(), "");
  ASSERT_EQ(checkpoint.tensors.size(), 2u);
  ASSERT_NE(checkpoint.find("model.b"), nullptr);
  EXPECT_EQ(static_cast<char>(checkpoint.find("model.b")->data[0]), 'b');
  EXPECT_NE(checkpoint.find("c"), nullptr);
  EXPECT_EQ(select_tensors({{}, {{"model.b", "c"}}}, &checkpoint).message(),
            folder.path.string() + ": c: two tensors of this name");
}

TEST(Checkpoint, SkipsTensorsBySuffix) {
  const TempFolder folder;
  folder.write("model.safetensors.index.json", R"({"metadata": {}, "weight_map": {"l.0.attention.bias": "1.safetensors",
    "l.0.attention.dense.bias": "2.safetensors"}})");
  folder.write("1.safetensors", one_tensor("l.0.attention.bias"));
  folder.write("2.safetensors", one_tensor("l.0.attention.dense.bias"));
  Checkpoint checkpoint;
  ASSERT_EQ(open_checkpoint(folder.path, &checkpoint).message(), "");
  ASSERT_EQ(select_tensors({{}, {}, {".attention.bias"}}, &checkpoint).message(), "");
  ASSERT_EQ(checkpoint.tensors.size(), 1u);
  EXPECT_NE(checkpoint.find("l.0.attention.dense.bias"), nullptr);
}

TEST(Checkpoint, NamesMissingFiles) {
  const TempFolder folder;
  const std::string at = folder.path.string();
  EXPECT_EQ(open_message(folder.path), at + ": no model.safetensors; download what is missing");
  EXPECT_EQ(open_message(folder.path / "absent"), at + "/absent: no such folder");
  folder.write("model.safetensors", "");
  EXPECT_EQ(open_message(folder.path), at + "/model.safetensors: empty file");
}

TEST(Checkpoint, InvalidIndexesAreErrors) {
  const TempFolder folder;
  folder.write("1.safetensors", one_tensor("a"));
  folder.write("2.safetensors", one_tensor("a"));
  folder.write("3.safetensors", one_tensor("c"));
  const char* kUnfit =
      "/model.safetensors.index.json: weight_map: invalid shard name: want a file name without folders, have ";
  const std::pair<const char*, std::string> cases[] = {
      {R"({})", "/model.safetensors.index.json: weight_map: missing field"},
      {R"({"weight_map": []})",
       "/model.safetensors.index.json: weight_map: wrong type: want an object, have an array of 0"},
      {R"({"weight_map": {"a": 1}})", std::string(kUnfit) + "1"},
      {R"({"weight_map": {"a": ""}})", std::string(kUnfit) + "\"\""},
      {R"({"weight_map": {"a": ".."}})", std::string(kUnfit) + "\"..\""},
      {R"({"weight_map": {"a": "../1.safetensors"}})", std::string(kUnfit) + "\"../1.safetensors\""},
      {R"({"weight_map": {"a": "/etc/passwd"}})", std::string(kUnfit) + "\"/etc/passwd\""},
      {R"({"weight_map": {"a": "1.safetensors\u0000x"}})", std::string(kUnfit) + "\"1.safetensors\\u0000x\""},
      {R"({"weight_map": {"a": "4.safetensors"}})",
       ": 1 of 1 shards are missing, the first is 4.safetensors; download what is missing"},
      {R"({"weight_map": {"a": "1.safetensors", "d": "5.safetensors", "e": "4.safetensors"}})",
       ": 2 of 3 shards are missing, the first is 4.safetensors; download what is missing"},
      {R"({"weight_map": {"a": "1.safetensors", "b": "1.safetensors"}})",
       "/1.safetensors: tensor of the index is not in its shard: \"b\""},
      {R"({"weight_map": {"b": "3.safetensors"}})", "/3.safetensors: tensor of the index is not in its shard: \"b\""},
      {R"({"weight_map": {"a": "1.safetensors", "x": "2.safetensors"}})",
       "/2.safetensors: tensor of the index is not in its shard: \"x\""},
      {R"({"weight_map": {"a": "1.safetensors", "a": "2.safetensors"}})",
       "/model.safetensors.index.json: JSON key given twice: \"a\""},
  };
  for (const auto& [index, message] : cases) {
    folder.write("model.safetensors.index.json", index);
    EXPECT_EQ(open_message(folder.path), folder.path.string() + message);
  }
}

TEST(Checkpoint, IndexDecidesBetweenShards) {
  const TempFolder folder;
  const std::string pair = R"({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                               "b": {"dtype": "U8", "shape": [2], "data_offsets": [2, 4]}})";
  folder.write("1.safetensors", safetensors_text(pair, "1122"));
  folder.write("2.safetensors", safetensors_text(pair, "3344"));
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "2.safetensors", "b": "1.safetensors"}})");
  Checkpoint checkpoint;
  ASSERT_EQ(open_checkpoint(folder.path, &checkpoint).message(), "");
  ASSERT_EQ(checkpoint.tensors.size(), 2u);
  EXPECT_EQ(static_cast<char>(checkpoint.find("a")->data[0]), '3');
  EXPECT_EQ(static_cast<char>(checkpoint.find("b")->data[0]), '2');
  EXPECT_EQ(checkpoint.tensor_bytes, 4);
  EXPECT_EQ(checkpoint.overlaid, (std::vector<std::string>{"a in 2.safetensors", "b in 1.safetensors"}));
  // A tensor that the index lacks is found if only one shard has it.
  folder.write("model.safetensors.index.json", R"({"weight_map": {"a": "2.safetensors"}})");
  ASSERT_EQ(open_checkpoint(folder.path, &checkpoint).message(), "");
  EXPECT_EQ(static_cast<char>(checkpoint.find("b")->data[0]), '4');
  folder.write("3.safetensors", one_tensor("c"));
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"a": "2.safetensors", "c": "3.safetensors", "x": "1.safetensors"}})");
  EXPECT_EQ(open_message(folder.path), folder.path.string() +
                                           ": b: in several shards, and the index names none of them: want an entry in "
                                           "weight_map of model.safetensors.index.json");
}

TEST(Checkpoint, BindsByNameShapeAndType) {
  const TempFolder folder;
  folder.write("model.safetensors",
               safetensors_text(R"({"w": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
                                    "i": {"dtype": "I8", "shape": [3], "data_offsets": [12, 15]}})",
                                std::string(15, 'x')));
  Checkpoint checkpoint;
  ASSERT_EQ(open_checkpoint(folder.path, &checkpoint).message(), "");
  TensorView view;
  EXPECT_EQ(checkpoint.bind("w", {2, 3}, &view).message(), "");
  EXPECT_EQ(view.bytes, 12);
  EXPECT_EQ(checkpoint.bind("w", {2, 4}, &view).message(),
            checkpoint.folder + "/model.safetensors: w: shape differs: want [2, 4], have [2, 3]");
  EXPECT_EQ(checkpoint.bind("w", {6}, &view).message(),
            checkpoint.folder + "/model.safetensors: w: shape differs: want [6], have [2, 3]");
  EXPECT_EQ(checkpoint.bind("i", {3}, &view).message(),
            checkpoint.folder + "/model.safetensors: i: type differs: want BF16, F16 or F32, have I8");
  EXPECT_EQ(checkpoint.bind("i", {3}, {DType::i8}, &view).message(), "");
  EXPECT_EQ(checkpoint.bind("v", {3}, &view).message(), folder.path.string() + "/model.safetensors: v: no such tensor");
}

}  // namespace
}  // namespace pinion
