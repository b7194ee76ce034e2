#include "engine/boards/exchange.h"

#include <array>

namespace pinion {
namespace {

std::string board_name(size_t rank) { return "board " + std::to_string(rank); }

}  // namespace

Error agree(Exchange& exchange, const Error& own) {
  using Message = std::array<char, 1024>;  // ends in zeros
  Message mine = {};
  const std::string text = own ? own.message() : std::string();
  std::copy_n(text.data(), std::min(text.size(), mine.size() - 1), mine.data());
  const std::vector<Message> messages = values_of_all(exchange, mine);
  if (own) return own;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i][0] != 0) return error(messages[i].data(), board_name(i));
  }
  return {};
}

Error agree_on(Exchange& exchange, uint64_t own, const std::string& otherwise) {
  const std::vector<uint64_t> numbers = values_of_all(exchange, own);
  const auto other = std::ranges::find_if(numbers, [&](uint64_t number) { return number != numbers.front(); });
  if (other == numbers.end()) return {};
  return error(otherwise, board_name(other - numbers.begin()));
}

}  // namespace pinion
