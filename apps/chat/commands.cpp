// The commands of a chat that keep, bring back and take back what was said.
#include <algorithm>
#include <filesystem>

#include "apps/chat/chat.h"
#include "apps/cli/output_file.h"
#include "engine/session/session_image.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"

namespace pinion {
namespace {

void drop_last_message(Chat& chat) { chat.conversation.messages.erase(chat.conversation.messages.size() - 1); }

bool ends_with_role(const Chat& chat, const char* role) {
  const OrderedJson& messages = chat.conversation.messages;
  if (!messages.is_array() || messages.empty() || !messages.back().contains("role")) return false;
  return messages.back()["role"] == role;
}

Error write_messages(const Chat& chat, const std::string& path, bool* is_ordinary) {
  const std::string text = chat.conversation.messages.dump(1) + "\n";
  OutputFile file;
  if (Error e = file.open(path)) return e;
  *is_ordinary = file.is_ordinary();
  if (Error e = file.write(text.data(), text.size())) return e;
  return file.finish();
}

Error read_messages(const std::string& path, OrderedJson* out) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  std::string text;
  if (Error e = read_text_file(path, kMostBytes, &text)) return e;
  return parse_ordered_json(text, path, out);
}

std::string cache_file(const std::string& file) { return file + ".cache"; }

// The conversation as it stands: no answer begins after it.
Error encode_as_it_stands(Chat& chat, Prompt* out, Error (*encode)(Chat&, Prompt*) = encode_conversation) {
  chat.conversation.add_generation_prompt = false;
  Error e = encode(chat, out);
  chat.conversation.add_generation_prompt = true;
  return e;
}

// Takes the session back to what it holds of this conversation: /undo and /reset leave more in it.
void forget_the_rest(Chat& chat) {
  if (!chat.took_back) return;
  Prompt prompt;
  const Error e = encode_as_it_stands(chat, &prompt);
  const std::vector<int32_t>& held = chat.session->sequence.ids;
  if (e || chat.conversation.messages.empty()) prompt.ids.clear();
  rewind(chat.session->sequence, common_prefix(held, prompt.ids));
}

// A conversation of which nothing is held has none.
Error write_cache(Session& session, const std::string& path) {
  if (session.sequence.ids.empty()) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    return {};
  }
  std::unique_ptr<SessionImage> image;
  if (Error e = make_image(session, &image)) return e;
  OutputFile file;
  if (Error e = file.open(path)) return e;
  for (const std::span<const std::byte> part : image->parts) {
    if (Error e = file.write(part.data(), part.size())) return e;
  }
  return file.finish();
}

// Whether there was one. Where it is of no use here a note says why.
bool read_cache(const std::string& path, Session* session) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return false;
  MappedFile file;
  Error e = map_file(path, &file);
  if (!e) e = restore_image(file.contents(), path, session);
  if (e) note(e.message() + "; the conversation is evaluated anew");
  return !e;
}

Error evaluate_prompt(Chat& chat, const Prompt& prompt) {
  return generate_for(chat, prompt, {.max_tokens = 0, .sampler = chat.sampler, .hash_logits = false},
                      [](int32_t) { return true; });
}

// Up to the last question as if it were to be answered: the next prompt may part from this one there, where the
// answer's thoughts are left out.
Error evaluate_last_question(Chat& chat) {
  if (!ends_with_role(chat, "assistant") || chat.conversation.messages.size() == 1) return {};
  const OrderedJson answer = chat.conversation.messages.back();
  drop_last_message(chat);
  Prompt prompt;
  Error e = encode_conversation(chat, &prompt);
  if (!e) e = evaluate_prompt(chat, prompt);
  chat.conversation.messages.push_back(answer);
  return e;
}

// The cache is filled at once, so that the next question waits for its own tokens only.
Error evaluate_conversation(Chat& chat) {
  Prompt prompt;
  if (Error e = encode_as_it_stands(chat, &prompt)) return e;
  return evaluate_prompt(chat, prompt);
}

}  // namespace

void save_conversation(Chat& chat, const std::string& file) {
  if (file.empty()) return complain(chat, "/save wants a file");
  bool is_ordinary = false;
  Error e = write_messages(chat, file, &is_ordinary);
  if (!e && is_ordinary) {  // what is not in a file of its own has no cache beside it
    forget_the_rest(chat);
    e = write_cache(*chat.session, cache_file(file));
  }
  if (e) complain(chat, e.message());
}

void load_conversation(Chat& chat, const std::string& file) {
  if (file.empty()) return complain(chat, "/load wants a file");
  OrderedJson before = chat.conversation.messages;
  chat.took_back = true;
  Error e = read_messages(file, &chat.conversation.messages);
  Prompt shortened;
  if (!e) e = encode_as_it_stands(chat, &shortened, fit_conversation);
  if (!e && !read_cache(cache_file(file), chat.session.get())) e = evaluate_last_question(chat);
  if (!e) e = evaluate_conversation(chat);
  if (e) {
    complain(chat, e.message());
    chat.conversation.messages = std::move(before);
    return;
  }
  chat.took_back = false;
  print("loaded " + std::to_string(chat.conversation.messages.size()) + " messages\n");
}

void regenerate_answer(Chat& chat, const std::string&) {
  if (!ends_with_role(chat, "assistant")) return complain(chat, "there is no answer to do again");
  const OrderedJson before = chat.conversation.messages;
  drop_last_message(chat);
  if (Error e = answer_last_message(chat)) {
    complain(chat, e.message());
    chat.conversation.messages = before;
  }
}

void undo_turn(Chat& chat, const std::string&) {
  const OrderedJson before = chat.conversation.messages;
  while (!chat.conversation.messages.empty() && !ends_with_role(chat, "user")) drop_last_message(chat);
  if (chat.conversation.messages.empty()) {
    chat.conversation.messages = before;
    return complain(chat, "there is no question to take back");
  }
  drop_last_message(chat);
  chat.took_back = true;
}

}  // namespace pinion
