#include "tokenizer/answers/tool_formats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "configs/families.h"
#include "tokenizer/answers/json_scanner.h"

namespace pinion {
namespace {

using FormatJson = nlohmann::json;

constexpr std::string_view kBodies[] = {"", "json", "pattern", "xml", "braces", "python", "harmony"};  // of ToolBody

std::string_view text_of(const FormatJson& text) { return text.get_ref<const std::string&>(); }

// The texts of a list; those that it lacks are empty.
template <size_t count>
std::array<std::string_view, count> texts_of(const FormatJson& row, const char* key) {
  std::array<std::string_view, count> texts;
  const FormatJson list = row.value(key, FormatJson::array());
  for (size_t i = 0; i < list.size(); ++i) texts.at(i) = text_of(row[key][i]);
  return texts;
}

ToolFormatRow read_row(const FormatJson& row) {
  const auto text = [&](const char* key) { return row.contains(key) ? text_of(row[key]) : std::string_view(); };
  const auto tags = texts_of<7>(row, "tags");
  const auto force = texts_of<2>(row, "force");
  ToolFormatRow made = {
      .name = text("name"),
      .templates = {},
      .body = static_cast<ToolBody>(std::ranges::find(kBodies, text("body")) - kBodies),
      .open = texts_of<2>(row, "open"),
      .close = texts_of<2>(row, "close"),
      .other_marks = texts_of<7>(row, "other_marks"),
      .bare = text("bare"),
      .syntax = text("syntax"),
      .tags = {tags[0], tags[1], tags[2], tags[3], tags[4], tags[5], tags[6]},
      .key_is_name = row.value("key_is_name", false),
      .force_before = force[0],
      .force_after = force[1],
  };
  for (const FormatJson& texts : row["templates"]) {
    made.templates.emplace_back();
    std::ranges::transform(texts, std::back_inserter(made.templates.back()), text_of);
  }
  return made;
}

// Unused marks of a row are empty.
bool contains(const auto& marks, std::string_view mark) {
  return !mark.empty() && std::ranges::find(marks, mark) != marks.end();
}

}  // namespace

const std::vector<ToolFormatRow>& tool_formats() {
  static const FormatJson json = FormatJson::parse(tool_formats_text());
  static const std::vector<ToolFormatRow> rows = [] {
    std::vector<ToolFormatRow> read;
    std::ranges::transform(json, std::back_inserter(read), read_row);
    return read;
  }();
  return rows;
}

const ToolFormatRow& tool_format_row(ToolFormat format) {
  const auto found = std::ranges::find(tool_formats(), format, &ToolFormatRow::name);
  return found == tool_formats().end() ? tool_format_row({}) : *found;
}

ToolFormat detect_tool_format(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != std::string_view::npos; };
  const auto has_all = [&](const auto& texts) { return std::ranges::all_of(texts, has); };
  const auto fits = [&](const ToolFormatRow& row) { return std::ranges::any_of(row.templates, has_all); };
  const auto found = std::ranges::find_if(tool_formats(), fits);
  return found == tool_formats().end() ? ToolFormat() : found->name;
}

bool is_tool_mark(ToolFormat format, std::string_view token) {
  const ToolFormatRow& row = tool_format_row(format);
  const XmlTags& tags = row.tags;
  const auto has_token = [&](std::string_view text) { return text.find(token) != std::string_view::npos; };
  return contains(row.open, token) || contains(row.close, token) || contains(row.other_marks, token) ||
         (token.size() > 2 &&
          std::ranges::any_of(
              std::to_array({row.syntax, tags.name_end, tags.key, tags.key_end, tags.value_end, tags.end}), has_token));
}

std::string forced_call(ToolFormat format, std::string_view name, std::string_view thought_close) {
  const ToolFormatRow& row = tool_format_row(format);
  std::string text;
  if (!thought_close.empty()) text.append("\n").append(thought_close).append("\n\n");
  text += row.force_before;
  return name.empty() ? text : text.append(json_escaped(name)).append(row.force_after);
}

}  // namespace pinion
