#include "tokenizer/answers/tool_calls.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tokenizer/answers/answer_text.h"
#include "tokenizer/answers/call_readers.h"

namespace pinion {
namespace {

// A delimiter that no answer contains. Other marks, such as "functools", may be words of one.
bool is_delimiter(std::string_view mark) {
  return !mark.empty() && (mark.front() == '<' || mark.front() == '[') && (mark.back() == '>' || mark.back() == ']');
}

// Reads a broken call as if one closing quote, bracket or tag stood before `mark`, which ends it. `held` is the held
// text before the mark, `reader` the state where that text begins, behind an opening mark. False: it is still no call.
bool mend_call(const ToolFormatRow& row, const CallReader& reader, size_t opening_bytes, std::string_view held,
               std::string_view mark, CallBuffer* buffer) {
  constexpr size_t kMaxPlaces = 8;
  const std::string value_and_end = std::string(row.tags.value_end).append(row.tags.end);
  const std::string_view closers[] = {"}",          "]",          ")", "\"", "'", row.syntax, row.tags.value_end,
                                      row.tags.end, value_and_end};
  const size_t text_bytes = held.find_last_not_of(kAsciiWhiteSpace) + 1;
  const bool has_end_tag = !row.tags.end.empty() && held.substr(0, text_bytes).ends_with(row.tags.end);
  const size_t first = has_end_tag ? text_bytes - row.tags.end.size() : held.find_last_not_of("}])` \t\r\n") + 1;
  for (size_t at = first; at <= std::min(held.size(), first + kMaxPlaces); ++at) {
    for (const std::string_view closer : closers) {
      if (closer.empty()) continue;
      CallBuffer trial =
          buffer->with_held_text(std::string(held.substr(0, at)).append(closer).append(held.substr(at)).append(mark));
      trial.skip(opening_bytes);
      CallReader calls = reader;
      Step step = Step::kContinue;
      while (step == Step::kContinue) step = calls(&trial);
      const std::string_view rest = trimmed(trial.rest());
      const bool is_read = rest.empty() || rest == mark;
      if (!is_read || trial.in_call() || trial.begun_calls() < buffer->begun_calls()) continue;
      buffer->take_call(trial, held.size() + mark.size());
      return true;
    }
  }
  return false;
}

}  // namespace

struct ToolCallParser::State {
  explicit State(ToolCallOptions& options)
      : row(tool_format_row(options.format)),
        buffer(std::move(options.tools)),
        splitter(options.inside_thought && options.begun.empty()) {
    leave_call();
    if (!row.bare.empty()) first_bytes = "<[";  // of thinking marks: a call may follow a thought
    const auto add = [&](std::string_view mark, bool begins_call) {
      if (mark.empty()) return;
      outer_marks.emplace_back(mark, begins_call);
      if (first_bytes.find(mark[0]) == std::string::npos) first_bytes += mark[0];
    };
    std::ranges::for_each(row.open, [&](std::string_view mark) { add(mark, true); });
    std::ranges::for_each(row.other_marks, [&](std::string_view mark) { add(mark, false); });
    std::ranges::for_each(row.close, [&](std::string_view mark) { add(is_delimiter(mark) ? mark : "", false); });
    std::ranges::sort(outer_marks, std::greater(), [](const auto& mark) { return mark.first.size(); });
  }

  // Each step reads some text; false: the next one needs more.
  bool step() { return is_outside() ? step_outside() : step_call(); }
  void leave_call() { call = row.body == ToolBody::kHarmony ? harmony_messages(false) : CallReader(); }
  bool is_outside() const { return !call; }

  void emit(const std::vector<ThinkingText>& texts) {
    for (const auto& [text, is_thought] : texts) {
      buffer.emit(is_thought ? EventKind::kThought : EventKind::kContent, text);
      has_content |= !is_thought && text.find_first_not_of(kAsciiWhiteSpace) != std::string::npos;
    }
  }

  void begin(std::string_view mark) {
    emit(splitter.put_literal({}));
    buffer.hold();
    buffer.skip(mark.size());
    if (row.body == ToolBody::kJson) call = json_calls(row);
    if (row.body == ToolBody::kPattern) call = pattern_calls(row);
    if (row.body == ToolBody::kXml) call = xml_calls(row, mark);
    if (row.body == ToolBody::kBraces || row.body == ToolBody::kPython) call = brace_calls(row);
    call_at_hold = call;
    opening_bytes = mark.size();
  }

  // Broken calls become content without the marks.
  std::string without_marks(std::string text) const {
    for (const auto& [mark, begins_call] : outer_marks) {
      if (begins_call && !is_delimiter(mark)) continue;
      for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
        text.erase(at, mark.size() + text.substr(at + mark.size(), 1).starts_with('\n'));
      }
    }
    return text;
  }

  // Ends a long call as incomplete. Held text becomes content.
  void give_up() {
    if (buffer.in_call() && !buffer.holds_call()) buffer.end_call(false);
    const std::string text = without_marks(buffer.take_held());
    is_broken = false;
    if (row.body == ToolBody::kHarmony) {
      buffer.emit(EventKind::kContent, text);
      call = harmony_messages(true);
    } else {
      emit(splitter.put_literal(text));
      call = {};
    }
  }

  // A call without a mark begins an answer or follows another call.
  bool step_bare() {
    const char c = buffer.rest().front();
    const bool may_begin = kAsciiWhiteSpace.find(c) != std::string_view::npos ||
                           row.bare.find(c) != std::string_view::npos || (c == ';' && buffer.begun_calls() > 0);
    if (has_content || !may_begin) return false;
    emit(splitter.put_literal({}));  // releases a partial thinking mark, which no such character continues
    if (!has_content) begin({});
    return !has_content;
  }

  // Marks of calls inside a thought are plain text, so the splitter gets text up to a possible end of its mark only.
  bool step_outside() {
    const std::string_view text = buffer.rest();
    if (text.empty()) return false;
    size_t bytes = text.size();
    if (splitter.inside()) {
      bytes = std::min(bytes, text.find_first_of(kThinkingMarkEnds)) + 1;
    } else if (!row.bare.empty() && step_bare()) {
      return true;
    } else if (!first_bytes.empty()) {
      bytes = std::min(bytes, text.find_first_of(first_bytes));
      bool is_partial = false;
      for (const auto& [mark, begins_call] : outer_marks) {
        const Match found = bytes > 0 || is_partial ? Match::kNo : match(text, mark);
        if (found == Match::kYes && begins_call) {
          begin(mark);
          return true;
        }
        if (found == Match::kYes) {
          emit(splitter.put_literal({}));
          buffer.skip(mark.size());
          return true;
        }
        is_partial |= found == Match::kPartial;
      }
      if (is_partial) return false;
      if (bytes == 0) bytes = 1;
    }
    emit(splitter.put(text.substr(0, bytes)));
    buffer.skip(std::min(bytes, text.size()));
    return true;
  }

  bool step_call() {
    if (is_broken) return step_broken(false);
    const int begun_calls = buffer.begun_calls();
    const bool was_in_call = buffer.in_call();
    const Step step = call(&buffer);
    if (buffer.is_held() && buffer.held_read_bytes() == 0) {
      call_at_hold = call;
      opening_bytes = 0;
    }
    if (buffer.holds_call() && buffer.held_read_bytes() > kMaxHeldCallBytes) buffer.drop_held();
    if ((was_in_call || buffer.begun_calls() > begun_calls) && !buffer.holds_call()) {
      splitter.trim_newlines();
      has_content = false;
    }
    if (step == Step::kNeedMore && !buffer.is_cut()) return false;
    if (step == Step::kNeedMore && buffer.holds_call()) {
      buffer.drop_held();
      return true;
    }
    if (step == Step::kNeedMore) buffer.skip(buffer.rest().size());
    is_broken = step == Step::kReject && buffer.holds_call() && !row.close[0].empty();
    if (!is_broken && (step == Step::kNeedMore || step == Step::kReject)) give_up();
    if (step == Step::kDone) {
      buffer.drop_held();
      call = {};
    }
    return true;
  }

  // Waits for the mark that ends a broken call, then mends it or makes it content.
  bool step_broken(bool is_last) {
    const std::string_view held = buffer.held_text().substr(0, 2 * kMaxHeldCallBytes);
    size_t found = std::string_view::npos;
    std::string_view found_mark;
    for (const std::string_view mark : row.close) {
      const size_t at =
          mark.empty() ? std::string_view::npos : held.find(mark, is_broken ? buffer.held_read_bytes() : opening_bytes);
      if (at < found) found_mark = mark;
      found = std::min(found, at);
    }
    const bool is_found = found != std::string_view::npos;
    if (!is_found && !is_last && held.size() < 2 * kMaxHeldCallBytes) return false;
    if (is_found && mend_call(row, call_at_hold, opening_bytes, held.substr(0, found), found_mark, &buffer)) {
      splitter.trim_newlines();
      is_broken = has_content = false;
      leave_call();
      return true;
    }
    if (is_found) buffer.skip(found + found_mark.size() - buffer.held_read_bytes());
    give_up();
    return true;
  }

  // True if the text behind a call is the beginning of a mark, which the limit of tokens has cut.
  bool is_mark_cut() const {
    const std::string_view text = trimmed(buffer.is_held() ? buffer.held_text() : buffer.rest());
    return buffer.begun_calls() > 0 && !buffer.in_call() && !text.empty() &&
           std::ranges::any_of(outer_marks, [&](const auto& mark) { return mark.first.starts_with(text); });
  }

  void finish() {
    while (buffer.holds_call() && !row.close[0].empty()) {
      if (!is_broken) buffer.skip(buffer.rest().size());
      step_broken(true);
      while (step()) continue;
    }
    if (is_mark_cut()) {
      buffer.skip(buffer.rest().size());
      buffer.drop_held();
    }
    if (buffer.in_call() && !buffer.holds_call()) buffer.emit(EventKind::kArguments, buffer.rest());
    if (is_outside()) emit(splitter.put(without_marks(std::string(buffer.rest()))));
    buffer.finish();
    while (row.body == ToolBody::kHarmony && step()) continue;
    buffer.skip(buffer.rest().size());
    if (!is_outside()) give_up();
    if (row.body != ToolBody::kHarmony) emit(splitter.finish());
  }

  void read(std::string_view text) {
    buffer.put(text);
    while (step()) continue;
  }

  std::vector<ToolEvent> take_events() {
    std::vector<ToolEvent> events = buffer.take_events();
    for (ToolEvent& event : events) {
      const bool is_text = event.index < 0;
      const size_t repeated = std::ranges::mismatch(begun_held, event.text).in1 - begun_held.begin();
      if (is_text) event.text.erase(0, repeated);
      begun_held.erase(0, is_text && event.text.empty() ? repeated : std::string::npos);
    }
    std::erase_if(events, [](const ToolEvent& event) { return event.index < 0 && event.text.empty(); });
    return events;
  }

  const ToolFormatRow& row;
  CallBuffer buffer;
  ThinkingSplitter splitter;
  CallReader call;
  CallReader call_at_hold;                                     // `call` where the held text begins, for mend_call()
  size_t opening_bytes = 0;                                    // of the held text: a mark that `call_at_hold` has read
  bool is_broken = false;                                      // the held call is invalid; its closing mark is searched
  std::vector<std::pair<std::string_view, bool>> outer_marks;  // outside of calls; second: begins a call
  std::string first_bytes;                                     // of the outer marks
  bool has_content = false;                                    // since the last call
  std::string begun_held;  // held text of ToolCallOptions::begun, which is dropped if it becomes content
};

ToolCallParser::ToolCallParser(ToolCallOptions options) : state_(std::make_unique<State>(options)) {
  state_->read(options.begun);
  state_->buffer.drop_events();
  state_->begun_held = state_->splitter.held() + state_->without_marks(state_->buffer.unread());
  state_->read(options.forced_prefix);
}

ToolCallParser::~ToolCallParser() = default;

std::string_view ToolCallParser::open_call() const {
  if (state_->is_outside() || !state_->buffer.is_held() || state_->is_broken) return {};
  const std::string_view held = state_->buffer.held_text();
  if (state_->row.body != ToolBody::kHarmony) return trimmed(held).empty() ? "" : held.substr(held.find(trimmed(held)));
  return held.substr(std::min(held.find(kHarmonyCall), held.size()));
}

std::vector<ToolEvent> ToolCallParser::put(std::string_view text) {
  state_->read(text);
  return state_->take_events();
}

std::vector<ToolEvent> ToolCallParser::finish() {
  state_->finish();
  return state_->take_events();
}

}  // namespace pinion
