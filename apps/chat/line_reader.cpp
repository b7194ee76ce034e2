#include "apps/chat/line_reader.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "apps/cli/console.h"
#include "loader/files/user_folders.h"

namespace pinion {
namespace {

constexpr int kHistoryLines = 1000;

// libedit edits characters, not bytes, only in a UTF-8 locale.
void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

constexpr mode_t kPrivate = S_IRUSR | S_IWUSR;  // what people ask is nobody else's business

// The history file, made if need be. Empty: there is no place.
std::string private_history_file() {
  const std::string folder = default_state_folder();
  if (folder.empty()) return {};
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  const std::string path = folder + "/history";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kPrivate);
  if (file < 0) return {};
  const bool is_private = fchmod(file, kPrivate) == 0;
  close(file);
  return is_private ? std::filesystem::canonical(path, failure).string() : std::string();
}

// Cuts a file only once it is twice too long, since what another chat appends meanwhile is lost. What is no history, an
// empty file say, becomes one.
void load_history(History* lines, const std::string& path) {
  HistEvent event;
  const int count = history(lines, &event, H_LOAD, path.c_str());
  if (count >= 0 && count <= 2 * kHistoryLines) return;
  const std::string partial = path + ".partial." + std::to_string(getpid());
  const bool is_saved = history(lines, &event, H_SAVE, partial.c_str()) >= 0;  // which makes it private
  if (!is_saved || std::rename(partial.c_str(), path.c_str()) != 0) std::remove(partial.c_str());
}

// As a history of one line: a signal can lose no other, and those of other chats stay.
void append_to_history(const std::string& path, const std::string& typed) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kPrivate);
  if (descriptor < 0) return;
  std::FILE* file = fdopen(descriptor, "a");
  History* line = history_init();
  HistEvent event;
  history(line, &event, H_SETSIZE, 1);
  history(line, &event, H_ENTER, typed.c_str());
  std::fseek(file, 0, SEEK_END);  // at 0 libedit begins with the line that marks a history
  history(line, &event, H_SAVE_FP, file);
  history_end(line);
  std::fclose(file);
}

// While a line is edited the terminal does not echo, and a shell that comes back to it may leave it so.
termios terminal_before;

// Not where the terminal is lent to somebody else: a shell that ended us in the background, say.
void restore_terminal(int signal) {
  if (tcgetpgrp(STDIN_FILENO) == getpgrp()) tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
  raise(signal);
}

void restore_terminal_on_signals() {
  if (tcgetattr(STDIN_FILENO, &terminal_before) != 0) return;
  for (const int signal : {SIGHUP, SIGQUIT, SIGTERM}) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action.sa_handler = restore_terminal;
    action.sa_flags = SA_RESETHAND;  // so that raising it again ends the program
    sigaction(signal, &action, nullptr);
  }
}

LineReader& reader_of(EditLine* editor) {
  void* reader = nullptr;
  el_get(editor, EL_CLIENTDATA, &reader);
  return *static_cast<LineReader*>(reader);
}

const char* prompt_of(EditLine* editor) { return reader_of(editor).prompt().c_str(); }

unsigned char cancel_line(EditLine* editor, int) {
  reader_of(editor).cancel();
  print("^C\n");
  return CC_NEWLINE;
}

}  // namespace

LineReader::LineReader(std::string prompt) : prompt_(std::move(prompt)) {
  if (!on_terminal(STDIN_FILENO) || !on_terminal(STDOUT_FILENO)) return;
  use_utf8_locale();
  restore_terminal_on_signals();
  editor_ = el_init("pinion", stdin, stdout, stderr);
  if (!editor_) return;
  el_set(editor_, EL_CLIENTDATA, this);
  el_set(editor_, EL_PROMPT, prompt_of);
  el_set(editor_, EL_EDITOR, "emacs");
  // Ctrl-C as a key while a line is edited: as a signal it would only interrupt the read.
  el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
  // The wide call: of narrow strings libedit makes copies that it never frees.
  el_wset(editor_, EL_ADDFN, L"cancel-line", L"Leaves the line and those before that belong to it", cancel_line);
  el_set(editor_, EL_BIND, "^C", "cancel-line", nullptr);
  history_ = history_init();
  if (!history_) return;
  HistEvent event;
  history(history_, &event, H_SETSIZE, kHistoryLines);
  history(history_, &event, H_SETUNIQUE, 1);
  history_path_ = private_history_file();
  if (!history_path_.empty()) load_history(history_, history_path_);
  el_set(editor_, EL_HIST, history, history_);
}

LineReader::~LineReader() {
  if (history_) history_end(history_);
  if (editor_) el_end(editor_);
}

void LineReader::remember(const std::string& typed) {
  if (!history_ || typed.empty()) return;
  HistEvent event;
  const bool is_new = history(history_, &event, H_ENTER, typed.c_str()) > 0;  // not the last one again
  if (is_new && !history_path_.empty()) append_to_history(history_path_, typed);
}

std::optional<std::string> LineReader::read() {
  std::string line;
  if (!editor_) {
    if (!read_line(&line, &failure_)) return {};
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }
  int count = 0;
  is_cancelled_ = false;
  const char* text = el_gets(editor_, &count);
  if (is_cancelled_) return line;
  if (!text || count <= 0) {
    print("\n");
    return {};
  }
  line = text;
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  return line;
}

std::optional<std::string> LineReader::read_more() {
  is_more_ = true;
  std::optional<std::string> line = read();
  is_more_ = false;
  return line;
}

}  // namespace pinion
