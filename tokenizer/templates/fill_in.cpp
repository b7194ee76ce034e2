#include "tokenizer/templates/fill_in.h"

#include <algorithm>

namespace pinion {
namespace {

constexpr FillInRow kRows[] = {
    {
        .name = "qwen2.5-coder",  // CodeGemma, too
        .prefix = "<|fim_prefix|>",
        .suffix = "<|fim_suffix|>",
        .middle = "<|fim_middle|>",
        .ends = {"<|endoftext|>", "<|file_sep|>", "<|file_separator|>"},
    },
    {
        .name = "starcoder",  // Granite, SmolLM, too
        .prefix = "<fim_prefix>",
        .suffix = "<fim_suffix>",
        .middle = "<fim_middle>",
        .ends = {"<|endoftext|>", "<file_sep>"},
    },
    {
        .name = "deepseek-coder",
        .prefix = "<｜fim▁begin｜>",
        .suffix = "<｜fim▁hole｜>",
        .middle = "<｜fim▁end｜>",
    },
    {
        .name = "codellama",
        .prefix = "▁<PRE>",
        .suffix = "▁<SUF>",
        .middle = "▁<MID>",
        .suffix_goes_on = true,
        .ends = {"▁<EOT>"},
    },
    {
        .name = "codestral",
        .prefix = "[PREFIX]",
        .suffix = "[SUFFIX]",
        .middle = "",
        .suffix_first = true,
        .suffix_goes_on = true,
    },
};

// Meta's and Mistral's own way: behind a character that no token goes over the end of.
Error encode_going_on(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options,
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
                     int64_t most_tokens, std::vector<int32_t>* out) {
  const EncodeOptions options{.add_special = false, .parse_special = false, .most_tokens = most_tokens};
  std::vector<int32_t> before, behind;
  if (Error e = encode(tokenizer, prefix, options, &before)) return e;
  if (Error e = row.suffix_goes_on ? encode_going_on(tokenizer, suffix, options, &behind)
                                   : encode(tokenizer, suffix, options, &behind)) {
    return e;
  }
  std::vector<int32_t> around;  // an empty text: BOS and, where the folder asks for it, EOS
  if (Error e = encode(tokenizer, "", {}, &around)) return e;
  out->clear();
  if (!around.empty() && around.front() == bos_id(tokenizer)) out->push_back(around.front());
  const auto add = [&](std::string_view mark, const std::vector<int32_t>& ids) {
    out->push_back(token_id(tokenizer, mark));
    out->insert(out->end(), ids.begin(), ids.end());
  };
  if (row.suffix_first) add(row.suffix, behind);
  add(row.prefix, before);
  if (!row.suffix_first) add(row.suffix, behind);
  if (!row.middle.empty()) out->push_back(token_id(tokenizer, row.middle));
  return std::ssize(*out) > most_tokens
             ? error("too long", "text", "at most " + std::to_string(most_tokens) + " tokens")
             : Error{};
}

std::vector<std::string> fill_in_ends(const Tokenizer& tokenizer, const FillInRow& row) {
  std::vector<std::string> ends;
  for (const std::string_view end : row.ends) {
    if (!end.empty() && token_id(tokenizer, end) >= 0) ends.emplace_back(end);
  }
  return ends;
}

}  // namespace pinion
