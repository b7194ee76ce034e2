// The semantics, including corner cases, are those of Hugging Face's tokenizers library.
#include "tokenizer/tokens/pipeline.h"

#include <tuple>

#include "kernels/base/text.h"
#include "loader/files/json.h"

namespace pinion {
namespace {

// Replaces the matches by `content`. Sets `*cut_front` if this removed the beginning of the text.
Error replace_matches(const Regex& pattern, std::string_view content, RegexFinder& finder, std::string* text,
                      bool* cut_front) {
  std::string result;
  result.reserve(text->size());
  const auto replace = [&](const Span& span) {
    if (span.begin == 0) *cut_front = *cut_front || (span.match && span.end > 0 && content.empty());
    result += span.match ? content : std::string_view(*text).substr(span.begin, span.end - span.begin);
    return Error{};
  };
  if (Error e = finder.find(pattern, *text, replace)) return e;
  *text = std::move(result);
  return {};
}

Error apply_normalizer(const Normalizer& step, RegexFinder& finder, NormalizedText* out) {
  using enum Normalizer::Kind;
  bool cut_front = false;
  if (step.kind == kForm) out->text = normalize(out->text, step.form);
  if (step.kind == kLowercase) out->text = lowercase(out->text);
  if (step.kind == kPrepend && !out->text.empty()) out->text.insert(0, step.text);
  if (step.kind == kReplace) {
    if (Error e = replace_matches(step.pattern, step.text, finder, &out->text, &cut_front)) return e;
  }
  if (step.kind == kStrip) {
    const std::string_view kept = strip(out->text, step.left, step.right, is_white_space);
    cut_front = kept.data() != out->text.data();
    out->text = std::string(kept);
  }
  out->at_start = out->at_start && !cut_front;
  return {};
}

// True if a span extends the word of the span before it.
bool is_joined(SplitBehavior behavior, const Span& before, const Span& span) {
  if (span.match == before.match) return behavior == SplitBehavior::kContiguous;
  return behavior == (span.match ? SplitBehavior::kMergedWithPrevious : SplitBehavior::kMergedWithNext);
}

// Calls `on_word` with the bounds of each word in turn.
Error split_words(const PreTokenizer& step, std::string_view text, RegexFinder& finder,
                  const std::function<Error(size_t begin, size_t end)>& on_word) {
  Span before{};
  size_t begin = 0, end = 0;  // of the word that may still grow
  const auto finish = [&] { return begin == end ? Error{} : on_word(begin, end); };
  const auto take = [&](Span span) -> Error {
    span.match = span.match != step.invert;
    if (end > 0 && is_joined(step.behavior, before, span)) {
      end = span.end;
    } else {
      if (Error e = finish()) return e;
      begin = span.match && step.behavior == SplitBehavior::kRemoved ? span.end : span.begin;
      end = span.end;
    }
    before = span;
    return {};
  };
  if (Error e = finder.find(step.pattern, text, take)) return e;
  return finish();
}

std::string metaspace(const PreTokenizer& step, std::string_view text, bool at_start) {
  std::string result = replaced(text, " ", step.text);
  const bool wanted =
      step.prepend == PreTokenizer::Prepend::kAlways || (step.prepend == PreTokenizer::Prepend::kFirst && at_start);
  if (wanted && !result.starts_with(step.text)) result.insert(0, step.text);
  return result;
}

Error run_steps(std::span<const PreTokenizer> steps, std::string_view text, bool at_start, RegexFinder& finder,
                const OnWord& on_word) {
  if (steps.empty()) return on_word(text);
  const PreTokenizer& step = steps.front();
  const auto run_rest = [&](std::string_view word, bool is_first) {
    return run_steps(steps.subspan(1), word, is_first, finder, on_word);
  };
  using enum PreTokenizer::Kind;
  if (step.kind == kMetaspace) return run_rest(metaspace(step, text, at_start), at_start);
  if (step.kind == kBytes) return run_rest(bytes_to_chars(text), at_start);
  if (step.kind == kPrefixSpace) return run_rest((text.starts_with(' ') ? "" : " ") + std::string(text), at_start);
  return split_words(step, text, finder, [&](size_t begin, size_t end) {
    return run_rest(text.substr(begin, end - begin), at_start && begin == 0);
  });
}

// The bytes of a token in the alphabet of byte-level BPE; a token with any other character stands for itself.
std::string chars_to_bytes(const std::string& token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const std::optional<char> byte = char_to_byte(next_char(token, &at));
    if (!byte) return token;
    bytes += *byte;
  }
  return bytes;
}

// A run of <0xXX> tokens becomes its bytes if they are UTF-8 as a whole, else one U+FFFD per byte.
std::vector<std::string> decode_byte_tokens(const std::vector<std::string>& tokens) {
  std::vector<std::string> result;
  std::string run;
  const auto end_run = [&] {
    if (to_utf8(run) == run) {
      result.push_back(run);
    } else {
      result.insert(result.end(), run.size(), std::string(kReplacement));
    }
    run.clear();
  };
  for (const std::string& token : tokens) {
    if (const std::optional<char> byte = fallback_byte(token)) {
      run += *byte;
      continue;
    }
    if (!run.empty()) end_run();
    result.push_back(token);
  }
  if (!run.empty()) end_run();
  return result;
}

std::string strip_ends(std::string_view token, const Decoder& step) {
  for (int64_t n = 0; n < step.start && token.starts_with(step.text); ++n) token.remove_prefix(step.text.size());
  for (int64_t n = 0; n < step.stop && token.ends_with(step.text); ++n) token.remove_suffix(step.text.size());
  return std::string(token);
}

// `at_start`: the tokens begin the text.
std::vector<std::string> apply_decoder(const Decoder& step, std::vector<std::string> tokens, bool at_start) {
  using enum Decoder::Kind;
  if (step.kind == kFuse) return {joined(tokens, "")};
  if (step.kind == kByteFallback) return decode_byte_tokens(tokens);
  std::optional<RegexFinder> finder;
  if (step.kind == kReplace) finder.emplace(0);
  bool cut_front = false;
  for (std::string& token : tokens) {
    const bool drop = at_start && step.prepended && &token == &tokens.front();
    if (step.kind == kByteLevel) token = chars_to_bytes(token);
    if (step.kind == kStrip) token = strip_ends(token, step);
    if (step.kind == kMetaspace) token = replaced(token, step.text, drop ? "" : " ");
    // On a timeout the token stays unchanged.
    if (finder) std::ignore = replace_matches(step.pattern, step.text, *finder, &token, &cut_front);
  }
  if (step.kind == kByteLevel) return {to_utf8(joined(tokens, ""))};
  return tokens;
}

bool joins_tokens(const Decoder& step) {
  return step.kind == Decoder::Kind::kFuse || step.kind == Decoder::Kind::kByteLevel;
}

// True if the step, after the tokens are joined, gives the same result for a text and for its parts.
bool is_local(const Decoder& step) {
  return step.kind == Decoder::Kind::kFuse || (step.kind == Decoder::Kind::kStrip && step.stop == 0) ||
         (step.kind == Decoder::Kind::kMetaspace && !step.prepended);
}

}  // namespace

std::string fallback_token(char byte) { return formatted("<0x%02X>", static_cast<unsigned char>(byte)); }

std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return {};
  const std::optional<uint32_t> byte = parse_hex(token.substr(3), 2);
  return byte ? std::optional(static_cast<char>(*byte)) : std::nullopt;
}

Error normalize(const Pipeline& pipeline, RegexFinder& finder, NormalizedText* text) {
  for (const Normalizer& step : pipeline.normalizers) {
    if (Error e = apply_normalizer(step, finder, text)) return e;
  }
  return {};
}

Error pre_tokenize(const Pipeline& pipeline, std::string_view text, bool at_start, RegexFinder& finder,
                   const OnWord& on_word) {
  return run_steps(pipeline.pre_tokenizers, text, at_start, finder, on_word);
}

std::string decode_tokens(const Pipeline& pipeline, std::vector<std::string> tokens, bool at_start) {
  if (pipeline.spaced) return (at_start || tokens.empty() ? "" : " ") + joined(tokens, " ");
  bool are_joined = false;
  for (const Decoder& step : pipeline.decoders) {
    // Behind a decoder that joins the tokens, Strip acts on the whole text: only its first part is stripped.
    const bool done_before = are_joined && !at_start && step.kind == Decoder::Kind::kStrip;
    if (!done_before) tokens = apply_decoder(step, std::move(tokens), at_start);
    are_joined = are_joined || joins_tokens(step);
  }
  return joined(tokens, "");
}

std::string bytes_of_token(const Pipeline& pipeline, const std::string& token) {
  for (const Decoder& step : pipeline.decoders) {
    if (step.kind == Decoder::Kind::kByteLevel) return chars_to_bytes(token);
    if (step.kind != Decoder::Kind::kByteFallback) continue;
    if (const std::optional<char> byte = fallback_byte(token)) return {*byte};
  }
  return decode_tokens(pipeline, {token}, false);
}

bool can_end_at(const Pipeline& pipeline, std::string_view token) {
  bool are_joined = false;
  for (const Decoder& step : pipeline.decoders) {
    if (are_joined && !is_local(step)) return false;
    if (step.kind == Decoder::Kind::kByteFallback && fallback_byte(token)) return false;
    are_joined = are_joined || joins_tokens(step);
  }
  return true;
}

}  // namespace pinion
