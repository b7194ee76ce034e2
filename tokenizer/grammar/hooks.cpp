#include "tokenizer/grammar/hooks.h"

#include <fsm.h>
#include <fsm_builder.h>
#include <json_schema_converter.h>
#include <lark_converter.h>
#include <structural_tag.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "kernels/base/clock.h"

namespace pinion {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Limits of the parser: states that it holds for a text (usual are a few per byte), and states visited for one byte.
constexpr size_t kMaxStates = 1'000'000, kMaxStatesPerByte = 20'000;

thread_local double limit_seconds = kNever;

}  // namespace

std::string& grammar_warning() {
  thread_local std::string text;
  return text;
}

GrammarTimeLimit::GrammarTimeLimit(double seconds) { limit_seconds = thread_seconds() + seconds; }
GrammarTimeLimit::~GrammarTimeLimit() { limit_seconds = kNever; }

}  // namespace pinion

namespace xgrammar {

Result<FSMWithStartEnd> BuildConjunction(const std::string& lines);
[[noreturn]] void LogFatalImpl(const std::string& file, int line, const std::string& message);
void LogMessageImpl(const std::string& file, int line, int level, const std::string& message);
void NoteWork(std::size_t held, std::size_t here);

// The parser calls this for each state that it reaches and each byte that it tries. `held`: its states for the whole
// text, or 0; `here`: its states for the current byte.
void NoteWork(std::size_t held, std::size_t here) {
  thread_local uint32_t calls = 0;
  constexpr uint32_t kCallsPerCheck = 1024;
  if (held > pinion::kMaxStates || here > pinion::kMaxStatesPerByte) {
    throw std::runtime_error("takes too much memory: the grammar is too ambiguous");
  }
  if (++calls % kCallsPerCheck == 0 && pinion::thread_seconds() > pinion::limit_seconds) {
    throw std::runtime_error("takes too long: the grammar is too ambiguous");
  }
}

void LogFatalImpl(const std::string&, int, const std::string& message) {
  constexpr std::string_view kNoise = ") is false: ";  // "Check failed: (error.empty()) is false: ..."
  const size_t noise = message.find(kNoise);
  throw std::runtime_error(noise == std::string::npos ? message : message.substr(noise + kNoise.size()));
}

void LogMessageImpl(const std::string&, int, int level, const std::string& message) {
  constexpr int kWarning = 2;  // XGRAMMAR_LOG_LEVEL_WARNING
  const bool is_harmless = message.find("The character itself will be matched") != std::string::npos;
  std::string& warning = pinion::grammar_warning();
  if (level == kWarning && !is_harmless && warning.empty()) warning = message;
}

namespace {

constexpr int kMaxConjunctionStates = 4000, kMaxCountedStates = 3000, kNoMaximum = std::numeric_limits<int>::max();

// Removes states from which no text ends: a grammar that enters one has no next token.
FSMWithStartEnd WithoutDeadEnds(const FSMWithStartEnd& automaton) {
  const int count = automaton.NumStates();
  std::vector<std::vector<int>> sources(count);
  for (int state = 0; state < count; ++state) {
    for (const auto& edge : automaton.GetFsm().GetEdges(state)) sources[edge.target].push_back(state);
  }
  std::vector<int> alive(automaton.GetEnds().begin(), automaton.GetEnds().end()), numbers(count, -1);
  for (size_t i = 0; i < alive.size(); ++i) {
    numbers[alive[i]] = static_cast<int>(i);
    for (const int source : sources[alive[i]]) {
      if (numbers[source] == -1 && !automaton.IsEndState(source)) {
        numbers[source] = 0;
        alive.push_back(source);
      }
    }
  }
  if (numbers[automaton.GetStart()] == -1) return {FSM(1), 0, std::vector<int32_t>(), true};
  FSM kept(static_cast<int>(alive.size()));
  for (const int state : alive) {
    for (const auto& edge : automaton.GetFsm().GetEdges(state)) {
      if (numbers[edge.target] != -1) kept.AddEdge(numbers[state], numbers[edge.target], edge.min, edge.max);
    }
  }
  std::vector<int32_t> ends;
  for (const int end : automaton.GetEnds()) ends.push_back(numbers[end]);
  return {kept, numbers[automaton.GetStart()], ends, true};
}

// The texts of an automaton with `min` to `max` characters of a JSON string, in which an escape is one character.
FSMWithStartEnd WithLength(const FSMWithStartEnd& automaton, int min, int max) {
  struct State {
    int from, count;  // the state of `automaton`, and the characters up to it
    bool is_after_backslash;
    auto operator<=>(const State&) const = default;
  };
  FSMWithStartEnd counted(FSM(1), 0, std::vector<int32_t>(), true);
  std::vector<State> states = {{automaton.GetStart(), 0, false}};
  std::map<State, int> numbers = {{states[0], 0}};
  for (size_t i = 0; i < states.size() && states.size() <= kMaxCountedStates; ++i) {
    const State at = states[i];
    if (at.count >= min && automaton.IsEndState(at.from)) counted.AddEndState(static_cast<int>(i));
    for (const auto& edge : automaton.GetFsm().GetEdges(at.from)) {
      // Bytes before, at and after the backslash, bytes within a character, and first bytes of long characters.
      for (const auto& [low, high] :
           {std::pair{0, '\\' - 1}, {'\\', '\\'}, {'\\' + 1, 0x7F}, {0x80, 0xBF}, {0xC0, 0xFF}}) {
        const int first = std::max<int>(edge.min, low), last = std::min<int>(edge.max, high);
        const int count = at.count + (low != 0x80 && !at.is_after_backslash && (at.count < min || max < kNoMaximum));
        if (first > last || count > max) continue;
        const State next = {edge.target, count, low == '\\' && !at.is_after_backslash};
        const auto [found, is_new] = numbers.try_emplace(next, static_cast<int>(states.size()));
        if (is_new) states.push_back(next), counted.AddState();
        counted.GetFsm().AddEdge(static_cast<int>(i), found->second, first, last);
      }
    }
  }
  return counted;
}

}  // namespace

// The automaton of a pattern of several lines (hooks.h).
Result<FSMWithStartEnd> BuildConjunction(const std::string& lines) {
  std::optional<FSMWithStartEnd> all;
  int min = 0, max = kNoMaximum;
  for (size_t begin = 0; begin <= lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    const bool is_excluded = lines[begin] == '!';
    std::string line = lines.substr(begin + is_excluded, end - begin - is_excluded);
    begin = end + 1;
    if (line.starts_with("^(?:")) {  // a length_pattern(): any string, whose characters are counted below
      std::sscanf(line.c_str() + line.rfind('{'), "{%d,%d", &min, &max);
      line.replace(line.rfind('{'), line.npos, "*)$");
    }
    Result<FSMWithStartEnd> next = RegexFSMBuilder::Build(line);
    if (next.IsErr()) return next;
    const FSMWithStartEnd built = std::move(next).Unwrap();
    next = is_excluded ? built.Not(kMaxConjunctionStates) : built.MinimizeDFA(kMaxConjunctionStates);
    if (next.IsErr()) return next;
    if (all) next = FSMWithStartEnd::Intersect(*all, std::move(next).Unwrap(), kMaxConjunctionStates);
    if (next.IsErr()) return next;
    all = WithoutDeadEnds(std::move(next).Unwrap());
  }
  if (min > 0 || max < kNoMaximum) all = WithLength(*all, min, max);
  if (all->NumStates() > kMaxCountedStates) return ResultErr("too many states");
  return ResultOk(WithoutDeadEnds(*all));
}

// Converters of Lark grammars and structural tags, a fifth of the library's compile time, are unused and not compiled.
Grammar LarkToGrammar(const std::string&, const std::optional<TokenizerInfo>&, const std::vector<NamedGrammar>&) {
  throw std::runtime_error("Lark grammars are left out of this build");
}

Result<Grammar, StructuralTagError> StructuralTagToGrammar(const std::string&, const std::optional<TokenizerInfo>&) {
  throw std::runtime_error("structural tags are left out of this build");
}

}  // namespace xgrammar

namespace pinion {
namespace {

std::optional<xgrammar::FSMWithStartEnd> automaton_of(const std::string& pattern) {
  try {
    auto built = xgrammar::BuildConjunction(pattern);
    if (built.IsOk()) return std::move(built).Unwrap();
  } catch (const std::runtime_error&) {  // of LogFatalImpl()
  }
  return {};
}

}  // namespace

std::optional<int64_t> automaton_states(const std::string& pattern) {
  const auto automaton = automaton_of(pattern);
  if (!automaton) return {};
  return automaton->GetEnds().empty() ? 0 : automaton->NumStates();
}

bool matches_pattern(const std::string& pattern, const std::string& text) {
  const auto automaton = automaton_of(pattern);
  return automaton && automaton->AcceptString(text);
}

std::string library_pattern(const std::string& format) {
  struct Formats : xgrammar::JSONSchemaConverter {
    using JSONSchemaConverter::JSONFormatToRegexPattern;
  };
  return Formats::JSONFormatToRegexPattern(format).value_or("");
}

}  // namespace pinion
