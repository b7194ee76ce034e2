// From the events of texts to the bytes of an answer: whole, or as a stream whose first bytes wait for the first token.
// So a text that fails before it has a status of its own, and the last event of a stream says what came later.
#pragma once

#include <memory>
#include <string>

#include "apps/serve/request.h"

namespace pinion {

// One answer in an API's words.
class Answer {
 public:
  virtual ~Answer() = default;

  // The first bytes of a stream.
  virtual std::string begin() { return {}; }
  // An event of a text: what a stream has more by it. Of whole answers nobody looks at that.
  virtual std::string put(const TextEvent& event) = 0;
  // All texts have ended: the last bytes of a stream, or all of a whole answer.
  virtual std::string finish() = 0;
};

// With the headers that name the seed and what computed the answer. Waits for all of a whole answer and for the first
// event of a stream.
Reply answer_reply(const Serving& serving, Shape shape, const TextFields& fields, const HttpRequest& http,
                   std::unique_ptr<Texts> texts, std::unique_ptr<Answer> answer);

}  // namespace pinion
