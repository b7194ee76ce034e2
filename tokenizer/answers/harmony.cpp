// Reads the messages of OpenAI's harmony format (gpt-oss). See call_readers.h.
#include "tokenizer/answers/call_readers.h"

#include <algorithm>

namespace pinion {
namespace {

constexpr std::string_view kStartMark = "<|start|>", kChannelMark = "<|channel|>", kMessageMark = "<|message|>",
                           kRecipient = " to=", kFunctions = "functions.";
constexpr std::string_view kMessageEnds[] = {"<|end|>", "<|call|>", "<|return|>"};
constexpr size_t kMaxHeaderBytes = 1024;

// Length of the end mark of a message at the front of `text`, or 0.
size_t end_bytes(std::string_view text) {
  for (const std::string_view end : kMessageEnds) {
    if (text.starts_with(end)) return end.size();
  }
  return 0;
}

Match match_end(std::string_view text) { return match_any(text, {kMessageEnds[0], kMessageEnds[1], kMessageEnds[2]}); }

Match match_mark(std::string_view text) {
  return std::max(match_end(text), match_any(text, {kStartMark, kChannelMark}));
}

// The text after the last `word`, up to a space, a line end or a mark.
std::string_view word_after(std::string_view header, std::string_view word) {
  const size_t at = header.rfind(word);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + word.size());
  return rest.substr(0, rest.find_first_of(" <\n"));
}

void skip_header_word(CallBuffer* buffer) {
  for (const std::string_view word : {kStartMark, kChannelMark, kRecipient}) {
    if (buffer->skip_word(word) == Step::kDone) return;
  }
}

class HarmonyMessages {
 public:
  explicit HarmonyMessages(bool in_content)
      : phase_(in_content ? &HarmonyMessages::read_text : &HarmonyMessages::start) {}

  Step operator()(CallBuffer* buffer) { return (this->*phase_)(buffer); }

 private:
  using Phase = Step (HarmonyMessages::*)(CallBuffer*);  // reads the next part of a message

  // A message without a header is an answer.
  Step start(CallBuffer* buffer) {
    const size_t end = end_bytes(buffer->rest());
    buffer->skip(end);
    if (end > 0) return Step::kContinue;
    const Match found = std::max(match_mark(buffer->rest()), match(buffer->rest(), kRecipient));
    if (found == Match::kPartial && !buffer->is_finished()) return Step::kNeedMore;
    if (found != Match::kYes) {
      kind_ = EventKind::kContent;
      return go_on(&phase_, &HarmonyMessages::read_text);
    }
    buffer->hold();
    searched_ = 0;
    return go_on(&phase_, &HarmonyMessages::read_header);
  }

  Step read_header(CallBuffer* buffer) {
    const std::string_view text = buffer->rest().substr(0, kMaxHeaderBytes);
    const size_t bytes = text.find(kMessageMark, searched_);
    if (bytes == std::string_view::npos) {
      searched_ = text.size() - std::min(text.size(), kMessageMark.size());
      if (text.size() < kMaxHeaderBytes) return Step::kNeedMore;
      skip_header_word(buffer);  // else start() would take the same text for a header again
      return Step::kReject;
    }
    const std::string_view header = text.substr(0, bytes), recipient = word_after(header, kRecipient);
    const bool is_call = recipient.starts_with(kFunctions);
    name_ = recipient.substr(is_call ? kFunctions.size() : 0);
    kind_ = word_after(header, kChannelMark) == "analysis" ? EventKind::kThought : EventKind::kContent;
    buffer->skip(bytes + kMessageMark.size());
    if (is_call && !buffer->has_tool(name_)) return Step::kReject;
    phase_ = is_call ? &HarmonyMessages::start_arguments : &HarmonyMessages::read_text;
    if (!is_call) buffer->drop_held();
    return Step::kContinue;
  }

  Step read_text(CallBuffer* buffer) {
    const std::string_view text = buffer->rest();
    size_t at = text.find("<|");
    Match found = Match::kNo;
    for (; at != std::string_view::npos; at = text.find("<|", at + 1)) {
      found = match_mark(text.substr(at));
      if (found != Match::kNo) break;
    }
    size_t certain = std::min(at, text.size() - (found == Match::kNo && text.ends_with('<')));
    if (found != Match::kYes && buffer->is_finished()) certain = text.size();
    buffer->emit(kind_, text.substr(0, certain));
    buffer->skip(certain);
    if (found != Match::kYes) return Step::kNeedMore;
    buffer->skip(end_bytes(buffer->rest()));
    return go_on(&phase_, &HarmonyMessages::start);
  }

  Step start_arguments(CallBuffer* buffer) {
    buffer->skip_white_space();
    if (buffer->rest().empty()) return Step::kNeedMore;
    const bool is_object = buffer->rest().starts_with('{');
    if (!is_object && end_bytes(buffer->rest()) == 0) {
      return match_end(buffer->rest()) == Match::kPartial ? Step::kNeedMore : Step::kReject;
    }
    buffer->begin_call(name_, {});
    scanner_ = {};
    if (is_object) return go_on(&phase_, &HarmonyMessages::read_arguments);
    buffer->emit(EventKind::kArguments, "{}");
    buffer->end_call(true);
    return go_on(&phase_, &HarmonyMessages::skip_end);
  }

  Step read_arguments(CallBuffer* buffer) {
    const Step step = read_json_arguments(&scanner_, buffer);
    return step == Step::kDone ? go_on(&phase_, &HarmonyMessages::skip_end) : step;
  }

  Step skip_end(CallBuffer* buffer) {
    buffer->skip_white_space();
    const Match found = match_mark(buffer->rest());
    if (found == Match::kPartial) return Step::kNeedMore;
    if (found == Match::kNo) return Step::kReject;
    buffer->drop_held();
    return go_on(&phase_, &HarmonyMessages::start);
  }

  Phase phase_;
  EventKind kind_ = EventKind::kContent;  // of the current text
  std::string name_;                      // of the tool
  size_t searched_ = 0;                   // leading bytes of the header that do not contain its end
  JsonScanner scanner_;
};

}  // namespace

CallReader harmony_messages(bool in_content) { return HarmonyMessages(in_content); }

}  // namespace pinion
