#include "tokenizer/grammar_log.h"

#include <stdexcept>
#include <string_view>

namespace pinion {

std::string& grammar_complaint() {
  thread_local std::string text;
  return text;
}

}  // namespace pinion

namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& file, int line, const std::string& message);
void LogMessageImpl(const std::string& file, int line, int level, const std::string& message);

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
