// JSON from untrusted files: parsing with limits, and typed access to the fields of an object. The only user of
// nlohmann/json's parser; no exception leaves it.
#pragma once

#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"

namespace pinion {

using Json = nlohmann::json;

struct JsonLimits {
  int depth = 64;                                      // nested arrays and objects
  int64_t values = 8'000'000;                          // in total; a value takes 16 to 100 bytes of memory
  bool duplicate_keys = false;                         // true: allowed, the last one wins
  int64_t keys = std::numeric_limits<int64_t>::max();  // of one object
  bool lone_surrogates = false;  // true: such an escape, which JavaScript writes, becomes U+FFFD instead of an error
};

// A list or an object in flat arrays, for hundreds of thousands of items: as Json each would cost several allocations.
struct FlatJson {
  enum class Kind : uint8_t { kText, kCount, kOther, kList, kObject };
  struct Node {
    Kind kind;
    uint32_t size;  // kText: bytes; kList: items; kObject: members
    uint64_t at;    // kText: offset in `texts`; kCount: a non-negative integer; kOther: index in `others`;
                    // kList, kObject: index of the node after the last one inside
  };
  std::vector<Node> nodes;  // in the order of the text, the root first; a member is a kText (the key), then its value
  std::string texts;
  std::vector<Json> others;  // null, booleans, all other numbers

  std::string_view text(size_t node) const { return std::string_view(texts).substr(nodes[node].at, nodes[node].size); }
  size_t next(size_t node) const { return nodes[node].kind < Kind::kList ? node + 1 : nodes[node].at; }
};

// The member {object: {member: ...}} of a text. If its value is a list or an object, it goes to `out`, and the Json
// gets an empty one instead.
struct FlatMember {
  std::string_view object, member;
  FlatJson* out;
};

// `where` names the text in errors ("DIR/config.json"). Strings are valid UTF-8, numbers are finite. Members in `flat`
// may contain duplicate keys whatever the limits are.
Error parse_json(std::string_view text, const std::string& where, Json* out, JsonLimits limits = {},
                 std::span<const FlatMember> flat = {});

// The same with the keys of objects in the order of the text. Each key is compared with all earlier keys of its object,
// hence the limit.
Error parse_ordered_json(std::string_view text, const std::string& where, nlohmann::ordered_json* out,
                         JsonLimits limits = {.values = 200'000, .keys = 4096});

constexpr int64_t kMaxJsonBytes = int64_t{256} << 20;

Error read_json_file(const std::filesystem::path& path, Json* out, JsonLimits limits = {});

// Reads an object field by field. The first failure is kept in `error` and later reads return defaults, so a whole
// struct is read in one go and checked once:
//   JsonFields fields{json, "DIR/config.json"};
//   config.layers = fields.integer("num_hidden_layers", {}, 1, 1000);
//   config.tied_head = fields.boolean("tie_word_embeddings", false);
//   if (fields.error) return fields.error;
// A null field counts as absent. `absent` is the value then; without one the field is required.
struct JsonFields {
  const Json& object;  // outlives this; if it is not an object, every read fails
  std::string where;
  Error error = {};
  std::vector<std::string> seen = {};  // names read so far
  JsonFields* parent = nullptr;        // outlives this; gets its first failure, too

  const Json* find(std::string_view name);  // nullptr when absent or null
  bool has(std::string_view name) { return find(name) != nullptr; }

  int64_t integer(std::string_view name, std::optional<int64_t> absent = {},
                  int64_t min = std::numeric_limits<int64_t>::min(), int64_t max = std::numeric_limits<int64_t>::max());
  double number(std::string_view name, std::optional<double> absent = {},
                double min = std::numeric_limits<double>::lowest(), double max = std::numeric_limits<double>::max());
  bool boolean(std::string_view name, std::optional<bool> absent = {});
  std::string text(std::string_view name, std::optional<std::string> absent = {});

  std::span<const Json> list(std::string_view name);  // a required list, whose items the caller checks
  // Lists. A bare value counts as a list of one, an absent field as an empty list.
  std::vector<int64_t> integers(std::string_view name, int64_t min = std::numeric_limits<int64_t>::min(),
                                int64_t max = std::numeric_limits<int64_t>::max());
  std::vector<double> numbers(std::string_view name, double min = std::numeric_limits<double>::lowest(),
                              double max = std::numeric_limits<double>::max());
  std::vector<std::string> texts(std::string_view name);

  // A nested object, empty when absent. Its `error` starts as this one's, and this one gets its failures.
  JsonFields fields(std::string_view name);

  std::vector<std::string> unread() const;  // names whose value is not null and that were never read
  void fail(std::string_view name, std::string what, Shown expected = {}, Shown actual = {});
};

// "a, b"
std::string joined(const std::vector<std::string>& items, std::string_view separator = ", ");

// A value as in the text, on one line, short enough for an error message.
std::string brief(const Json& value);
std::string brief(const FlatJson& json, size_t node);

}  // namespace pinion
