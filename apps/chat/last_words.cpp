#include "apps/chat/last_words.h"

#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>

#include "apps/cli/output_file.h"
#include "loader/files/user_folders.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {

void LastWords::set(const OrderedJson& messages) {
  const std::lock_guard lock(mutex_);
  messages_ = messages;
  answer_.clear();
}

void LastWords::add(std::string_view text) {
  const std::lock_guard lock(mutex_);
  answer_ += text;
}

Error LastWords::save(std::string* path) {
  const std::lock_guard lock(mutex_);
  if (messages_.empty()) return {};
  OrderedJson messages = messages_;
  if (!answer_.empty()) messages.push_back({{"role", "assistant"}, {"content", to_utf8(answer_)}});
  const std::string folder = default_state_folder();
  if (folder.empty()) return error("no folder for what was said", "chat", "HOME or XDG_STATE_HOME");
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) return error("cannot make the folder", folder, {}, code.message());
  const std::string name =
      folder + "/lost-" + std::to_string(std::time(nullptr)) + "-" + std::to_string(getpid()) + ".json";
  umask(S_IRWXG | S_IRWXO);  // what people ask is nobody else's business; the program is about to end
  if (Error e = write_output_file(name, messages.dump(1) + "\n")) return e;
  *path = name;
  return {};
}

}  // namespace pinion
