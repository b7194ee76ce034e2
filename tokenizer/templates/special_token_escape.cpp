#include "tokenizer/templates/chat_template.h"

#include <algorithm>
#include <bitset>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "tokenizer/answers/answer_text.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

constexpr char32_t kFirstPrivateUse = 0x100000, kLastPrivateUse = 0x10FFFD;  // plane 16

struct Escaper {
  std::bitset<kLastPrivateUse - kFirstPrivateUse + 1> taken;
  std::vector<Escape>* escapes;
  Error failure = {};
};

// 0xF4 is the first byte in UTF-8 of all characters of plane 16.
void mark_taken_escapes(std::string_view text, Escaper* out) {
  for (size_t at = 0; (at = text.find('\xF4', at)) != text.npos; ++at) {
    size_t next = at;
    const char32_t c = next_char(text, &next);
    if (c >= kFirstPrivateUse && c <= kLastPrivateUse) out->taken.set(c - kFirstPrivateUse);
  }
}

std::string escape_of(std::string_view original, Escaper* escaper) {
  const auto known = std::ranges::find(*escaper->escapes, original, &Escape::original);
  if (known != escaper->escapes->end()) return known->escaped;
  for (char32_t c = kFirstPrivateUse; c <= kLastPrivateUse; ++c) {
    if (escaper->taken[c - kFirstPrivateUse]) continue;
    escaper->taken.set(c - kFirstPrivateUse);
    Escape fresh{{}, std::string(original)};
    append_utf8(c, &fresh.escaped);
    escaper->escapes->push_back(fresh);
    return fresh.escaped;
  }
  escaper->failure =
      error("no unused private-use character of plane 16 is left to escape special tokens", "conversation");
  return std::string(original);
}

struct EscapeRule {
  AddedTokenFinder tokens;  // to escape
  AddedTokenFinder exempt;  // marks that stay, though they may begin like one of the tokens
};

bool is_token_prefix(const AddedTokenFinder& tokens, std::string_view start) {
  const auto next = std::ranges::lower_bound(tokens.tokens, start, {}, &AddedToken::content);
  return next != tokens.tokens.end() && next->content.starts_with(start);
}

// True if the character from `at` to `next` needs an escape. `end`: offset of the trailing white space of `text`.
bool begins_token(const AddedTokenFinder& tokens, std::string_view text, size_t at, size_t next, size_t end) {
  if (!tokens.first_bytes[static_cast<unsigned char>(text[at])]) return false;
  if (longest_at(tokens, text, at) != nullptr) return true;
  if (next < text.size()) {
    next_char(text, &next);
    if (is_token_prefix(tokens, text.substr(at, next - at))) return true;
  }
  return at < end && is_token_prefix(tokens, text.substr(at, end - at));
}

// Escapes the characters for which `is_selected`, called with their bounds, is true.
std::string escape_characters(std::string_view text, Escaper* escaper,
                              const std::function<bool(size_t begin, size_t end)>& is_selected) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    next_char(text, &at);
    const std::string_view character = text.substr(begin, at - begin);
    result += is_selected(begin, at) ? escape_of(character, escaper) : std::string(character);
  }
  return result;
}

std::string escaped_text(const EscapeRule& rule, const std::string& text, Escaper* escaper) {
  const size_t end = rstrip(text).size();
  size_t exempt_end = 0;
  return escape_characters(text, escaper, [&](size_t at, size_t next) {
    if (at < exempt_end) return false;
    if (const AddedToken* mark = longest_at(rule.exempt, text, at)) exempt_end = at + mark->content.size();
    return at >= exempt_end && begins_token(rule.tokens, text, at, next, end);
  });
}

// A token that is a plain word ("user") may be the name of a role, and is not escaped there.
bool is_word_token(const AddedToken& token) {
  for (size_t at = 0; at < token.content.size();) {
    if (!is_word(next_char(token.content, &at))) return false;
  }
  return true;
}

std::string escaped_role(const AddedTokenFinder& tokens, const std::string& role, Escaper* escaper) {
  return escape_characters(role, escaper, [&](size_t at, size_t) {
    const AddedToken* token = longest_at(tokens, role, at);
    return token != nullptr && !is_word_token(*token);
  });
}

void escape_strings(const EscapeRule& rule, nlohmann::ordered_json* value, Escaper* escaper) {
  if (value->is_string()) {
    *value = escaped_text(rule, value->get_ref<const std::string&>(), escaper);
  } else if (value->is_array()) {
    for (nlohmann::ordered_json& item : *value) escape_strings(rule, &item, escaper);
  } else if (value->is_object()) {
    // Escaping keeps different keys different, so no insertion has to search for its key, which would be quadratic.
    nlohmann::ordered_json::object_t object;
    for (auto& [key, item] : value->items()) {
      escape_strings(rule, &item, escaper);
      object.emplace_back(escaped_text(rule, key, escaper), std::move(item));
    }
    *value = std::move(object);
  }
}

// True for the marks that stay in answers. Special tokens of calls do not: decoding omits them, so an answer contains
// one only if a user typed it.
bool is_answer_mark(const AddedToken& token) {
  const auto has = [&](std::string_view part) { return token.content.find(part) != token.content.npos; };
  return is_thinking_mark(token.content) || has("think") ||
         (!token.special && (has("tool_call") || has("tool\u2581call")));
}

EscapeRule answer_rule(const std::vector<AddedToken>& special_tokens) {
  std::vector<AddedToken> tokens, exempt;
  for (const auto& [open, close] : thinking_marks()) {
    exempt.push_back({.content = std::string(open)});
    exempt.push_back({.content = std::string(close)});
  }
  for (const AddedToken& token : special_tokens) (is_answer_mark(token) ? exempt : tokens).push_back(token);
  return {make_finder(std::move(tokens)), make_finder(std::move(exempt))};
}

}  // namespace

Error escape_special_tokens(const std::vector<AddedToken>& special_tokens, std::string_view taken,
                            nlohmann::ordered_json* messages, nlohmann::ordered_json* tools, std::vector<Escape>* out) {
  const EscapeRule all{make_finder(special_tokens), {}}, in_answers = answer_rule(special_tokens);
  Escaper escaper{{}, out};
  mark_taken_escapes(taken, &escaper);
  for (nlohmann::ordered_json& message : *messages) {
    const bool is_answer = message.value("role", "") == "assistant";
    for (auto& [key, value] : message.items()) {
      if (key != "role") {
        escape_strings(is_answer ? in_answers : all, &value, &escaper);
      } else if (value.is_string()) {
        value = escaped_role(all.tokens, value.get_ref<const std::string&>(), &escaper);
      }
    }
  }
  escape_strings(all, tools, &escaper);
  return escaper.failure;
}

}  // namespace pinion
