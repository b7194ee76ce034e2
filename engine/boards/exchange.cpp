#include "engine/boards/exchange.h"

#include <algorithm>
#include <array>

namespace pinion {
namespace {

std::string name_of(size_t board) { return "board " + std::to_string(board); }

}  // namespace

std::vector<double> numbers_of_all(Exchange& exchange, double own) {
  std::vector<double> each(static_cast<size_t>(exchange.shares().ranks));
  each[static_cast<size_t>(exchange.shares().rank)] = own;
  gather_each(exchange, &each);
  return each;
}

Error agree(Exchange& exchange, const Error& own) {
  using Message = std::array<char, 1024>;  // ends in zeros
  std::vector<Message> messages(static_cast<size_t>(exchange.shares().ranks));
  const std::string text = own ? own.message() : std::string();
  Message& mine = messages[static_cast<size_t>(exchange.shares().rank)];
  std::copy_n(text.data(), std::min(text.size(), mine.size() - 1), mine.data());
  gather_each(exchange, &messages);
  if (own) return own;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i][0] != 0) return error(messages[i].data(), name_of(i));
  }
  return {};
}

Error agree_on(Exchange& exchange, uint64_t own, const std::string& otherwise) {
  std::vector<uint64_t> each(static_cast<size_t>(exchange.shares().ranks));
  each[static_cast<size_t>(exchange.shares().rank)] = own;
  gather_each(exchange, &each);
  const auto other = std::ranges::find_if(each, [&](uint64_t number) { return number != each.front(); });
  if (other == each.end()) return {};
  return error(otherwise, name_of(static_cast<size_t>(other - each.begin())));
}

}  // namespace pinion
