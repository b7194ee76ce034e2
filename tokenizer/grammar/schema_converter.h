// Converts a JSON schema to one that XGrammar implements: keywords beside each other, $ref and allOf are intersected,
// so that each resulting schema is a reference, an anyOf, an enum, or the keywords of one type.
#pragma once

#include <deque>
#include <map>
#include <set>

#include "tokenizer/grammar/sources.h"

namespace pinion {

// True if a schema has a keyword about values of a type: "object", "array", "string" or "number".
bool has_assertion(const Schema& schema, std::string_view type);

class SchemaConverter {
 public:
  // where: names the schema in errors. `root` outlives this.
  SchemaConverter(const Schema& root, const std::string& where) : root_(root), where_(where) {}

  Error convert(Schema* out);

 private:
  struct Choice {  // anyOf or oneOf
    const Schema* branches;
    std::string where;
    bool is_exclusive;  // oneOf
  };
  // The schemas that one value has to match: references and allOf are followed.
  struct SchemaSet {
    std::vector<SchemaPart> parts = {};  // those with keywords of their own
    std::vector<Choice> choices = {};
    std::set<const Schema*> seen = {};
    bool has_reference = false;  // may be recursive, so it becomes a definition
    bool has_values = true;      // false: one of the schemas is `false`
  };
  struct Names {  // of the properties of an object
    std::vector<std::string> listed = {}, required = {};
    std::vector<std::string> patterns = {};  // of patternProperties, as escape_pattern() writes them
    std::string key = {};                    // pattern of all names; empty: any
    bool has_list = false, is_open = false;  // is_open: other names are allowed
    bool is_finite = false;                  // propertyNames lists all names
  };

  Error add(const Schema& schema, const std::string& where, SchemaSet* out);
  Error add_nested(const Schema& schema, const std::string& where, SchemaSet* out);
  // Each function writes one schema, which is `false` if no value matches. refer() makes a definition if need be.
  Error refer(const SchemaSet& all, const std::string& around, Schema* out);
  Error expand(const SchemaSet& all, const std::string& where, Schema* out);
  Error expand_values(const SchemaSet& all, Schema* out);
  Error expand_choice(const SchemaSet& all, Schema* out);
  Error expand_types(const SchemaSet& all, const std::string& where, Schema* out);
  Error expand_type(Parts parts, std::string_view type, const std::string& where, Schema* out);
  Error no_value(const std::string& what, const std::string& where, Schema* out);
  const Schema& resolved(const Schema& made) const;  // follows references to definitions

  // schema_structures.cpp
  Error complete_object(Parts parts, const std::string& where, Schema* out);
  Error read_names(Parts parts, Names* out);
  Error limit_names(Parts parts, Names* names);
  Error value_of(Parts parts, const Names& names, const std::string* name, size_t chosen, SchemaSet* out);
  Error add_property(Parts parts, const Names& names, const std::string& name, const std::string& where, Schema* out);
  Error add_others(Parts parts, const Names& names, const std::string& where, Schema* out);

  Error complete_array(Parts parts, const std::string& where, Schema* out);
  Error item_at(Parts parts, size_t i, SchemaSet* out);
  bool list_unique(const Schema& items, int64_t min, int64_t max, Schema* out) const;

  const Schema& root_;
  const std::string& where_;
  std::map<std::vector<const Schema*>, size_t> numbers_ = {};  // of definitions, by the schemas that they intersect
  std::deque<Schema> definitions_ = {};
  std::vector<bool> is_referenced_ = {};
  std::map<const Schema*, Schema> made_ = {};  // anyOf that replace dependencies, by their schemas
  std::vector<const Schema*> active_ = {};     // schemas that add() is inside
  int steps_ = 0, depth_ = 0;
  Error reason_ = {};  // of the last `false`
};

}  // namespace pinion
