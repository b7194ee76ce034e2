#include "tokenizer/templates/fill_in.h"

#include <algorithm>

namespace pinion {
namespace {

constexpr FillInRow kRows[] = {
    // CodeGemma has the marks of Qwen2.5-Coder, Granite and SmolLM those of StarCoder.
    {"qwen2.5-coder",
     "<|fim_prefix|>",
     "<|fim_suffix|>",
     "<|fim_middle|>",
     {"<|endoftext|>", "<|file_sep|>", "<|file_separator|>"}},
    {"starcoder", "<fim_prefix>", "<fim_suffix>", "<fim_middle>", {"<|endoftext|>", "<file_sep>"}},
    {"deepseek-coder", "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", {}},
    {"codellama", "▁<PRE>", "▁<SUF>", "▁<MID>", {"▁<EOT>"}, false, true},
    {"codestral", "[PREFIX]", "[SUFFIX]", "", {}, true, true},
};

// Encodes a text without sentencepiece's leading space: behind a character that no token joins with others.
Error encode_without_space(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options,
                           std::vector<int32_t>* out) {
  const std::string lead = "☺";
  std::vector<int32_t> alone;
  if (Error e = encode(tokenizer, lead, options, &alone)) return e;
  if (Error e = encode(tokenizer, lead + std::string(text), options, out)) return e;
  out->erase(out->begin(), out->begin() + std::min(std::ssize(alone), std::ssize(*out)));
  return {};
}

}  // namespace

const FillInRow* find_fill_in(const Tokenizer& tokenizer) {
  const auto has = [&](std::string_view mark) { return mark.empty() || token_id(tokenizer, mark) >= 0; };
  for (const FillInRow& row : kRows) {
    if (has(row.prefix) && has(row.suffix) && has(row.middle)) return &row;
  }
  return nullptr;
}

Error encode_fill_in(const Tokenizer& tokenizer, const FillInRow& row, std::string_view prefix, std::string_view suffix,
                     int64_t max_tokens, std::vector<int32_t>* out) {
  const EncodeOptions options{.add_special = false, .parse_special = false, .max_tokens = max_tokens};
  std::vector<int32_t> prefix_ids, suffix_ids;
  if (Error e = encode(tokenizer, prefix, options, &prefix_ids)) return e;
  if (Error e = row.suffix_continues_text ? encode_without_space(tokenizer, suffix, options, &suffix_ids)
                                          : encode(tokenizer, suffix, options, &suffix_ids)) {
    return e;
  }
  std::vector<int32_t> around;  // special tokens around a text: BOS, EOS, or none
  if (Error e = encode(tokenizer, "", {}, &around)) return e;
  out->clear();
  if (!around.empty() && around.front() == bos_id(tokenizer)) out->push_back(around.front());
  const auto add = [&](std::string_view mark, const std::vector<int32_t>& ids) {
    out->push_back(token_id(tokenizer, mark));
    out->insert(out->end(), ids.begin(), ids.end());
  };
  if (row.suffix_first) add(row.suffix, suffix_ids);
  add(row.prefix, prefix_ids);
  if (!row.suffix_first) add(row.suffix, suffix_ids);
  if (!row.middle.empty()) out->push_back(token_id(tokenizer, row.middle));
  return std::ssize(*out) > max_tokens ? error("too long", "text", at_most(max_tokens) + " tokens") : Error{};
}

std::vector<std::string> fill_in_ends(const Tokenizer& tokenizer, const FillInRow& row) {
  std::vector<std::string> ends;
  for (const std::string_view end : row.ends) {
    if (!end.empty() && token_id(tokenizer, end) >= 0) ends.emplace_back(end);
  }
  return ends;
}

}  // namespace pinion
