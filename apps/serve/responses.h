// OpenAI's Responses API (platform.openai.com/docs/api-reference/responses): requests, and responses to be continued.
#pragma once

#include <list>

#include "apps/serve/conversation.h"

namespace pinion {

struct StoredResponse {
  std::string id;
  std::string response;  // JSON
  std::string items;     // JSON: list of the conversation's items, with those of the response
};

// Responses by id. Beyond `max_bytes`, the least recently used are dropped. Any thread may call it.
class ResponseStore {
 public:
  explicit ResponseStore(size_t max_bytes = size_t{64} << 20) : max_bytes_(max_bytes) {}

  void add(StoredResponse response);
  std::shared_ptr<const StoredResponse> find(const std::string& id, bool erases = false);  // null: unknown
  // An item of a response; null: unknown. Items that clients sent have ids that others could guess.
  OrderedJson find_item(const std::string& id);

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<const StoredResponse>> responses_;  // most recently used first
  size_t bytes_ = 0;
  const size_t max_bytes_;
};

struct ResponseTool {
  std::string name, space;  // `space`: its namespace, or empty
  bool is_custom = false;   // takes a text instead of arguments
};

struct ResponsesRequest : ChatRequest {
  OrderedJson response;                       // without output; repeats fields of the request
  OrderedJson items;                          // the conversation, with that of the previous response
  std::map<std::string, ResponseTool> tools;  // by the name for the model, which includes the namespace
  bool is_stored = true;
  bool has_summary = false;  // thoughts are sent as a summary
};

// Begins encrypted_content, the copy of a thought that clients return unread; the text after it is plain.
constexpr std::string_view kThoughtMark = "pinion:";

Error read_responses_request(const ServerState& server, const std::string& body, ResponsesRequest* out);

}  // namespace pinion
