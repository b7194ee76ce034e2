#include "apps/chat/terminal.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <utility>

#include "apps/cli/console.h"
#include "apps/cli/output_file.h"
#include "loader/checkpoint/model_folder.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

constexpr int kHistoryLines = 1000;

constexpr mode_t kOwnerOnly = S_IRUSR | S_IWUSR;  // questions are private

// Creates the history file if needed. Empty: the user has no folder for it.
std::string private_history_file() {
  const std::string folder = default_state_folder();
  if (folder.empty() || make_folder(folder)) return {};
  std::error_code failure;
  const std::string path = folder + "/history";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kOwnerOnly);
  if (file < 0) return {};
  const bool is_private = fchmod(file, kOwnerOnly) == 0;
  close(file);
  return is_private ? std::filesystem::canonical(path, failure).string() : std::string();
}

// Cuts a file only when it is twice too long: lines appended meanwhile are lost. Any other file becomes a history.
void load_history(History* lines, const std::string& path) {
  HistEvent event;
  const int count = history(lines, &event, H_LOAD, path.c_str());
  if (count >= 0 && count <= 2 * kHistoryLines) return;
  const std::string partial = path + ".partial." + std::to_string(getpid());
  const bool is_saved = history(lines, &event, H_SAVE, partial.c_str()) >= 0;  // creates it with mode 0600
  if (!is_saved || std::rename(partial.c_str(), path.c_str()) != 0) std::remove(partial.c_str());
}

// Appends a history of one line to the file: a signal cannot lose other lines, and those of other chats stay.
void append_to_history(const std::string& path, const std::string& typed) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kOwnerOnly);
  if (descriptor < 0) return;
  std::FILE* file = fdopen(descriptor, "a");
  History* line = history_init();
  HistEvent event;
  history(line, &event, H_SETSIZE, 1);
  history(line, &event, H_ENTER, typed.c_str());
  std::fseek(file, 0, SEEK_END);  // at offset 0 libedit would write the header of a history file
  history(line, &event, H_SAVE_FP, file);
  history_end(line);
  std::fclose(file);
}

// The terminal does not echo while a line is edited, and not every shell restores that.
termios terminal_before;

// Does nothing in the background, where the terminal belongs to another process, such as a shell that ended this one.
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
    action.sa_flags = SA_RESETHAND;  // raising the signal again ends the program
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

constexpr std::string_view kQuotes = "\"\"\"";

bool is_block(std::string_view typed) { return typed.starts_with(kQuotes); }
bool is_closed_block(std::string_view typed) { return typed.size() >= 2 * kQuotes.size() && typed.ends_with(kQuotes); }

bool is_incomplete(std::string_view typed) { return is_block(typed) ? !is_closed_block(typed) : typed.ends_with('\\'); }

std::string text_of_block(std::string_view typed) {
  const bool is_closed = is_closed_block(typed);  // false if the input ended before
  typed.remove_prefix(kQuotes.size());
  if (is_closed) typed.remove_suffix(kQuotes.size());
  if (typed.starts_with('\n')) typed.remove_prefix(1);
  return std::string(typed);
}

// Removes the backslashes that continue a line.
std::string text_of_lines(std::string typed) {
  for (size_t at; (at = typed.find("\\\n")) != std::string::npos;) typed.erase(at, 1);
  if (typed.ends_with('\\')) typed.back() = '\n';
  return typed;
}

}  // namespace

LineReader::LineReader(std::string prompt) : prompt_(std::move(prompt)) {
  if (!on_terminal(STDIN_FILENO) || !on_terminal(STDOUT_FILENO)) return;
  std::setlocale(LC_CTYPE, "");
  // libedit edits whole characters instead of bytes only in a UTF-8 locale.
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
  restore_terminal_on_signals();
  editor_ = el_init("pinion", stdin, stdout, stderr);
  if (!editor_) return;
  el_set(editor_, EL_CLIENTDATA, this);
  el_set(editor_, EL_PROMPT, prompt_of);
  el_set(editor_, EL_EDITOR, "emacs");
  // Ctrl-C is a key while a line is edited; as a signal it would only interrupt the read.
  el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
  // The wide version: libedit never frees its copies of narrow strings.
  el_wset(editor_, EL_ADDFN, L"cancel-line", L"Discards the entry that is being typed", cancel_line);
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
  const bool is_new = history(history_, &event, H_ENTER, typed.c_str()) > 0;  // differs from the last one
  if (is_new && !history_path_.empty()) append_to_history(history_path_, typed);
}

std::optional<std::string> LineReader::read(bool is_continuation) {
  std::string line;
  if (!editor_) {
    if (!read_line(&line, &failure_)) return {};
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }
  int count = 0;
  is_cancelled_ = false;
  is_continuation_ = is_continuation;
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

std::optional<ChatEntry> read_entry(LineReader& reader) {
  std::optional<std::string> typed = reader.read();
  if (!typed) return {};
  while (!reader.cancelled() && is_incomplete(*typed)) {
    const std::optional<std::string> line = reader.read(true);
    if (!line && reader.failure()) return {};
    if (!line) break;
    *typed += "\n" + *line;
  }
  if (reader.cancelled()) return ChatEntry{};
  reader.remember(*typed);
  ChatEntry entry = {is_block(*typed) ? text_of_block(*typed) : text_of_lines(*typed), typed->starts_with('/')};
  entry.text.erase(entry.text.find_last_not_of(" \t\r\n") + 1);
  return entry;
}

std::string WordWrap::flush() {
  if (word_.text.empty()) return {};
  const bool wraps = column_ > 0 && column_ + blanks_.columns + word_.columns > columns_;
  if (wraps) blanks_ = {.text = "\n"}, column_ = 0;
  column_ += blanks_.columns + word_.columns;
  return std::exchange(blanks_, {}).text + std::exchange(word_, {}).text;
}

std::string WordWrap::put(std::string_view text) {
  if (columns_ <= 0) return std::string(text);
  constexpr int64_t kTabColumns = 8;
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(text, &at);
    const std::string_view character = text.substr(begin, at - begin);
    const int64_t width = std::max(0, wcwidth(static_cast<wchar_t>(c)));
    const bool is_wide = width > 1;  // Chinese, Japanese and Korean text may break after any character
    const bool is_blank = c == ' ' || c == '\t';
    const bool is_too_long = c != '\n' && !is_blank && word_.columns + width > columns_;
    if (c == '\n' || is_blank || is_wide || is_too_long) out += flush();
    if (is_too_long) column_ = 0;  // the terminal itself breaks such a word, so that it can be copied as one
    if (c == '\n') {
      out += "\n";
      blanks_ = {}, column_ = 0;
    } else {
      Run& run = is_blank ? blanks_ : word_;
      run.text += character;
      run.columns += c == '\t' ? kTabColumns : width;
    }
    if (is_wide) out += flush();
  }
  return out;
}

}  // namespace pinion
