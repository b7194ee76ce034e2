// The small files beside a tokenizer: tokenizer_config.json, special_tokens_map.json, added_tokens.json.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "loader/files/json.h"
#include "tokenizer/tokens/added_tokens.h"

namespace pinion {

struct TokenizerSettings {
  std::string bos_token, eos_token;  // empty: none
  bool add_bos = true, add_eos = false;
  // Every token that is named somewhere; one may come more than once, each time with part of the facts. Id -1: not
  // given. tokenizer.json has all this itself, the other kinds do not.
  std::vector<AddedToken> added;
};

// Files that do not exist are no error.
Error read_settings(const std::filesystem::path& folder, TokenizerSettings* out);

// A token of a settings file: "text", or {"content": "text", ...}. Empty when absent.
std::string setting_token(JsonFields& settings, std::string_view name);

Error read_file(const std::filesystem::path& path, std::string* out);

}  // namespace pinion
