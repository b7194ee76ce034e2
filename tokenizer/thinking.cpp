#include "tokenizer/thinking.h"

#include <algorithm>

#include "tokenizer/stop_texts.h"

namespace pinion {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";

}  // namespace

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
    const std::string_view mark = inside_ ? kClose : kOpen;
    const size_t found = pending_.find(mark);
    if (found == std::string::npos) {
      const size_t certain = pending_.size() - begun_mark(pending_, mark);
      add(std::string_view(pending_).substr(0, certain), &parts);
      pending_.erase(0, certain);
      return parts;
    }
    add(std::string_view(pending_).substr(0, found), &parts);
    pending_.erase(0, found + mark.size());
    leave_out_newlines();
    inside_ = !inside_;
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
  const size_t last = prompt.find_last_not_of(" \t\r\n");
  return prompt.substr(0, last + 1).ends_with(kOpen);
}

bool is_thinking_mark(std::string_view token) { return token == kOpen || token == kClose; }

}  // namespace pinion
