// pinion chat: each turn renders the whole conversation; the session evaluates only the tokens that its cache lacks.
#include "apps/chat/chat.h"

#include <sys/stat.h>
#include <unistd.h>

#include "apps/chat/terminal.h"
#include "apps/cli/boards.h"
#include "apps/cli/output_file.h"
#include "apps/cli/turns.h"
#include "engine/session/session_image.h"
#include "engine/team/memory.h"
#include "loader/files/hints.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

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
  if (!path_exists(path)) return false;
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

// Evaluates up to the beginning of the last answer: the next prompt may differ there, without this answer's thoughts.
Error evaluate_last_question(Chat& chat) {
  if (!ends_with_role(chat.conversation.messages, "assistant") || chat.conversation.messages.size() == 1) return {};
  const OrderedJson answer = chat.conversation.messages.back();
  drop_last_message(chat);
  Prompt prompt;
  Error e = encode_conversation(chat, &prompt);
  if (!e) e = evaluate_prompt(chat, prompt);
  chat.conversation.messages.push_back(answer);
  return e;
}

// Answers the last question again, or goes on with its answer.
template <bool continues>
void answer_again(Chat& chat, const std::string&) {
  const OrderedJson before = chat.conversation.messages;
  if (!ends_with_role(before, "assistant") || !find_text(before.back(), "content")) {
    return report_failure(chat, "there is no answer to " + std::string(continues ? "continue" : "regenerate"));
  }
  if (!continues) drop_last_message(chat);
  chat.conversation.continue_final_message = continues;
  answer_or_restore(chat, before);
  chat.conversation.continue_final_message = false;
}

// --- Commands that begin with /. On failure they print a message and change nothing.

void save_conversation(Chat& chat, const std::string& file) {
  if (file.empty()) return report_failure(chat, "/save wants a file");
  OutputFile out;
  Error e = out.open(file);
  if (!e) e = out.finish(chat.conversation.messages.dump(1) + "\n");
  if (!e && out.is_ordinary()) {  // a device or pipe gets no cache file
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

void undo_turn(Chat& chat, const std::string&) {
  const OrderedJson before = chat.conversation.messages;
  OrderedJson& messages = chat.conversation.messages;
  while (!messages.empty() && !ends_with_role(messages, "user")) drop_last_message(chat);
  if (messages.empty()) {
    messages = before;
    return report_failure(chat, "there is no question to undo");
  }
  drop_last_message(chat);
  chat.session_is_ahead = true;
}

// Starts a conversation with the system message only. Fails if the template refuses that role.
Error restart(Chat& chat, const std::string& system) {
  Conversation fresh{.variables = chat.conversation.variables};
  if (!system.empty()) add_message("system", system, &fresh);
  Conversation trial = fresh;
  add_message("user", "Hello", &trial);
  std::string text;
  std::vector<std::string> mended;
  if (Error e = render(*chat.chat_template, trial, &text, &mended)) return e;
  if (!mended.empty()) note("mended for this model's chat template: " + joined(mended));
  chat.conversation = std::move(fresh);
  chat.session_is_ahead = true;
  return {};
}

void reset(Chat& chat, const std::string&) {
  OrderedJson& messages = chat.conversation.messages;
  const bool has_system = !messages.empty() && messages.front()["role"] == "system";
  messages = has_system ? OrderedJson::array({messages.front()}) : OrderedJson::array();
  chat.session_is_ahead = true;
}

void set_system(Chat& chat, const std::string& argument) {
  const Conversation before = chat.conversation;
  Error e = restart(chat, argument);
  if (!e) e = check_system_message(chat);
  if (!e) return;
  report_failure(chat, e.message());
  chat.conversation = before;
}

void show_stats(Chat& chat, const std::string&) {
  const GenerateResult& last = chat.last;
  const auto decoded = static_cast<double>(decoded_tokens(last));
  print_report({{"prompt_tokens", last.prefilled_tokens},
                {"prompt_rate", rate_text(static_cast<double>(last.prefilled_tokens), last.prefill_seconds)},
                {"reused_tokens", last.reused_tokens},
                {"tokens", last.ids.size()},
                {"rate", rate_text(decoded, last.decode_seconds)},
                {"has_drafts", chat.drafting.speculates},
                {"accepted", last.accepted},
                {"drafted", last.drafted},
                {"tokens_per_pass", rate_text(decoded, static_cast<double>(last.decode_passes))},
                {"used", chat.session->sequence.ids.size()},
                {"capacity", chat.session->sequence.cache.capacity},
                {"memory", bytes_text(static_cast<double>(peak_rss_bytes()))},
                {"snapshot_bytes", snapshot_bytes(chat.session->snapshots)},
                {"snapshots", bytes_text(static_cast<double>(snapshot_bytes(chat.session->snapshots)))}},
               false, "chat_stats");
}

struct ChatCommand {
  const char* name;
  const char* help;
  void (*run)(Chat&, const std::string& argument);
};

constexpr ChatCommand kChatCommands[] = {
    {"/reset", "forgets the conversation, keeps the system message", reset},
    {"/system", "TEXT: sets the system message, or removes it without TEXT, and starts a new conversation", set_system},
    {"/regen", "answers the last question again", answer_again<false>},
    {"/continue", "goes on with the last answer", answer_again<true>},
    {"/undo", "removes the last question and its answer", undo_turn},
    {"/save", "FILE: writes the conversation as JSON, and the model's cache of it to FILE.cache", save_conversation},
    {"/load", "FILE: continues a saved conversation", load_conversation},
    {"/stats", "prints figures of the last answer", show_stats},
};

void show_help() {
  std::string text;
  for (const ChatCommand& command : kChatCommands) text += std::string(command.name) + "\t" + command.help + "\n";
  text += "/quit\tends the program, as Ctrl-D does; Ctrl-C stops an answer, and discards the line being typed\n";
  text += "A line that ends in \\ continues in the next one; \"\"\" begins and ends several lines.\n";
  print(WordWrap(terminal_columns()).put(text));
}

void run_command(Chat& chat, const std::string& line) {
  const size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  if (name == "/help") return show_help();
  const auto command = std::ranges::find(kChatCommands, name, &ChatCommand::name);
  if (command != std::end(kChatCommands)) {
    return command->run(chat, line.substr(std::min(line.find_first_not_of(' ', space), line.size())));
  }
  std::vector<std::string> names = {"/help", "/quit"};
  for (const ChatCommand& known : kChatCommands) names.emplace_back(known.name);
  report_failure(chat, "unknown command " + name + did_you_mean(name, names) + " (/help lists them)");
}

Error open_chat(Chat* out) {
  const ChatOptions& options = out->options;
  const std::string& folder = options.run.model;
  if (Error e = check_model_folder(folder)) return e;
  if (Error e = check_speculation(options.speculate, options.run)) return e;
  if (Error e = load_chat_template(folder, &out->chat_template)) return e;
  if (!out->chat_template) return error("no chat template; `pinion generate` continues plain text", folder);
  if (Error e = load_model_tokenizer(folder, &out->tokenizer)) return e;
  if (Error e = sampler_options(folder, options.sampling, &out->sampler)) return e;
  if (Error e = find_dry_breakers(options.sampling, out->tokenizer.get(), &out->sampler)) return e;
  if (options.no_thinking) out->conversation.variables["enable_thinking"] = false;
  if (Error e = restart(*out, options.system)) return e;
  if (Error e = open_with_progress(options.run, out->tokenizer.get(), &out->runtime)) return e;
  const int64_t context = options.context > 0 ? options.context : fitting_context(out->runtime);
  const SchedulerOptions needs = {.context = context, .keeps_hidden = needs_hidden(options.speculate)};
  if (Error e = open_session(out->runtime, needs, &out->session)) return e;
  if (Error e = open_prompt_cache(options.prompt_cache, *out->session, out->session->sequence.state)) return e;
  const int64_t capacity = out->session->sequence.cache.capacity;
  if (options.context > capacity) note_smaller_context(options.context, capacity);
  if (Error e = check_system_message(*out)) return e;
  Session* session = out->session.get();
  if (Error e = begin_speculation(options.speculate, options.run, out->runtime, session, &out->drafting)) return e;
  session->speculates = out->drafting.speculates;
  return {};
}

int run_chat(const ChatOptions& options) {
  if (options.quiet) set_quiet();
  Chat chat{options};
  save_when_board_lost([backup = chat.backup] { return backup->save(); });
  if (Error e = open_chat(&chat)) return fail(e);
  LineReader reader("> ");
  chat.interactive = reader.interactive();
  if (chat.interactive) stop_answers_on_interrupt(chat.session.get());
  if (chat.interactive && !options.quiet) {
    WordWrap wrap(terminal_columns());
    print(wrap.put(chat.runtime.model->config.architecture + ", " +
                   std::to_string(count_parameters(chat.runtime.model->config).all / 1000) + "k parameters, " +
                   mode_text(options.run) + "; /help lists commands\n"));
  }
  while (const std::optional<ChatEntry> input = read_entry(reader)) {
    if (input->is_command && input->text == "/quit") break;
    clear_interrupt();
    if (input->is_command) {
      run_command(chat, input->text);
    } else if (!input->text.empty()) {
      const OrderedJson before = chat.conversation.messages;
      add_message("user", input->text, &chat.conversation);
      answer_or_restore(chat, before);
    }
  }
  if (chat.interactive) end_on_interrupt();
  if (reader.failure()) return fail(reader.failure());
  return chat.failed && !chat.interactive ? kFailure : kSuccess;
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
  const auto path = folder + "/lost-" + std::to_string(std::time(nullptr)) + "-" + std::to_string(getpid()) + ".json";
  Error e = folder.empty() ? error("no folder for the conversation", "chat", "HOME or XDG_STATE_HOME") : Error{};
  if (!e) e = make_folder(folder);
  umask(S_IRWXG | S_IRWXO);  // questions are private; the program is about to end, so the umask need not be restored
  if (!e) e = write_output_file(path, messages.dump(1) + "\n");
  return e ? "the conversation is lost, too: " + e.message() : "the conversation is in " + path + ", for /load";
}

void report_failure(Chat& chat, const std::string& message) {
  warn(message);
  chat.failed = true;
}

Run setup_chat(Command app) {
  auto options = std::make_shared<ChatOptions>();
  add_run_options(app, &options->run);
  app.add_option("--system TEXT", options->system);
  app.add_number("-n,--max-tokens N", options->max_tokens, -1, 1 << 30);
  app.add_number("-c,--context N", options->context, 1, 1 << 30);
  app.add_choice("--overflow WHAT", kOverflowNames, options->overflow);
  add_prompt_cache_option(app, &options->prompt_cache);
  add_stop_option(app, &options->stops);
  add_speculate_option(app, &options->speculate);
  app.add_flag("--no-thinking", options->no_thinking);
  app.add_flag("--hide-thinking", options->hide_thinking);
  add_sampling_options(app, &options->sampling);
  app.add_flag("--quiet", options->quiet);
  return {[options] { return run_chat(*options); }, {&options->run}};
}

}  // namespace pinion
