#include "tokenizer/grammar/hooks.h"

#include <lark_converter.h>
#include <structural_tag.h>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string_view>

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

[[noreturn]] void LogFatalImpl(const std::string& file, int line, const std::string& message);
void LogMessageImpl(const std::string& file, int line, int level, const std::string& message);
void NoteWork(std::size_t held, std::size_t here);

// The parser calls this for each state that it reaches and each byte that it tries. `held`: its states for the whole
// text, or 0; `here`: its states for the current byte.
void NoteWork(std::size_t held, std::size_t here) {
  thread_local uint32_t calls = 0;
  constexpr uint32_t kCallsPerCheck = 64;
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

// The converters of Lark grammars and structural tags are not compiled: nothing here makes such grammars, and they are
// a fifth of the library's compile time.
Grammar LarkToGrammar(const std::string&, const std::optional<TokenizerInfo>&, const std::vector<NamedGrammar>&) {
  throw std::runtime_error("Lark grammars are left out of this build");
}

Result<Grammar, StructuralTagError> StructuralTagToGrammar(const std::string&, const std::optional<TokenizerInfo>&) {
  throw std::runtime_error("structural tags are left out of this build");
}

}  // namespace xgrammar
