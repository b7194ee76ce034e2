// JSON from files that nobody vouches for: parsing with limits, and typed access to the fields of an object. The only
// place that meets nlohmann/json's parser; no exception leaves it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"

namespace pinion {

using Json = nlohmann::json;

struct JsonLimits {
  int depth = 64;                                      // nested arrays and objects
  int64_t values = 8'000'000;                          // in all; a value takes 16 to 100 bytes of memory
  bool duplicate_keys = false;                         // true: allowed, the last one rules
  int64_t keys = std::numeric_limits<int64_t>::max();  // of one object
};

// `where` names the text in errors ("DIR/config.json"). Strings are valid UTF-8, numbers are finite.
Error parse_json(std::string_view text, const std::string& where, Json* out, JsonLimits limits = {});

// The same with the keys of objects in the order of the text. Each key is compared with all before it in its object:
// hence the limit.
Error parse_ordered_json(std::string_view text, const std::string& where, nlohmann::ordered_json* out,
                         JsonLimits limits = {.values = 200'000, .keys = 4096});

constexpr int64_t kMaxJsonBytes = int64_t{256} << 20;

Error read_json_file(const std::filesystem::path& path, Json* out, JsonLimits limits = {});

// Reads an object field by field. The first thing wrong is kept in `error` and later reads go on with defaults, so a
// whole struct is read in one go and checked once:
//   JsonFields fields{json, "DIR/config.json"};
//   config.layers = fields.integer("num_hidden_layers", {}, 1, 1000);
//   config.tied_head = fields.boolean("tie_word_embeddings", false);
//   if (fields.error) return fields.error;
// A field that is null counts as absent. `absent` is the value then; without one the field is required.
struct JsonFields {
  const Json& object;  // outlives this; anything but an object makes every read fail
  std::string where;
  Error error = {};
  std::vector<std::string> seen = {};  // the names asked for so far

  const Json* find(std::string_view name);  // nullptr when absent or null
  bool has(std::string_view name) { return find(name) != nullptr; }

  int64_t integer(std::string_view name, std::optional<int64_t> absent = {},
                  int64_t least = std::numeric_limits<int64_t>::min(),
                  int64_t most = std::numeric_limits<int64_t>::max());
  double number(std::string_view name, std::optional<double> absent = {},
                double least = std::numeric_limits<double>::lowest(), double most = std::numeric_limits<double>::max());
  bool boolean(std::string_view name, std::optional<bool> absent = {});
  std::string text(std::string_view name, std::optional<std::string> absent = {});

  // Lists; one bare value counts as a list of one, an absent field as an empty list.
  std::vector<int64_t> integers(std::string_view name, int64_t least = std::numeric_limits<int64_t>::min(),
                                int64_t most = std::numeric_limits<int64_t>::max());
  std::vector<double> numbers(std::string_view name, double least = std::numeric_limits<double>::lowest(),
                              double most = std::numeric_limits<double>::max());
  std::vector<std::string> texts(std::string_view name);

  // An object inside; an empty one when absent. Its `error` starts as this one's: check the last of the two.
  JsonFields fields(std::string_view name);

  // The names never asked for whose value is not null.
  std::vector<std::string> unread() const;

  void fail(std::string_view name, std::string what, std::string expected = {}, std::string actual = {});
};

// "a, b"
std::string joined(const std::vector<std::string>& items, std::string_view between = ", ");

// A value as it stands in the text, on one line, short enough for an error message.
std::string brief(const Json& value);

}  // namespace pinion
