// See pipeline.h. The semantics, corner cases included, are those of Hugging Face's tokenizers library.
#include "tokenizer/pipeline.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

namespace pinion {
namespace {

// `*cut_front`: the text no longer begins with what it began with.
std::string replace_matches(std::string_view text, const RegexFinder& finder, std::string_view content,
                            bool* cut_front) {
  std::vector<Span> spans;
  finder.find(text, &spans);
  std::string result;
  result.reserve(text.size());
  for (const Span& span : spans) {
    result += span.match ? content : text.substr(span.begin, span.end - span.begin);
  }
  *cut_front = spans[0].match && spans[0].end > 0 && content.empty();
  return result;
}

std::string replace_text(std::string_view text, std::string_view what, std::string_view with) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t found = std::min(text.find(what, at), text.size());
    result += text.substr(at, found - at);
    if (found < text.size()) result += with;
    at = found + (found < text.size() ? what.size() : 0);
  }
  return result;
}

std::string strip_white_space(std::string_view text, bool left, bool right) {
  size_t begin = text.size(), end = 0;  // of what is not white space
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (is_white_space(next_char(text, &at))) continue;
    begin = std::min(begin, start);
    end = at;
  }
  if (!left) begin = 0;
  if (!right) end = text.size();
  return std::string(text.substr(std::min(begin, end), end - std::min(begin, end)));
}

TextPiece apply(const Normalizer& step, TextPiece piece) {
  switch (step.kind) {
    case Normalizer::Kind::kForm:
      return {normalize(piece.text, step.form), piece.at_start};
    case Normalizer::Kind::kLowercase:
      return {lowercase(piece.text), piece.at_start};
    case Normalizer::Kind::kPrepend:
      return {piece.text.empty() ? "" : step.text + piece.text, piece.at_start};
    case Normalizer::Kind::kReplace: {
      bool cut_front = false;
      std::string text = replace_matches(piece.text, RegexFinder(step.pattern), step.text, &cut_front);
      return {std::move(text), piece.at_start && !cut_front};
    }
    case Normalizer::Kind::kStrip: {
      size_t at = 0;
      const bool cut_front = step.left && !piece.text.empty() && is_white_space(next_char(piece.text, &at));
      return {strip_white_space(piece.text, step.left, step.right), piece.at_start && !cut_front};
    }
  }
  return piece;
}

// Joins neighbouring spans as the behaviour asks; what remains marked as a match is dropped.
std::vector<Span> merge_spans(std::vector<Span> spans, SplitBehavior behavior) {
  if (behavior == SplitBehavior::kRemoved) return spans;
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::reverse(spans.begin(), spans.end());
  std::vector<Span> merged;
  bool previous = false;
  for (const Span& span : spans) {
    const bool join = behavior == SplitBehavior::kIsolated     ? false
                      : behavior == SplitBehavior::kContiguous ? span.match == previous
                                                               : span.match && !previous;
    if (join && !merged.empty()) {
      merged.back().begin = std::min(merged.back().begin, span.begin);
      merged.back().end = std::max(merged.back().end, span.end);
    } else {
      merged.push_back({span.begin, span.end, false});
    }
    previous = span.match;
  }
  if (backwards) std::reverse(merged.begin(), merged.end());
  return merged;
}

std::vector<TextPiece> split(const PreTokenizer& step, std::vector<TextPiece> pieces) {
  const RegexFinder finder(step.pattern);
  std::vector<TextPiece> result;
  std::vector<Span> spans;
  for (const TextPiece& piece : pieces) {
    finder.find(piece.text, &spans);
    if (step.invert) {
      for (Span& span : spans) span.match = !span.match;
    }
    for (const Span& span : merge_spans(spans, step.behavior)) {
      if (span.match || span.begin == span.end) continue;
      result.push_back({piece.text.substr(span.begin, span.end - span.begin), piece.at_start && span.begin == 0});
    }
  }
  return result;
}

void metaspace(const PreTokenizer& step, TextPiece* piece) {
  std::string text = replace_text(piece->text, " ", step.text);
  const bool wanted = step.prepend == PreTokenizer::Prepend::kAlways ||
                      (step.prepend == PreTokenizer::Prepend::kFirst && piece->at_start);
  piece->text = wanted && !text.starts_with(step.text) ? step.text + text : std::move(text);
}

std::vector<TextPiece> apply(const PreTokenizer& step, std::vector<TextPiece> pieces) {
  switch (step.kind) {
    case PreTokenizer::Kind::kSplit:
      return split(step, std::move(pieces));
    case PreTokenizer::Kind::kMetaspace:
      for (TextPiece& piece : pieces) metaspace(step, &piece);
      return pieces;
    case PreTokenizer::Kind::kPrefixSpace:
      for (TextPiece& piece : pieces) {
        if (!piece.text.starts_with(' ')) piece.text.insert(0, 1, ' ');
      }
      return pieces;
    case PreTokenizer::Kind::kBytes:
      for (TextPiece& piece : pieces) piece.text = bytes_to_chars(piece.text);
      return pieces;
  }
  return pieces;
}

// The bytes a token of byte-level BPE stands for; a token with any other character stands for itself.
std::string chars_to_bytes(const std::string& token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const std::optional<char> byte = char_to_byte(next_char(token, &at));
    if (!byte) return token;
    bytes += *byte;
  }
  return bytes;
}

// The byte that <0xXX> spells.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return {};
  unsigned byte = 0;
  const auto [end, code] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (code != std::errc() || end != token.data() + 5) return {};
  return static_cast<char>(byte);
}

bool is_utf8(std::string_view text) {
  while (const size_t length = utf8_length(text)) text.remove_prefix(length);
  return text.empty();
}

// A run of byte tokens is one text if it is UTF-8 as a whole, else U+FFFD for every byte of it.
std::vector<std::string> decode_byte_tokens(const std::vector<std::string>& tokens) {
  std::vector<std::string> result;
  std::string run;
  const auto end_run = [&] {
    if (is_utf8(run)) {
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

std::string join(const std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

// `first`: the first of `tokens` is the first of the text.
std::vector<std::string> apply(const Decoder& step, std::vector<std::string> tokens, bool first) {
  switch (step.kind) {
    case Decoder::Kind::kByteLevel:
      for (std::string& token : tokens) token = chars_to_bytes(token);
      return {to_utf8(join(tokens))};
    case Decoder::Kind::kFuse:
      return {join(tokens)};
    case Decoder::Kind::kByteFallback:
      return decode_byte_tokens(tokens);
    case Decoder::Kind::kReplace: {
      const RegexFinder finder(step.pattern);
      bool cut_front = false;
      for (std::string& token : tokens) token = replace_matches(token, finder, step.text, &cut_front);
      return tokens;
    }
    case Decoder::Kind::kStrip:
      for (std::string& token : tokens) token = strip_ends(token, step);
      return tokens;
    case Decoder::Kind::kMetaspace:
      for (std::string& token : tokens) {
        const bool drop = first && step.prepended && &token == &tokens.front();
        token = replace_text(token, step.text, drop ? "" : " ");
      }
      return tokens;
  }
  return tokens;
}

bool joins_tokens(const Decoder& step) {
  return step.kind == Decoder::Kind::kFuse || step.kind == Decoder::Kind::kByteLevel;
}

// After the tokens are joined, a step must treat each part of the text alike, or a part cannot be decoded on its own.
bool is_local(const Decoder& step) {
  return step.kind == Decoder::Kind::kFuse || (step.kind == Decoder::Kind::kStrip && step.stop == 0) ||
         (step.kind == Decoder::Kind::kMetaspace && !step.prepended);
}

}  // namespace

TextPiece normalize(const Pipeline& pipeline, TextPiece piece) {
  for (const Normalizer& step : pipeline.normalizers) piece = apply(step, std::move(piece));
  return piece;
}

std::vector<TextPiece> pre_tokenize(const Pipeline& pipeline, TextPiece piece) {
  std::vector<TextPiece> pieces{std::move(piece)};
  for (const PreTokenizer& step : pipeline.pre_tokenizers) pieces = apply(step, std::move(pieces));
  return pieces;
}

std::string decode_tokens(const Pipeline& pipeline, std::vector<std::string> tokens, bool at_start) {
  if (pipeline.spaced) {
    std::string text;
    for (const std::string& token : tokens) {
      if (!at_start || &token != &tokens.front()) text += ' ';
      text += token;
    }
    return text;
  }
  bool joined = false;
  for (const Decoder& step : pipeline.decoders) {
    // What a joined text is stripped of at its start, it is stripped of once.
    const bool done_before = joined && !at_start && step.kind == Decoder::Kind::kStrip;
    if (!done_before) tokens = apply(step, std::move(tokens), at_start);
    joined = joined || joins_tokens(step);
  }
  return join(tokens);
}

bool can_end_at(const Pipeline& pipeline, std::string_view token) {
  bool joined = false;
  for (const Decoder& step : pipeline.decoders) {
    if (joined && !is_local(step)) return false;
    if (step.kind == Decoder::Kind::kByteFallback && fallback_byte(token)) return false;
    joined = joined || joins_tokens(step);
  }
  return true;
}

}  // namespace pinion
