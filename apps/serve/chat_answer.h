// OpenAI's answer to a conversation, whole or as it comes.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "apps/serve/conversation.h"
#include "apps/serve/request.h"

namespace pinion {

class ChatAnswer {
 public:
  // `only_one_call`: the answer ends behind the first call.
  ChatAnswer(const Serving& serving, const TextFields& fields, const ToolCallOptions& reply, bool only_one_call);

  // False: see follow().
  bool write(Texts& texts, Connection& connection);

 private:
  struct Call {
    std::string id, name, arguments;
  };
  struct Choice {
    explicit Choice(const ToolCallOptions& reply) : parser(reply) {}

    ToolCallParser parser;
    std::optional<int32_t> last_id = {};
    std::string content = {}, thoughts = {};
    std::vector<Call> calls = {};
    OrderedJson deltas = OrderedJson::array();  // that are still to be sent
    OrderedJson logprobs = OrderedJson::array();
    const char* finish = nullptr;
  };

  void put(const TextEvent& event);
  void put(const ToolEvent& event, Choice& choice);
  void add_logprobs(const Logprobs& logprobs, Choice& choice);
  OrderedJson logprobs_json(Choice& choice) const;
  OrderedJson chunk(size_t index, OrderedJson delta, OrderedJson logprobs, const char* finish) const;
  bool begin_stream(Connection& connection) const;
  bool send(const TextEvent& event, Connection& connection);
  bool finish_stream(Connection& connection) const;
  std::string whole();

  const Serving& serving_;
  TextFields fields_;
  bool only_one_call_;
  OrderedJson head_;
  std::deque<Choice> choices_;
  Usage usage_;
};

}  // namespace pinion
