// The grammar of a request's tool calls in XGrammar's EBNF: a row of tool_formats.cpp, and respelled schemas.
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "loader/files/json.h"
#include "tokenizer/answers/json_scanner.h"
#include "tokenizer/grammar/hooks.h"
#include "tokenizer/grammar/sources.h"

namespace pinion {
namespace {

using std::string_view;

constexpr int kMaxChoiceDepth = 8;
// The library's automaton of [^\x00] also matches ill-formed UTF-8.
constexpr const char* kAnyText = R"(^([\x01-\x7F]|[\x80-\u07FF]|[\u0800-\uD7FF]|[\uE000-\uFFFF]|[^\x00-\uFFFF])*$)";
constexpr string_view kCdata = "<![CDATA[";

// A line that excludes the texts with `part`, a pattern (see hooks.h).
std::string line_without(const std::string& part) { return "\n!^[^\\x00]*" + part + "[^\\x00]*$"; }

// Makes the patterns of JSON strings match no escapes, so that they hold for strings that are written as they are.
void exclude_escapes(Schema& schema, const std::string& more_lines) {
  if (!schema.is_structured()) return;
  if (schema.is_object() && schema.contains("pattern") && schema["pattern"].is_string()) {
    schema["pattern"] = schema["pattern"].get<std::string>() + "\n" + kAnyText + line_without("\\\\") + more_lines;
  }
  for (Schema& part : schema) exclude_escapes(part, more_lines);
}

string_view open_mark(const ToolFormatRow& row) { return row.body == ToolBody::kHarmony ? kHarmonyCall : row.open[0]; }

bool is_text(const Schema& leaf) {
  return leaf.empty() || (leaf.contains("const") ? leaf["const"].is_string() : leaf.value("type", "") == "string");
}

class CallGrammar {
 public:
  // is_counter: marks are texts, not tokens, and schemas have nothing but maximum lengths.
  CallGrammar(const ToolFormatRow& row, const Tokenizer& tokenizer, bool is_counter)
      : row_(row),
        tokenizer_(tokenizer),
        is_counter_(is_counter),
        is_xml_(row.body == ToolBody::kXml),
        is_python_(row.body == ToolBody::kPython),
        is_braces_(row.body == ToolBody::kBraces) {
    split_form();
    rules_ = basic_rules();
    const auto any = xgrammar::Grammar::FromJSONSchema("{}", false, std::nullopt, separators());
    rules_ += respell(any.ToString(), "", true, spelling());
    if (!is_braces_) return;
    const std::string mark = " " + in_quotes(row.syntax) + " ";
    rules_ += "basic_string ::=" + mark + free_text({row.syntax}) + mark + "\n";
  }

  // A call from the name on.
  Error add_tool(const std::string& name, const Schema& schema) {
    definitions_ = schema.value("$defs", Schema::object());
    const bool is_by_itself = is_xml_ || is_python_ || is_braces_;
    std::string arguments, end;
    Schema object = schema;
    object.erase("$defs");
    std::vector<Schema> leaves;
    leaves_of(object, kMaxChoiceDepth, &leaves);
    const auto is_other = [](const Schema& leaf) { return !leaf.empty() && leaf.value("type", "") != "object"; };
    if (std::ranges::any_of(leaves, is_other)) return error("not an object", "parameters");
    if (object.empty()) object = {{"type", "object"}};
    if (Error e = is_by_itself ? add_arguments(object, kMaxChoiceDepth, &arguments) : add_schema(object, &arguments)) {
      return e;
    }
    if (is_json_call_ || is_braces_) end = "}";
    if (row_.body == ToolBody::kPattern && !is_json_call_) end = row_.syntax.substr(row_.syntax.find("%a") + 2);
    std::ranges::replace(end, ' ', '\n');  // of a pattern: white space
    if (is_xml_) end = row_.tags.end;
    if (is_python_) end = ")";
    const bool has_line_end = row_.body == ToolBody::kPattern && row_.force_after == "\n";
    calls_ += (calls_.empty() ? "" : " | ") + in_quotes(json_escaped(name)) + " " +
              (has_line_end ? "[\\n] " : literal(row_.force_after)) + (is_by_itself ? "" : "[ ]? ") + arguments +
              (is_xml_ ? " [\\n]? " : " ") + literal(end);
    return {};
  }

  // is_forced: the whole answer is calls; else the grammar is that of one call or list.
  std::string finish(bool is_forced) {
    const string_view open = open_mark(row_), mark = row_.close[0];
    const bool begins_with_mark = !open.empty() && head_.starts_with(open), is_bare = !row_.bare.empty();
    // The mark behind a call may also be a token that ends the text.
    std::string close;
    if (!mark.empty() && row_.body != ToolBody::kHarmony && mark != row_.tags.end && !row_.syntax.ends_with(mark)) {
      close = "(" + literal("\n") + literal(mark) + ")";
      if (is_bare || !row_.open[1].empty() || close.find("Token(") != std::string::npos) close += '?';
    }
    std::string text = "call ::= " + calls_ + "\nitem ::= " + literal(item_) + "call\ncalls ::= item ";
    if (is_list_) text += "(\",\" " + literal("\n") + "item)* " + literal("\n") + "\"]\" ";
    if (is_python_ && !is_list_) text += "([\\n] item)* ";
    // Another mark may begin the call, or a mark where the form has none.
    std::string first = literal(head_) + "calls " + close;
    const std::string inner = head_ + item_;
    for (const string_view other : row_.open) {
      if (other.empty() || inner.starts_with(other)) continue;
      const size_t at = inner.find(other);
      first += " | ";
      if (at != std::string::npos) {
        first += literal(inner.substr(at)) + "call " + close;
      } else {
        first += literal(std::string(other) + head_.substr(begins_with_mark ? open.size() : 0)) + "calls " + close;
      }
    }
    text += "\nfirst ::= " + first + "\nroot ::= first";
    if (is_forced && !is_list_ && row_.body != ToolBody::kHarmony) {
      const std::string again = is_bare            ? "; "
                                : begins_with_mark ? row_.close[1].empty() ? outer_ : ""
                                                   : std::string(open);
      text += " ([\\n]? " + literal(again) + literal(head_) + "calls " + close + ")*";
      if (!row_.close[1].empty()) text += " (" + literal("\n") + literal(row_.close[1]) + ")?";
    }
    return rules_ + text + "\n";
  }

  const std::map<std::string, int32_t>& marks() const { return marks_; }

 private:
  std::pair<std::string, std::string> separators() const {
    return is_braces_ ? std::pair(",", ":") : std::pair(", ", ": ");
  }
  CallSpelling spelling() const { return {row_.body, is_raw_, std::string(is_braces_ ? row_.syntax : "")}; }

  void split_form() {
    const string_view open = open_mark(row_);
    const string_view form = row_.force_before;
    const size_t at = open.empty() ? string_view::npos : form.find(open);
    outer_ = at == string_view::npos ? "" : form.substr(0, at);
    const string_view inner = form.substr(outer_.size());
    is_json_call_ = inner.find('{') != string_view::npos;
    const size_t bracket = inner.find('[', at == string_view::npos ? 0 : open.size());
    is_list_ = (is_json_call_ || is_python_) && bracket != string_view::npos;
    const size_t head_bytes = is_list_ ? bracket + 1 : at == string_view::npos ? 0 : open.size();
    head_ = inner.substr(0, head_bytes);
    item_ = inner.substr(head_bytes);
  }

  // The text of a form as a grammar: special tokens by their ids, any number for a number, white space may be missing.
  std::string literal(string_view text) {
    constexpr size_t kMaxTokenBytes = 64;
    const auto is_part = [](char c) { return is_name(c) || c == '"'; };
    std::string out, plain;
    size_t kept = 0;  // bytes of a mark, whose white space is not missing
    const auto flush = [&] {
      if (!plain.empty()) out += in_quotes(plain) + ' ';
      plain.clear();
    };
    while (!text.empty()) {
      size_t bytes = std::min(text.size(), kMaxTokenBytes);
      int32_t id = -1;
      for (; bytes > 2 && id < 0 && !is_counter_; --bytes) {
        id = token_id(tokenizer_, text.substr(0, bytes));
        if (id >= 0 && !token_bytes(tokenizer_, id).empty()) id = -1;
        bytes += id >= 0;
      }
      const size_t spaces = std::min(text.find_first_not_of(" \n"), text.size());
      const bool joins_words = spaces < text.size() && !plain.empty() && is_part(plain.back()) && is_part(text[spaces]);
      const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
      const auto mark = std::ranges::find_if(
          row_.open, [&](string_view one) { return one.find_first_of(" \n") != one.npos && text.starts_with(one); });
      if (mark != row_.open.end()) kept = mark->size();
      if (id >= 0) {
        flush();
        out += "Token(" + std::to_string(id) + ") ";
        marks_[std::string(text.substr(0, bytes))] = id;
      } else if (kept == 0 && spaces > 0 && !joins_words) {
        flush();
        bytes = spaces;
        out += "(" + in_quotes(text.substr(0, spaces)) + ")? ";
      } else if (kept == 0 && digits > 0) {
        flush();
        bytes = digits;
        out += "[0-9]{1,2} ";
      } else {
        bytes = 1;
        plain += text.front();
      }
      text.remove_prefix(bytes);
      kept -= std::min(kept, bytes);
    }
    flush();
    return out.empty() ? "\"\" " : out;
  }

  std::string add_rule(const std::string& body) {
    const auto [found, is_new] =
        rule_of_schema_.try_emplace("::=" + body, "r" + std::to_string(rule_of_schema_.size()));
    if (is_new) rules_ += found->second + " ::= " + body + "\n";
    return found->second;
  }

  // Any text without the marks that end it.
  std::string free_text(const std::vector<string_view>& ends) {
    std::string lines = kAnyText;
    for (const string_view end : ends) lines += line_without(regex_escaped(end));
    return add_rule("Regex(" + in_quotes(lines) + ")");
  }

  // The value of a schema that complete_schema() made.
  Error add_schema(Schema schema, std::string* rule) {
    const bool is_plain = is_braces_ && !is_counter_;
    const std::string no_mark = is_plain ? line_without(regex_escaped(row_.syntax)) : "";
    if (is_plain) exclude_escapes(schema, no_mark);
    std::string text = schema.dump();
    if (text.find("\"$ref\"") != std::string::npos) {
      schema["$defs"] = definitions_;
      if (is_plain) exclude_escapes(schema["$defs"], no_mark);
      text = schema.dump();
    }
    const auto [found, is_new] =
        rule_of_schema_.try_emplace((is_raw_ ? "raw" : "") + text, "s" + std::to_string(rule_of_schema_.size()) + "_");
    *rule = found->second + "root";
    if (!is_new) return {};
    std::string& warning = grammar_warning();
    warning.clear();
    std::string failure;
    try {
      rules_ += respell(xgrammar::Grammar::FromJSONSchema(text, false, std::nullopt, separators()).ToString(),
                        found->second, false, spelling());
      failure = warning;
    } catch (const std::exception& e) {
      failure = e.what();
    }
    if (failure.empty()) return {};
    rule_of_schema_.erase(found);
    return error(failure, "schema");
  }

  const Schema& resolved(const Schema& schema) const {
    constexpr string_view kDefinitions = "#/$defs/";
    const Schema* at = &schema;
    while (at->is_object() && at->contains("$ref")) {
      at = &definitions_[(*at)["$ref"].get_ref<const std::string&>().substr(kDefinitions.size())];
    }
    return *at;
  }

  // The schemas of one type or value that a schema is a choice of.
  void leaves_of(const Schema& schema, int depth, std::vector<Schema>* out) const {
    const Schema& at = resolved(schema);
    if (depth > 0 && at.is_object() && (at.contains("anyOf") || at.contains("oneOf"))) {
      for (const Schema& branch : at[at.contains("anyOf") ? "anyOf" : "oneOf"]) leaves_of(branch, depth - 1, out);
    } else if (at.is_object() && at.contains("enum")) {
      for (const Schema& value : at["enum"]) out->push_back({{"const", value}});
    } else {
      out->push_back(at);
    }
  }

  // A value of XML parameters that may be a string: strings are written as they are.
  Error add_text_value(const std::vector<Schema>& leaves, std::string* rule) {
    const std::vector<string_view> ends = {row_.tags.value_end, kCdata};
    std::string choice;
    for (const Schema& leaf : leaves) {
      std::string one;
      if (leaf.empty()) {
        one = free_text(ends);
      } else if (leaf.contains("const")) {
        if (leaf["const"].is_string()) one = "[\\n]? " + in_quotes(leaf["const"].get<std::string>()) + " [\\n]?";
      } else if (leaf.value("type", "") != "string") {
        if (leaf.value("type", "") == "null" && row_.tags.type.empty()) one = "\"null\"";
      } else if (!leaf.contains("pattern") && !leaf.contains("format")) {
        one = free_text(ends);
      } else {
        Schema plain = leaf;
        if (!is_counter_) exclude_escapes(plain, line_without(regex_escaped(row_.tags.value_end)));
        const std::string pattern = plain.value("pattern", "");
        if (!is_counter_ && !pattern.empty() && automaton_states(pattern).value_or(0) == 0)
          return error("too many states", "pattern");
        is_raw_ = true;
        const Error e = add_schema(plain, &one);
        is_raw_ = false;
        if (e) return e;
      }
      if (!one.empty()) choice += (choice.empty() ? "" : " | ") + one;
    }
    *rule = add_rule(choice);
    return {};
  }

  // The text between the key and the value. `type`: of the value.
  std::string key_end(string_view type) const {
    const XmlTags& tags = row_.tags;
    if (!is_xml_) return is_python_ ? "=" : ":";
    std::string text;
    if (tags.key.ends_with('"')) text += '"';
    if (tags.key.ends_with('>')) text.append("</").append(tags.key.substr(1)).append("\n");
    if (!tags.type.empty()) {
      const string_view flag = type == "string" ? "true" : "false";
      text.append(tags.type).append(tags.type == " string=\"" ? flag : type).append("\"");
    }
    return text.append(tags.key_end);
  }

  // `name`: null for any word.
  Error add_property(const std::string* name, const Schema& schema, std::string* rule) {
    std::string value;
    std::vector<Schema> leaves;
    leaves_of(schema, kMaxChoiceDepth, &leaves);
    const bool is_string = std::ranges::any_of(leaves, is_text);
    const auto added = is_xml_ && is_string ? add_text_value(leaves, &value) : add_schema(schema, &value);
    if (added) return added;
    const std::string type = is_string ? "string" : leaves[0].value("type", "number");
    const std::string key = name ? in_quotes(*name) + " " : "[A-Za-z_] [0-9A-Za-z_\\-]{0,63} ";
    const std::string line_end = is_xml_ && !is_string ? " [\\n]? " : " ";
    *rule = add_rule(literal(row_.tags.key) + key + literal(key_end(type)) + line_end + value + line_end +
                     literal(row_.tags.value_end));
    return {};
  }

  // The arguments of forms that write each of them by itself, without quotes around the names.
  Error add_arguments(const Schema& schema, int depth, std::string* rule) {
    const Schema& object = resolved(schema);
    std::string one;
    if (depth > 0 && object.contains("anyOf")) {
      std::string choice;
      for (const Schema& branch : object["anyOf"]) {
        if (Error e = add_arguments(branch, depth - 1, &one)) return e;
        choice += (choice.empty() ? "" : " | ") + one;
      }
      *rule = add_rule(choice);
      return {};
    }
    if (!object.empty() && object.value("type", "") != "object") return error("not an object", "parameters");
    for (const char* keyword : {"patternProperties", "propertyNames", "minProperties", "maxProperties"}) {
      if (object.contains(keyword)) return error("not supported in this form of calls", keyword);
    }
    const std::string separator = is_xml_ ? "[\\n]? " : is_python_ ? "\",\" [ ]? " : "\",\" ";
    const Schema properties = object.value("properties", Schema::object());
    const Schema others =
        object.value("additionalProperties", Schema(object.empty() || !object.contains("properties")));
    std::string first = "\"\"", rest = "\"\"";
    if (properties.empty() && others != false) {
      if (Error e = add_property(nullptr, others.is_object() ? others : Schema::object(), &one)) return e;
      first = add_rule("(" + one + " (" + separator + one + ")*)?");
    }
    const Schema required = object.value("required", Schema::array());
    for (auto at = properties.rbegin(); at != properties.rend(); ++at) {
      if (Error e = add_property(&at.key(), at.value(), &one)) return e;
      const bool is_required = std::find(required.begin(), required.end(), at.key()) != required.end();
      first = add_rule(one + " " + rest + (is_required ? "" : " | " + first));
      rest = add_rule(separator + one + " " + rest + (is_required ? "" : " | " + rest));
    }
    *rule = first;
    return {};
  }

  const ToolFormatRow& row_;
  const Tokenizer& tokenizer_;
  const bool is_counter_, is_xml_, is_python_, is_braces_;
  bool is_raw_ = false;        // strings have no quotes
  bool is_json_call_ = false;  // {"name": ..., "arguments": ...}
  bool is_list_ = false;       // of calls, between brackets
  // The form before the name: up to the mark of a call, from there into the list of calls, and the rest.
  std::string outer_, head_, item_;
  std::string rules_, calls_;
  std::map<std::string, std::string> rule_of_schema_;
  std::map<std::string, int32_t> marks_;   // special tokens of the form
  Schema definitions_ = Schema::object();  // of the current tool
};

}  // namespace

Error complete_calls(string_view text, const Tokenizer& tokenizer, std::string* out) {
  const Schema kAnyObject = {{"type", "object"}};
  Schema source;
  if (Error e = parse_ordered_json(text, "tools", &source)) return e;
  const ToolFormatRow& row = tool_format_row(source["format"].get_ref<const std::string&>());
  CallGrammar whole(row, tokenizer, false), counter(row, tokenizer, true);
  bool is_counted = false;
  Schema loose = Schema::array();
  for (const auto& [name, parameters] : source["tools"].items()) {
    std::string completed;
    Error e = complete_schema(parameters.dump(), name, &completed);
    Schema schema = e ? kAnyObject : Schema::parse(completed), lengths = schema;
    const bool has_max = drop_max_lengths(schema, false);
    drop_max_lengths(lengths, true);
    Error failure = whole.add_tool(name, schema);
    if (!failure) failure = counter.add_tool(name, lengths);
    if (e || failure) loose.push_back(name);
    is_counted |= has_max;
    if (!failure) continue;
    if (Error again = whole.add_tool(name, kAnyObject)) return again;
    if (Error again = counter.add_tool(name, kAnyObject)) return again;
  }
  const bool is_forced = source["is_forced"];
  *out = Schema{{"grammar", whole.finish(is_forced)},
                {"counter", is_counted ? counter.finish(is_forced) : ""},
                {"marks", whole.marks()},
                {"is_json", row.body != ToolBody::kXml && row.body != ToolBody::kBraces},
                {"loose", loose}}
             .dump();
  return {};
}

}  // namespace pinion
