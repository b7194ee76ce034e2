#include "loader/files/hints.h"

#include <fnmatch.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace pinion {
namespace {

struct ForeignFile {
  const char* sign;  // the first bytes, or a pattern of the name
  const char* hint;
};

constexpr const char* kGguf = "a GGUF file: give its path instead of the folder";
constexpr const char* kPickle =
    "PyTorch's old format, which can run code when it is read: Pinion reads safetensors; transformers' "
    "save_pretrained(DIR) writes them";
constexpr const char* kWebPage =
    "a web page instead of the file: download it again; on Hugging Face the file's link has /resolve/ in it, not "
    "/blob/";

constexpr ForeignFile kContents[] = {
    {"version https://git-lfs", "a git-lfs pointer instead of the file: `git lfs pull` in its folder fetches it"},
    {"GGUF", kGguf},
    {"PK\x03\x04", kPickle},
    {"<!", kWebPage},
    {"<html", kWebPage},
};

// The first match wins.
constexpr ForeignFile kNames[] = {
    {"model-*-of-*.safetensors",
     "a shard without model.safetensors.index.json, which says where each tensor is: download that, too"},
    {"adapter_model.safetensors", "an adapter: --model takes its base model, and --lora this folder"},
    {"consolidated*.safetensors", "Mistral's own layout: its repository has model*.safetensors and config.json, too"},
    {"*.safetensors", "weights under another name: call the file model.safetensors"},
    {"*.gguf", kGguf},
    {"pytorch_model*.bin", kPickle},
    {"*.pth", kPickle},
    {"*.pt", kPickle},
};

std::string_view hint_in(std::span<const ForeignFile> files, const auto& is_sign) {
  const auto row = std::ranges::find_if(files, is_sign, &ForeignFile::sign);
  return row == files.end() ? "" : row->hint;
}

// "gen" for "generate", "benchmark" for "bench". A single letter is too short to count.
bool is_prefix(std::string_view start, std::string_view word) { return start.size() > 1 && word.starts_with(start); }

std::string_view without_dashes(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  return name;
}

}  // namespace

std::string_view foreign_content(std::string_view contents) {
  return hint_in(kContents, [&](const char* begin) { return contents.starts_with(begin); });
}

std::string_view foreign_name(const std::string& name) {
  return hint_in(kNames, [&](const char* pattern) { return fnmatch(pattern, name.c_str(), 0) == 0; });
}

Error with_foreign_hint(Error failure, std::string_view contents) {
  const std::string_view hint = failure ? foreign_content(contents) : "";
  return hint.empty() ? failure : error(std::string(hint), failure.where);
}

bool is_printable(std::string_view name) {
  return !name.empty() &&
         std::ranges::none_of(name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = i;
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string did_you_mean(std::string_view typed, std::span<const std::string> known) {
  const std::string_view word = without_dashes(typed);
  size_t limit = (word.size() + 2) / 3 + 1;  // one edit in three letters is near
  std::string found;
  for (const std::string& name : known) {
    const std::string_view candidate = without_dashes(name);
    const bool is_extension = is_prefix(word, candidate) || is_prefix(candidate, word);
    const size_t distance = is_extension ? 1 : edit_distance(word, candidate);
    if (distance >= limit) continue;
    limit = distance;
    found = "; did you mean " + name + "?";
  }
  return found;
}

}  // namespace pinion
