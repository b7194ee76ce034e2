// The commands of a chat that keep, bring back and take back what was said.
#include "apps/chat.h"
#include "apps/output_file.h"
#include "loader/json.h"
#include "loader/mapped_file.h"

namespace pinion {
namespace {

void drop_last_message(Chat& chat) { chat.conversation.messages.erase(chat.conversation.messages.size() - 1); }

bool ends_with_role(const Chat& chat, const char* role) {
  const OrderedJson& messages = chat.conversation.messages;
  return !messages.empty() && messages.back()["role"] == role;
}

Error write_messages(const Chat& chat, const std::string& path) {
  const std::string text = chat.conversation.messages.dump(1) + "\n";
  OutputFile file;
  if (Error e = file.open(path)) return e;
  if (Error e = file.write(text.data(), text.size())) return e;
  return file.finish();
}

Error read_messages(const std::string& path, OrderedJson* out) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  std::string text;
  if (Error e = read_text_file(path, kMostBytes, &text)) return e;
  return parse_ordered_json(text, path, out);
}

// The cache is filled at once, so that the next question waits for its own tokens only.
Error evaluate_conversation(Chat& chat) {
  Prompt prompt;
  if (Error e = encode_conversation(chat, &prompt)) return e;
  GenerateResult result;
  const GenerateOptions nothing{.max_tokens = 0, .sampler = chat.sampler, .hash_logits = false};
  if (Error e = generate(*chat.session, prompt.ids, nothing, [](int32_t) { return true; }, &result)) return e;
  chat.last = std::move(result);
  return {};
}

}  // namespace

void save_conversation(Chat& chat, const std::string& file) {
  if (file.empty()) return note("/save wants a file");
  if (Error e = write_messages(chat, file)) note(e.message());
}

void load_conversation(Chat& chat, const std::string& file) {
  if (file.empty()) return note("/load wants a file");
  Conversation before = chat.conversation;
  chat.conversation.add_generation_prompt = false;
  Error e = read_messages(file, &chat.conversation.messages);
  if (!e) e = evaluate_conversation(chat);
  if (e) {
    note(e.message());
    chat.conversation = std::move(before);
    return;
  }
  chat.conversation.add_generation_prompt = true;
  print("loaded " + std::to_string(chat.conversation.messages.size()) + " messages\n");
}

void regenerate_answer(Chat& chat, const std::string&) {
  if (!ends_with_role(chat, "assistant")) return note("there is no answer to do again");
  const OrderedJson answer = chat.conversation.messages.back();
  drop_last_message(chat);
  if (Error e = answer_last_message(chat)) {
    note(e.message());
    chat.turn_failed = true;
    chat.conversation.messages.push_back(answer);
  }
}

void undo_turn(Chat& chat, const std::string&) {
  const OrderedJson before = chat.conversation.messages;
  while (!chat.conversation.messages.empty() && !ends_with_role(chat, "user")) drop_last_message(chat);
  if (chat.conversation.messages.empty()) {
    chat.conversation.messages = before;
    return note("there is no question to take back");
  }
  drop_last_message(chat);
}

}  // namespace pinion
