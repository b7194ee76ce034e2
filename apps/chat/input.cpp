#include "apps/chat/input.h"

#include <string_view>

namespace pinion {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

bool is_block(std::string_view typed) { return typed.starts_with(kQuotes); }
bool is_closed_block(std::string_view typed) { return typed.size() >= 2 * kQuotes.size() && typed.ends_with(kQuotes); }

bool needs_more(std::string_view typed) { return is_block(typed) ? !is_closed_block(typed) : typed.ends_with('\\'); }

std::string text_of_block(std::string_view typed) {
  const bool is_closed = is_closed_block(typed);  // not, where the input ended before
  typed.remove_prefix(kQuotes.size());
  if (is_closed) typed.remove_suffix(kQuotes.size());
  if (typed.starts_with('\n')) typed.remove_prefix(1);
  return std::string(typed);
}

// A backslash at the end of a line only says that there are more.
std::string text_of_lines(std::string typed) {
  for (size_t at; (at = typed.find("\\\n")) != std::string::npos;) typed.erase(at, 1);
  if (typed.ends_with('\\')) typed.back() = '\n';
  return typed;
}

}  // namespace

std::optional<ChatInput> read_input(LineReader& reader) {
  std::optional<std::string> typed = reader.read();
  if (!typed) return {};
  while (!reader.cancelled() && needs_more(*typed)) {
    const std::optional<std::string> line = reader.read_more();
    if (!line && reader.failure()) return {};
    if (!line) break;
    *typed += "\n" + *line;
  }
  if (reader.cancelled()) return ChatInput{};
  reader.remember(*typed);
  ChatInput input = {is_block(*typed) ? text_of_block(*typed) : text_of_lines(*typed), typed->starts_with('/')};
  input.text.erase(input.text.find_last_not_of(" \t\r\n") + 1);
  return input;
}

}  // namespace pinion
