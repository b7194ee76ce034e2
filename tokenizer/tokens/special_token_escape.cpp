#include "tokenizer/tokens/special_token_escape.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <nlohmann/json.hpp>
#include <utility>

#include "tokenizer/answers/thinking.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char32_t kFirstPrivate = 0x100000, kLastPrivate = 0x10FFFD;  // plane 16
constexpr char kPrivateLead = '\xF4';                                  // the first byte of each of them in UTF-8

struct Replacer {
  std::bitset<kLastPrivate - kFirstPrivate + 1> taken;
  std::vector<Escape>* escapes;
  Error failure = {};
};

void mark_taken(std::string_view text, Replacer* out) {
  for (size_t at = 0; (at = text.find(kPrivateLead, at)) != text.npos; ++at) {
    size_t next = at;
    const char32_t c = next_char(text, &next);
    if (c >= kFirstPrivate && c <= kLastPrivate) out->taken.set(c - kFirstPrivate);
  }
}

std::string escape_of(std::string_view original, Replacer* replacer) {
  const auto known = std::ranges::find(*replacer->escapes, original, &Escape::original);
  if (known != replacer->escapes->end()) return known->escaped;
  for (char32_t c = kFirstPrivate; c <= kLastPrivate; ++c) {
    if (replacer->taken[c - kFirstPrivate]) continue;
    replacer->taken.set(c - kFirstPrivate);
    Escape fresh{{}, std::string(original)};
    append_utf8(c, &fresh.escaped);
    replacer->escapes->push_back(fresh);
    return fresh.escaped;
  }
  replacer->failure =
      error("every private-use character of plane 16 occurs, none can stand for a special token", "conversation");
  return std::string(original);
}

size_t without_trailing_space(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    if (!is_python_space(next_char(text, &at))) end = at;
  }
  return end;
}

struct Guard {
  AddedTokenFinder tokens;  // to replace
  AddedTokenFinder left;    // what stays, though it may begin like one of them
};

bool begins_one(const AddedTokenFinder& tokens, std::string_view start) {
  const auto next = std::ranges::lower_bound(tokens.tokens, start, {}, &AddedToken::content);
  return next != tokens.tokens.end() && next->content.starts_with(start);
}

// Whether the character from `at` to `next` is to be replaced; the text ends in blanks from `end` on.
bool begins_token(const AddedTokenFinder& tokens, std::string_view text, size_t at, size_t next, size_t end) {
  if (!tokens.first_bytes[static_cast<unsigned char>(text[at])]) return false;
  if (longest_at(tokens, text, at) != nullptr) return true;
  if (next < text.size()) {
    next_char(text, &next);
    if (begins_one(tokens, text.substr(at, next - at))) return true;
  }
  return at < end && begins_one(tokens, text.substr(at, end - at));
}

std::string replaced(const Guard& guard, const std::string& text, Replacer* replacer) {
  std::string result;
  const size_t end = without_trailing_space(text);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (const AddedToken* left = longest_at(guard.left, text, at)) {
      result += left->content;
      at += left->content.size();
      continue;
    }
    next_char(text, &at);
    const std::string_view character = std::string_view(text).substr(begin, at - begin);
    result +=
        begins_token(guard.tokens, text, begin, at, end) ? escape_of(character, replacer) : std::string(character);
  }
  return result;
}

// A token that is a word may be a role.
bool is_word_token(const AddedToken& token) {
  for (size_t at = 0; at < token.content.size();) {
    if (!is_word(next_char(token.content, &at))) return false;
  }
  return true;
}

std::string replaced_in_role(const AddedTokenFinder& tokens, const std::string& role, Replacer* replacer) {
  std::string result;
  for (size_t at = 0; at < role.size();) {
    const size_t begin = at;
    const AddedToken* token = longest_at(tokens, role, at);
    next_char(role, &at);
    const std::string_view character = std::string_view(role).substr(begin, at - begin);
    const bool is_token = token != nullptr && !is_word_token(*token);
    result += is_token ? escape_of(character, replacer) : std::string(character);
  }
  return result;
}

void replace_everywhere(const Guard& guard, OrderedJson* value, Replacer* replacer) {
  if (value->is_string()) {
    *value = replaced(guard, value->get_ref<const std::string&>(), replacer);
  } else if (value->is_array()) {
    for (OrderedJson& item : *value) replace_everywhere(guard, &item, replacer);
  } else if (value->is_object()) {
    // Different keys stay different; an insertion that looks for the key would take time with the square of their
    // number.
    OrderedJson::object_t object;
    for (auto& [key, item] : value->items()) {
      replace_everywhere(guard, &item, replacer);
      object.emplace_back(replaced(guard, key, replacer), std::move(item));
    }
    *value = std::move(object);
  }
}

bool marks_thoughts(const AddedToken& token) {
  return is_thinking_mark(token.content) || token.content.find("think") != std::string::npos;
}

// Not of the special kind, which decoding leaves out: an answer that is kept has them only where someone typed them.
bool marks_tool_calls(const AddedToken& token) {
  return !token.special && (token.content.find("tool_call") != std::string::npos ||
                            token.content.find("tool\u2581call") != std::string::npos);
}

Guard answer_guard(const std::vector<AddedToken>& special_tokens) {
  std::vector<AddedToken> guarded, left;
  for (const auto& [open, close] : thinking_marks()) {
    left.push_back({.content = std::string(open)});
    left.push_back({.content = std::string(close)});
  }
  for (const AddedToken& token : special_tokens) {
    (marks_thoughts(token) || marks_tool_calls(token) ? left : guarded).push_back(token);
  }
  return {make_finder(std::move(guarded)), make_finder(std::move(left))};
}

}  // namespace

Error escape_special_tokens(const std::vector<AddedToken>& special_tokens, std::string_view taken,
                            nlohmann::ordered_json* messages, nlohmann::ordered_json* tools, std::vector<Escape>* out) {
  const Guard all{make_finder(special_tokens), {}}, in_answers = answer_guard(special_tokens);
  Replacer replacer{{}, out};
  mark_taken(taken, &replacer);
  for (OrderedJson& message : *messages) {
    const bool is_answer = message.value("role", "") == "assistant";
    for (auto& [key, value] : message.items()) {
      if (key != "role") {
        replace_everywhere(is_answer ? in_answers : all, &value, &replacer);
      } else if (value.is_string()) {
        value = replaced_in_role(all.tokens, value.get_ref<const std::string&>(), &replacer);
      }
    }
  }
  replace_everywhere(all, tools, &replacer);
  return replacer.failure;
}

std::string unescaped(std::string_view text, const std::vector<Escape>& escapes, std::vector<size_t>* places) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t lead = escapes.empty() ? text.size() : std::min(text.find(kPrivateLead, at), text.size());
    result += text.substr(at, lead - at);
    at = lead;
    if (at == text.size()) break;
    const auto found =
        std::ranges::find_if(escapes, [&](const Escape& pair) { return text.substr(at).starts_with(pair.escaped); });
    if (places != nullptr && found != escapes.end()) places->push_back(result.size());
    result += found == escapes.end() ? text.substr(at, 1) : std::string_view(found->original);
    at += found == escapes.end() ? 1 : found->escaped.size();
  }
  return result;
}

}  // namespace pinion
