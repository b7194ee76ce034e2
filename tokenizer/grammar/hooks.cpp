#include "tokenizer/grammar/hooks.h"

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "kernels/base/clock.h"

namespace pinion {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// States that the parser may hold for a text, which needs a few for each byte, and may look at for one byte.
constexpr size_t kMostHeld = 1'000'000, kMostHere = 20'000;

thread_local double limit_seconds = kNever;

}  // namespace

std::string& grammar_complaint() {
  thread_local std::string text;
  return text;
}

GrammarLimit::GrammarLimit(double seconds) { limit_seconds = thread_seconds() + seconds; }
GrammarLimit::~GrammarLimit() { limit_seconds = kNever; }

}  // namespace pinion

namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& file, int line, const std::string& message);
void LogMessageImpl(const std::string& file, int line, int level, const std::string& message);
void NoteWork(std::size_t held, std::size_t here);

// The parser calls this for each state that it reaches and each byte that it tries.
void NoteWork(std::size_t held, std::size_t here) {
  thread_local uint32_t calls = 0;
  constexpr uint32_t kCallsPerLook = 64;
  if (held > pinion::kMostHeld || here > pinion::kMostHere) {
    throw std::runtime_error("takes too much memory: it reads the text in too many ways");
  }
  if (++calls % kCallsPerLook == 0 && pinion::thread_seconds() > pinion::limit_seconds) {
    throw std::runtime_error("takes too long: it reads the text in too many ways");
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
  std::string& complaint = pinion::grammar_complaint();
  if (level == kWarning && !is_harmless && complaint.empty()) complaint = message;
}

}  // namespace xgrammar
