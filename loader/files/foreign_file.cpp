#include "loader/files/foreign_file.h"

#include <fnmatch.h>

#include <algorithm>
#include <iterator>

namespace pinion {
namespace {

struct Kind {
  const char* sign;  // the first bytes, or a pattern of the name
  const char* text;
};

constexpr const char* kGguf =
    "a GGUF file, llama.cpp's format: Pinion reads the model's folder with safetensors; `pinion get ORG/NAME` "
    "downloads "
    "one";
constexpr const char* kPickle =
    "PyTorch's old format, which can run code when it is read: Pinion reads safetensors; transformers' "
    "save_pretrained(DIR) writes them";
constexpr const char* kWebPage =
    "a web page instead of the file: download it again; on Hugging Face the file's link has /resolve/ in it, not "
    "/blob/";

constexpr Kind kContents[] = {
    {"version https://git-lfs", "a git-lfs pointer instead of the file: `git lfs pull` in its folder fetches it"},
    {"GGUF", kGguf},
    {"PK\x03\x04", kPickle},
    {"<!", kWebPage},
    {"<html", kWebPage},
};

// The first that fits.
constexpr Kind kNames[] = {
    {"model-*-of-*.safetensors",
     "a shard without model.safetensors.index.json, which says where each tensor is: "
     "download that, too"},
    {"adapter_model.safetensors", "an adapter: merge it into its base model (peft: merge_and_unload) and save that"},
    {"consolidated*.safetensors", "Mistral's own layout: its repository has model*.safetensors and config.json, too"},
    {"*.safetensors", "weights under another name: call the file model.safetensors"},
    {"*.gguf", kGguf},
    {"pytorch_model*.bin", kPickle},
    {"*.pth", kPickle},
    {"*.pt", kPickle},
};

}  // namespace

std::string_view foreign_content(std::string_view contents) {
  const auto kind = std::ranges::find_if(kContents, [&](const Kind& row) { return contents.starts_with(row.sign); });
  return kind == std::end(kContents) ? "" : kind->text;
}

std::string_view foreign_name(const std::string& name) {
  const auto kind =
      std::ranges::find_if(kNames, [&](const Kind& row) { return fnmatch(row.sign, name.c_str(), 0) == 0; });
  return kind == std::end(kNames) ? "" : kind->text;
}

Error explained(Error failure, std::string_view contents) {
  const std::string_view kind = failure ? foreign_content(contents) : "";
  return kind.empty() ? failure : error(std::string(kind), failure.where);
}

}  // namespace pinion
