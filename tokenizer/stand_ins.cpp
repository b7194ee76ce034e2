#include "tokenizer/stand_ins.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <utility>

#include "tokenizer/unicode.h"

namespace pinion {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr char32_t kFirstPrivate = 0x100000, kLastPrivate = 0x10FFFD;  // plane 16
constexpr char kPrivateLead = '\xF4';                                  // the first byte of each of them in UTF-8

struct Replacer {
  std::bitset<kLastPrivate - kFirstPrivate + 1> taken;
  std::vector<StandIn>* stand_ins;
  Error failure = {};
};

void mark_taken(std::string_view text, Replacer* out) {
  for (size_t at = 0; (at = text.find(kPrivateLead, at)) != text.npos; ++at) {
    size_t next = at;
    const char32_t c = next_char(text, &next);
    if (c >= kFirstPrivate && c <= kLastPrivate) out->taken.set(c - kFirstPrivate);
  }
}

std::string stand_in_for(std::string_view original, Replacer* replacer) {
  const auto known = std::ranges::find(*replacer->stand_ins, original, &StandIn::original);
  if (known != replacer->stand_ins->end()) return known->stand_in;
  for (char32_t c = kFirstPrivate; c <= kLastPrivate; ++c) {
    if (replacer->taken[c - kFirstPrivate]) continue;
    replacer->taken.set(c - kFirstPrivate);
    StandIn fresh{{}, std::string(original)};
    append_utf8(c, &fresh.stand_in);
    replacer->stand_ins->push_back(fresh);
    return fresh.stand_in;
  }
  replacer->failure =
      error("every private-use character of plane 16 occurs, none can stand for a special token", "conversation");
  return std::string(original);
}

size_t without_trailing_space(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    if (!is_white_space(next_char(text, &at))) end = at;
  }
  return end;
}

bool begins_token(const AddedTokenFinder& tokens, std::string_view text, size_t at, size_t end) {
  if (!tokens.first_bytes[static_cast<unsigned char>(text[at])]) return false;
  if (longest_at(tokens, text, at) != nullptr) return true;
  const std::string_view rest = text.substr(at, at < end ? end - at : 0);
  const auto next = std::ranges::lower_bound(tokens.tokens, rest, {}, &AddedToken::content);
  return !rest.empty() && next != tokens.tokens.end() && next->content.starts_with(rest);
}

std::string replaced(const AddedTokenFinder& tokens, const std::string& text, Replacer* replacer) {
  std::string result;
  const size_t end = without_trailing_space(text);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    next_char(text, &at);
    const std::string_view character = std::string_view(text).substr(begin, at - begin);
    result += begins_token(tokens, text, begin, end) ? stand_in_for(character, replacer) : std::string(character);
  }
  return result;
}

void replace_everywhere(const AddedTokenFinder& tokens, OrderedJson* value, Replacer* replacer) {
  if (value->is_string()) {
    *value = replaced(tokens, value->get_ref<const std::string&>(), replacer);
  } else if (value->is_array()) {
    for (OrderedJson& item : *value) replace_everywhere(tokens, &item, replacer);
  } else if (value->is_object()) {
    OrderedJson object = OrderedJson::object();
    for (auto& [key, item] : value->items()) {
      replace_everywhere(tokens, &item, replacer);
      object[replaced(tokens, key, replacer)] = std::move(item);
    }
    *value = std::move(object);
  }
}

bool marks_thoughts(const AddedToken& token) { return token.content.find("think") != std::string::npos; }

}  // namespace

Error replace_special_tokens(const std::vector<AddedToken>& special_tokens, std::string_view taken,
                             nlohmann::ordered_json* messages, nlohmann::ordered_json* tools,
                             std::vector<StandIn>* out) {
  std::vector<AddedToken> others;
  std::ranges::remove_copy_if(special_tokens, std::back_inserter(others), marks_thoughts);
  const AddedTokenFinder all = make_finder(special_tokens), but_thoughts = make_finder(std::move(others));
  Replacer replacer{{}, out};
  mark_taken(taken, &replacer);
  for (OrderedJson& message : *messages) {
    const bool is_answer = message.value("role", "") == "assistant";
    for (auto& [key, value] : message.items()) {
      if (key != "role") replace_everywhere(is_answer ? but_thoughts : all, &value, &replacer);
    }
  }
  replace_everywhere(all, tools, &replacer);
  return replacer.failure;
}

std::string put_back(std::string_view text, const std::vector<StandIn>& stand_ins) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t lead = stand_ins.empty() ? text.size() : std::min(text.find(kPrivateLead, at), text.size());
    result += text.substr(at, lead - at);
    at = lead;
    if (at == text.size()) break;
    const auto found = std::ranges::find_if(
        stand_ins, [&](const StandIn& pair) { return text.substr(at).starts_with(pair.stand_in); });
    result += found == stand_ins.end() ? text.substr(at, 1) : std::string_view(found->original);
    at += found == stand_ins.end() ? 1 : found->stand_in.size();
  }
  return result;
}

}  // namespace pinion
