#include "tokenizer/answers/answer_text.h"

#include <algorithm>
#include <utility>

namespace pinion {
namespace {

constexpr ThinkingMarks kThinkingMarks[] = {
    {"<think>", "</think>"},  // the default if the prompt opened the thought
    {"[THINK]", "[/THINK]"},  // Magistral
    {"<seed:think>", "</seed:think>"},
    {"<think:opensource>", "</think:opensource>"},      // Hunyuan 3
    {"<|START_THINKING|>", "<|END_THINKING|>"},         // Command R7B, Command A
    {"<|channel>thought", "<channel|>"},                // Gemma 4
    {"<|inner_prefix|>", "<|inner_suffix|>"},           // Apertus
    {"<|open|>think<|sep|>", "<|close|>think<|sep|>"},  // Kimi K3
};

}  // namespace

size_t partial_mark_bytes(std::string_view text, std::string_view mark) {
  for (size_t bytes = std::min(text.size(), mark.size() - 1); bytes > 0; --bytes) {
    if (text.ends_with(mark.substr(0, bytes))) return bytes;
  }
  return 0;
}

std::string StopTexts::put(std::string_view text) {
  if (found()) return {};
  pending_ += text;
  size_t begin = 0, end = std::string::npos, held = 0;
  for (const std::string& stop : stops_) {
    const size_t at = pending_.find(stop);
    held = std::max(held, partial_mark_bytes(pending_, stop));
    if (at == std::string::npos || std::pair(at + stop.size(), at) >= std::pair(end, begin)) continue;
    begin = at;
    end = at + stop.size();
    found_text_ = stop;
  }
  std::string certain = pending_.substr(0, found() ? begin : pending_.size() - held);
  pending_.erase(0, found() ? pending_.size() : certain.size());
  return certain;
}

std::string StopTexts::finish(std::string_view last) {
  std::string certain = put(last);
  return certain + std::exchange(pending_, {});
}

AnswerText::AnswerText(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops,
                       std::function<bool(std::string_view token)> is_mark, bool at_start)
    : tokenizer_(tokenizer),
      decoder_(std::move(tokenizer), true, at_start),
      stops_(std::move(stops)),
      is_mark_(std::move(is_mark)) {}

std::string AnswerText::put(int32_t id) {
  if (is_mark_ && is_special(*tokenizer_, id)) {
    const std::string token = token_text(*tokenizer_, id);
    if (is_mark_(token)) return stops_.put(decoder_.finish() + token);
  }
  return stops_.put(decoder_.put(id));
}

std::span<const ThinkingMarks> thinking_marks() { return kThinkingMarks; }

std::string_view ThinkingSplitter::close_mark() const { return (marks_ ? *marks_ : kThinkingMarks[0]).close; }

void ThinkingSplitter::add(std::string_view text, std::vector<ThinkingText>* out) {
  if (after_mark_) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  if (text.empty()) return;
  after_mark_ = false;
  const size_t end = text.find_last_not_of('\n') + 1;  // 0: only newlines
  if (end > 0) out->push_back({newlines_ + std::string(text.substr(0, end)), inside_});
  if (end > 0) newlines_.clear();
  newlines_ += text.substr(end);
}

std::vector<ThinkingText> ThinkingSplitter::put(std::string_view text) {
  std::vector<ThinkingText> result;
  pending_ += text;
  for (;;) {
    const ThinkingMarks* next = nullptr;
    size_t found = std::string::npos, partial_bytes = 0;
    for (const ThinkingMarks& marks : kThinkingMarks) {
      if (inside_ && marks_ && marks_ != &marks) continue;
      const std::string_view mark = inside_ ? marks.close : marks.open;
      const size_t at = pending_.find(mark);
      if (at < found) next = &marks;
      found = std::min(found, at);
      partial_bytes = std::max(partial_bytes, partial_mark_bytes(pending_, mark));
    }
    const size_t certain = next ? found : pending_.size() - partial_bytes;
    add(std::string_view(pending_).substr(0, certain), &result);
    pending_.erase(0, certain + (next ? (inside_ ? next->close : next->open).size() : 0));
    if (!next) return result;
    trim_newlines();
    inside_ = !inside_;
    marks_ = inside_ ? next : nullptr;
  }
}

std::vector<ThinkingText> ThinkingSplitter::put_literal(std::string_view text) {
  std::vector<ThinkingText> result;
  add(pending_, &result);
  pending_.clear();
  add(text, &result);
  return result;
}

void ThinkingSplitter::trim_newlines() {
  newlines_.clear();
  after_mark_ = true;
}

std::vector<ThinkingText> ThinkingSplitter::finish() {
  std::vector<ThinkingText> result = put_literal({});
  if (!newlines_.empty() && !inside_) result.push_back({newlines_, inside_});
  newlines_.clear();
  return result;
}

std::string_view opening_mark(std::string_view prompt) {
  const std::string_view written = prompt.substr(0, prompt.find_last_not_of(" \t\r\n") + 1);
  for (const ThinkingMarks& marks : kThinkingMarks) {
    if (written.ends_with(marks.open)) return marks.open;
  }
  return {};
}

bool is_thinking_mark(std::string_view token) {
  return std::ranges::any_of(kThinkingMarks,
                             [&](const ThinkingMarks& marks) { return token == marks.open || token == marks.close; });
}

}  // namespace pinion
