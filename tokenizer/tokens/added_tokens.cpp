// split_added() checks the flags of a token in the order of Hugging Face's tokenizers library.
#include "tokenizer/tokens/added_tokens.h"

#include <algorithm>
#include <tuple>

#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

constexpr char kPrivateUseLead = '\xF4';  // first byte in UTF-8 of all private-use characters of plane 16

bool word_before(std::string_view text, size_t at) {
  if (at == 0) return false;
  size_t last = last_char(text.substr(0, at));
  return is_word(next_char(text, &last));
}

bool word_after(std::string_view text, size_t at) { return at < text.size() && is_word(next_char(text, &at)); }

}  // namespace

AddedTokenFinder make_finder(std::vector<AddedToken> tokens) {
  std::erase_if(tokens, [](const AddedToken& token) { return token.content.empty(); });
  std::ranges::sort(tokens, {}, [](const AddedToken& token) { return std::tie(token.content, token.id); });
  const auto repeated = std::ranges::unique(tokens, {}, &AddedToken::content);
  tokens.erase(repeated.begin(), repeated.end());
  AddedTokenFinder finder{std::move(tokens), {}};
  for (const AddedToken& token : finder.tokens) finder.first_bytes.set(static_cast<unsigned char>(token.content[0]));
  return finder;
}

// Each byte narrows the range of the sorted tokens that still match.
const AddedToken* longest_at(const AddedTokenFinder& finder, std::string_view text, size_t at) {
  const auto byte = [](char c) { return static_cast<unsigned char>(c); };
  if (!finder.first_bytes[byte(text[at])]) return nullptr;
  const AddedToken* longest = nullptr;
  auto low = finder.tokens.begin(), high = finder.tokens.end();
  for (size_t depth = 0; at + depth < text.size() && low != high; ++depth) {
    const auto byte_of = [&](const AddedToken& token) { return byte(token.content[depth]); };
    const auto fitting = std::ranges::equal_range(low, high, byte(text[at + depth]), {}, byte_of);
    low = fitting.begin(), high = fitting.end();
    if (low != high && low->content.size() == depth + 1) longest = &*low++;
  }
  return longest;
}

std::vector<TextRun> split_added(const AddedTokenFinder& finder, std::string_view text, bool parse_special) {
  std::vector<TextRun> runs;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* found = longest_at(finder, text, at);
    if (found == nullptr) {
      ++at;
      continue;
    }
    const AddedToken& token = *found;
    size_t begin = at, end = at + token.content.size();
    at = end;
    if (token.special && !parse_special) continue;
    if (token.single_word && (word_before(text, begin) || word_after(text, end))) continue;
    const std::string_view before = text.substr(done, std::max(begin, done) - done), behind = text.substr(end);
    if (token.lstrip) begin = done + strip(before, false, true, is_white_space).size();
    if (token.rstrip) end = text.size() - strip(behind, true, false, is_white_space).size();
    if (done < begin) runs.push_back({text.substr(done, begin - done), -1});
    runs.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) runs.push_back({text.substr(done), -1});
  return runs;
}

std::string unescaped(std::string_view text, const std::vector<Escape>& escapes, std::vector<size_t>* restored) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t lead = escapes.empty() ? text.size() : std::min(text.find(kPrivateUseLead, at), text.size());
    result += text.substr(at, lead - at);
    at = lead;
    if (at == text.size()) break;
    const auto found =
        std::ranges::find_if(escapes, [&](const Escape& pair) { return text.substr(at).starts_with(pair.escaped); });
    if (restored != nullptr && found != escapes.end()) restored->push_back(result.size());
    result += found == escapes.end() ? text.substr(at, 1) : std::string_view(found->original);
    at += found == escapes.end() ? 1 : found->escaped.size();
  }
  return result;
}

}  // namespace pinion
