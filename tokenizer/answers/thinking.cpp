#include "tokenizer/answers/thinking.h"

#include <algorithm>

#include "tokenizer/answers/stop_texts.h"

namespace pinion {
namespace {

constexpr ThinkingMarks kMarks[] = {
    {"<think>", "</think>"},  // the first counts where nothing tells which
    {"[THINK]", "[/THINK]"},  // Magistral
};

}  // namespace

std::span<const ThinkingMarks> thinking_marks() { return kMarks; }

std::string_view ThinkingSplitter::close_mark() const { return (marks_ ? *marks_ : kMarks[0]).close; }

void ThinkingSplitter::add(std::string_view text, std::vector<ThinkingPart>* parts) {
  if (after_mark_) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  if (text.empty()) return;
  after_mark_ = false;
  const size_t end = text.find_last_not_of('\n') + 1;  // 0 where there is nothing else
  if (end > 0) parts->push_back({newlines_ + std::string(text.substr(0, end)), inside_});
  if (end > 0) newlines_.clear();
  newlines_ += text.substr(end);
}

std::vector<ThinkingPart> ThinkingSplitter::put(std::string_view text) {
  std::vector<ThinkingPart> parts;
  pending_ += text;
  for (;;) {
    const ThinkingMarks* next = nullptr;
    size_t found = std::string::npos, begun_bytes = 0;
    for (const ThinkingMarks& marks : kMarks) {
      if (inside_ && marks_ && marks_ != &marks) continue;
      const std::string_view mark = inside_ ? marks.close : marks.open;
      const size_t at = pending_.find(mark);
      if (at < found) next = &marks;
      found = std::min(found, at);
      begun_bytes = std::max(begun_bytes, begun_mark(pending_, mark));
    }
    const size_t certain = next ? found : pending_.size() - begun_bytes;
    add(std::string_view(pending_).substr(0, certain), &parts);
    pending_.erase(0, certain + (next ? (inside_ ? next->close : next->open).size() : 0));
    if (!next) return parts;
    leave_out_newlines();
    inside_ = !inside_;
    marks_ = inside_ ? next : nullptr;
  }
}

std::vector<ThinkingPart> ThinkingSplitter::put_plain(std::string_view text) {
  std::vector<ThinkingPart> parts;
  add(pending_, &parts);
  pending_.clear();
  add(text, &parts);
  return parts;
}

void ThinkingSplitter::leave_out_newlines() {
  newlines_.clear();
  after_mark_ = true;
}

std::vector<ThinkingPart> ThinkingSplitter::finish() {
  std::vector<ThinkingPart> parts;
  add(pending_, &parts);
  if (!newlines_.empty() && !inside_) parts.push_back({newlines_, inside_});
  pending_.clear();
  newlines_.clear();
  return parts;
}

bool ends_in_thought(std::string_view prompt) {
  const std::string_view written = prompt.substr(0, prompt.find_last_not_of(" \t\r\n") + 1);
  return std::ranges::any_of(kMarks, [&](const ThinkingMarks& marks) { return written.ends_with(marks.open); });
}

bool is_thinking_mark(std::string_view token) {
  return std::ranges::any_of(kMarks,
                             [&](const ThinkingMarks& marks) { return token == marks.open || token == marks.close; });
}

}  // namespace pinion
