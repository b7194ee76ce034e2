// OpenAI's answer to a conversation, whole or as it comes.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "apps/serve/answer.h"
#include "apps/serve/conversation.h"

namespace pinion {

class ChatAnswer : public Answer {
 public:
  // `only_one_call`: the answer ends behind the first call.
  ChatAnswer(const Serving& serving, const TextFields& fields, const ToolCallOptions& reply, bool only_one_call);

  std::string begin() override;
  std::string put(const TextEvent& event) override;
  std::string finish() override;

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

  void put(const ToolEvent& event, Choice& choice);
  void add_logprobs(const Logprobs& logprobs, Choice& choice);
  OrderedJson logprobs_json(Choice& choice) const;
  OrderedJson chunk(size_t index, OrderedJson delta, OrderedJson logprobs, const char* finish) const;
  std::string chunks(size_t index);
  std::string whole();

  const Serving& serving_;
  TextFields fields_;
  bool only_one_call_;
  OrderedJson head_;
  std::deque<Choice> choices_;
  Usage usage_;
};

}  // namespace pinion
