// Commands of a chat that save, load, regenerate and undo, and the backup of an unfinished conversation.
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>

#include "apps/chat/chat.h"
#include "apps/cli/output_file.h"
#include "apps/cli/turns.h"
#include "engine/session/session_image.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"
#include "loader/files/user_folders.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

bool ends_with_role(const Chat& chat, const char* role) {
  const OrderedJson& messages = chat.conversation.messages;
  return messages.is_array() && !messages.empty() && has_role(messages.back(), role);
}

Error write_messages(const Chat& chat, const std::string& path, bool* is_ordinary) {
  OutputFile file;
  if (Error e = file.open(path)) return e;
  *is_ordinary = file.is_ordinary();
  return file.finish(chat.conversation.messages.dump(1) + "\n");
}

Error read_messages(const std::string& path, OrderedJson* out) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  std::string text;
  if (Error e = read_text_file(path, kMostBytes, &text)) return e;
  return parse_ordered_json(text, path, out);
}

// Encodes the conversation without the beginning of an answer after it.
Error encode_as_it_stands(Chat& chat, Prompt* out, Error (*encode)(Chat&, Prompt*) = encode_conversation) {
  chat.conversation.add_generation_prompt = false;
  Error e = encode(chat, out);
  chat.conversation.add_generation_prompt = true;
  return e;
}

// Removes tokens from the session that are no longer part of the conversation, as after /undo and /reset.
void rewind_to_conversation(Chat& chat) {
  if (!chat.session_is_ahead) return;
  Prompt prompt;
  const Error e = encode_as_it_stands(chat, &prompt);
  const std::vector<int32_t>& held = chat.session->sequence.ids;
  if (e || chat.conversation.messages.empty()) prompt.ids.clear();
  rewind(chat.session->sequence, common_prefix(held, prompt.ids));
}

// Removes the file if the session holds no tokens.
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

// Returns false without a usable cache; a note gives the reason if the file exists.
bool read_cache(const std::string& path, Session* session) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return false;
  MappedFile file;
  Error e = map_file(path, &file);
  if (!e) e = restore_image(file.contents(), path, session);
  if (e) note(e.message() + "; the conversation is evaluated again");
  return !e;
}

Error evaluate_prompt(Chat& chat, const Prompt& prompt) {
  return generate_for(chat, prompt, {.max_tokens = 0, .sampler = chat.sampler, .hash_logits = false},
                      [](int32_t) { return true; });
}

// Evaluates the conversation up to the last question, with the beginning of an answer. The next prompt may differ from
// there on, because templates remove an earlier answer's thoughts.
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

// Answers the last question again, or goes on with its answer.
void answer_again(Chat& chat, bool continues) {
  const OrderedJson before = chat.conversation.messages;
  const bool has_text = ends_with_role(chat, "assistant") && before.back().value("content", OrderedJson()).is_string();
  if (!has_text)
    return report_failure(chat, "there is no answer to " + std::string(continues ? "continue" : "regenerate"));
  if (!continues) drop_last_message(chat);
  chat.conversation.continue_final_message = continues;
  answer_or_restore(chat, before);
  chat.conversation.continue_final_message = false;
}

}  // namespace

void drop_last_message(Chat& chat) { chat.conversation.messages.erase(chat.conversation.messages.size() - 1); }

void ChatBackup::set(const OrderedJson& messages) {
  const std::lock_guard lock(mutex_);
  messages_ = messages;
  answer_.clear();
}

void ChatBackup::add(std::string_view text) {
  const std::lock_guard lock(mutex_);
  answer_ += text;
}

std::string ChatBackup::save() {
  const std::lock_guard lock(mutex_);
  if (messages_.empty()) return {};
  OrderedJson messages = messages_;
  if (!answer_.empty()) messages.push_back({{"role", "assistant"}, {"content", to_utf8(answer_)}});
  const std::string folder = default_state_folder();
  const std::string path =
      folder + "/lost-" + std::to_string(std::time(nullptr)) + "-" + std::to_string(getpid()) + ".json";
  Error e = folder.empty() ? error("no folder for the conversation", "chat", "HOME or XDG_STATE_HOME") : Error{};
  if (!e) e = make_folder(folder);
  umask(S_IRWXG | S_IRWXO);  // questions are private; the program is about to end, so the umask need not be restored
  if (!e) e = write_output_file(path, messages.dump(1) + "\n");
  return e ? "the conversation is lost, too: " + e.message() : "the conversation is in " + path + ", for /load";
}

void save_conversation(Chat& chat, const std::string& file) {
  if (file.empty()) return report_failure(chat, "/save wants a file");
  bool is_ordinary = false;
  Error e = write_messages(chat, file, &is_ordinary);
  if (!e && is_ordinary) {  // a device or pipe gets no cache file
    rewind_to_conversation(chat);
    e = write_cache(*chat.session, file + ".cache");
  }
  if (e) report_failure(chat, e.message());
}

void load_conversation(Chat& chat, const std::string& file) {
  if (file.empty()) return report_failure(chat, "/load wants a file");
  OrderedJson before = chat.conversation.messages;
  chat.session_is_ahead = true;
  Error e = read_messages(file, &chat.conversation.messages);
  Prompt prompt;
  if (!e) e = encode_as_it_stands(chat, &prompt, fit_conversation);
  if (!e && !read_cache(file + ".cache", chat.session.get())) e = evaluate_last_question(chat);
  if (!e) e = encode_as_it_stands(chat, &prompt);
  if (!e) e = evaluate_prompt(chat, prompt);  // now, so that the next question waits for its own tokens only
  if (e) {
    report_failure(chat, e.message());
    chat.conversation.messages = std::move(before);
    return;
  }
  chat.session_is_ahead = false;
  print("loaded " + std::to_string(chat.conversation.messages.size()) + " messages\n");
}

void regenerate_answer(Chat& chat, const std::string&) { answer_again(chat, false); }
void continue_answer(Chat& chat, const std::string&) { answer_again(chat, true); }

void undo_turn(Chat& chat, const std::string&) {
  const OrderedJson before = chat.conversation.messages;
  while (!chat.conversation.messages.empty() && !ends_with_role(chat, "user")) drop_last_message(chat);
  if (chat.conversation.messages.empty()) {
    chat.conversation.messages = before;
    return report_failure(chat, "there is no question to undo");
  }
  drop_last_message(chat);
  chat.session_is_ahead = true;
}

}  // namespace pinion
