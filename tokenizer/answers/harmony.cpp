#include "tokenizer/answers/harmony.h"

#include <algorithm>

namespace pinion {
namespace {

using Kind = ToolEvent::Kind;

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>",
                           kRecipient = " to=", kFunctions = "functions.";
constexpr std::string_view kEnds[] = {"<|end|>", "<|call|>", "<|return|>"};
constexpr size_t kMaxHeaderBytes = 1024;

Match match_any(std::string_view text, std::initializer_list<std::string_view> words) {
  Match result = Match::kNo;
  for (const std::string_view word : words) {
    const Match found = match(text, word);
    if (found == Match::kYes) return found;
    if (found == Match::kBegun) result = found;
  }
  return result;
}

// How many bytes the mark has that ends a message, at the front of `text`.
size_t end_bytes(std::string_view text) {
  for (const std::string_view end : kEnds) {
    if (text.starts_with(end)) return end.size();
  }
  return 0;
}

// What stands behind the last `word`, up to a blank or a mark.
std::string_view word_behind(std::string_view header, std::string_view word) {
  const size_t at = header.rfind(word);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + word.size());
  return rest.substr(0, rest.find_first_of(" <\n"));
}

void skip_word(CallStream* stream) {
  for (const std::string_view word : {kStart, kChannel, kRecipient}) {
    if (stream->skip_word(word) == Step::kDone) return;
  }
}

}  // namespace

void HarmonyMessages::resume_as_content() {
  phase_ = Phase::kText;
  kind_ = Kind::kContent;
}

void HarmonyMessages::finish(CallStream* stream) {
  if (phase_ != Phase::kText && phase_ != Phase::kBetween) return;
  stream->say(phase_ == Phase::kText ? kind_ : Kind::kContent, stream->rest());
  stream->skip(stream->rest().size());
}

// A message without a header is an answer.
Step HarmonyMessages::start(CallStream* stream) {
  const size_t end = end_bytes(stream->rest());
  stream->skip(end);
  if (end > 0) return Step::kOn;
  switch (match_any(stream->rest(), {kStart, kChannel, kRecipient, kEnds[0], kEnds[1], kEnds[2]})) {
    case Match::kBegun:
      return Step::kMore;
    case Match::kNo:
      resume_as_content();
      return Step::kOn;
    case Match::kYes:
      break;
  }
  stream->hold();
  searched_ = 0;
  phase_ = Phase::kHeader;
  return Step::kOn;
}

Step HarmonyMessages::read_header(CallStream* stream) {
  const std::string_view text = stream->rest().substr(0, kMaxHeaderBytes);
  const size_t bytes = text.find(kMessage, searched_);
  if (bytes == std::string_view::npos) {
    searched_ = text.size() - std::min(text.size(), kMessage.size());
    if (text.size() < kMaxHeaderBytes) return Step::kMore;
    skip_word(stream);  // or the same header would begin again
    return Step::kWrong;
  }
  const std::string_view header = text.substr(0, bytes), recipient = word_behind(header, kRecipient);
  const bool is_call = recipient.starts_with(kFunctions);
  name_ = recipient.substr(is_call ? kFunctions.size() : 0);
  kind_ = word_behind(header, kChannel) == "analysis" ? Kind::kThought : Kind::kContent;
  stream->skip(bytes + kMessage.size());
  if (is_call && !stream->knows(name_)) return Step::kWrong;
  phase_ = is_call ? Phase::kArguments : Phase::kText;
  if (!is_call) stream->drop_held();
  return Step::kOn;
}

Step HarmonyMessages::read_text(CallStream* stream) {
  const std::string_view text = stream->rest();
  size_t at = text.find("<|");
  Match found = Match::kNo;
  for (; at != std::string_view::npos; at = text.find("<|", at + 1)) {
    found = match_any(text.substr(at), {kStart, kChannel, kEnds[0], kEnds[1], kEnds[2]});
    if (found != Match::kNo) break;
  }
  const size_t certain = std::min(at, text.size() - (found == Match::kNo && text.ends_with('<')));
  stream->say(kind_, text.substr(0, certain));
  stream->skip(certain);
  if (found != Match::kYes) return Step::kMore;
  stream->skip(end_bytes(stream->rest()));
  phase_ = Phase::kBetween;
  return Step::kOn;
}

Step HarmonyMessages::start_arguments(CallStream* stream) {
  stream->skip_blanks();
  if (stream->rest().empty()) return Step::kMore;
  const bool is_object = stream->rest().starts_with('{');
  if (!is_object && end_bytes(stream->rest()) == 0) {
    return match_any(stream->rest(), {kEnds[0], kEnds[1], kEnds[2]}) == Match::kBegun ? Step::kMore : Step::kWrong;
  }
  stream->begin_call(name_, {});
  scanner_ = {};
  phase_ = Phase::kArgumentsText;
  if (is_object) return Step::kOn;
  stream->say(Kind::kArguments, "{}");
  stream->end_call(true);
  phase_ = Phase::kBehindCall;
  return Step::kOn;
}

Step HarmonyMessages::read_arguments(CallStream* stream) {
  std::string piece;
  stream->skip(scanner_.put(stream->rest(), &piece));
  stream->say(Kind::kArguments, piece);
  if (scanner_.state() == JsonScanner::State::kGoing) return Step::kMore;
  if (scanner_.state() == JsonScanner::State::kWrong) return Step::kWrong;
  stream->end_call(true);
  phase_ = Phase::kBehindCall;
  return Step::kOn;
}

Step HarmonyMessages::skip_end(CallStream* stream) {
  stream->skip_blanks();
  const Match found = match_any(stream->rest(), {kStart, kChannel, kEnds[0], kEnds[1], kEnds[2]});
  if (found == Match::kBegun) return Step::kMore;
  if (found == Match::kNo) return Step::kWrong;
  stream->drop_held();
  phase_ = Phase::kBetween;
  return Step::kOn;
}

Step HarmonyMessages::step(CallStream* stream) {
  switch (phase_) {
    case Phase::kBetween:
      return start(stream);
    case Phase::kHeader:
      return read_header(stream);
    case Phase::kText:
      return read_text(stream);
    case Phase::kArguments:
      return start_arguments(stream);
    case Phase::kArgumentsText:
      return read_arguments(stream);
    default:
      return skip_end(stream);
  }
}

}  // namespace pinion
