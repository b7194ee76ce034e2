#include "tokenizer/answers/stop_texts.h"

#include <algorithm>
#include <utility>

namespace pinion {

size_t begun_mark(std::string_view text, std::string_view mark) {
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
    held = std::max(held, begun_mark(pending_, stop));
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

}  // namespace pinion
