// pinion chat: a conversation in the format of the folder's chat template. Each turn renders the whole conversation;
// the session evaluates only the tokens that its cache lacks.
#include <algorithm>

#include "apps/chat/chat.h"
#include "apps/chat/terminal.h"
#include "apps/cli/boards.h"
#include "apps/cli/console.h"
#include "apps/commands.h"
#include "engine/team/memory.h"
#include "loader/files/hints.h"

namespace pinion {
namespace {

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
  const size_t used = chat.session->sequence.ids.size();
  const auto capacity = static_cast<size_t>(chat.session->sequence.cache.capacity);
  std::string text;
  const auto add = [&](const char* name, const std::string& figures) { text += std::string(name) + figures + "\n"; };
  add("prompt   ", std::to_string(last.prefilled_tokens) + " tokens at " +
                       rate_text(static_cast<double>(last.prefilled_tokens), last.prefill_seconds) + "/s, " +
                       std::to_string(last.reused_tokens) + " reused");
  add("answer   ", std::to_string(last.ids.size()) + " tokens at " +
                       rate_text(static_cast<double>(decoded_tokens(last)), last.decode_seconds) + "/s");
  if (chat.drafting.speculates) {
    add("drafts   ", std::to_string(last.accepted) + " of " + std::to_string(last.drafted) + " accepted, " +
                         rate_text(static_cast<double>(decoded_tokens(last)), static_cast<double>(last.decode_passes)) +
                         " tokens a pass");
  }
  add("context  ", std::to_string(used) + " of " + std::to_string(capacity) + " tokens, " +
                       std::to_string(used * 100 / capacity) + " %");
  const auto snapshots = static_cast<double>(snapshot_bytes(chat.session->snapshots));
  add("memory   ", bytes_text(static_cast<double>(peak_rss_bytes())) + " at most" +
                       (snapshots > 0 ? ", " + bytes_text(snapshots) + " of snapshots of the recurrent state" : ""));
  print(text);
}

struct ChatCommand {
  const char* name;
  const char* help;
  void (*run)(Chat&, const std::string& argument);
};

constexpr ChatCommand kChatCommands[] = {
    {"/reset", "forgets the conversation, keeps the system message", reset},
    {"/system", "TEXT: sets the system message, or removes it without TEXT, and starts a new conversation", set_system},
    {"/regen", "answers the last question again", regenerate_answer},
    {"/continue", "goes on with the last answer", continue_answer},
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
  const SessionNeeds needs = {.capacity = context, .keeps_hidden = needs_hidden(options.speculate)};
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

void report_failure(Chat& chat, const std::string& message) {
  warn(message);
  chat.failed = true;
}

Run setup_chat(Command app) {
  auto options = std::make_shared<ChatOptions>();
  add_run_options(app, &options->run);
  app.add_option("--system TEXT", options->system, "System message");
  app.add_number("-n,--max-tokens N", options->max_tokens, -1, 1 << 30,
                 "Maximum number of tokens of an answer (default, or -1: until the context is full)");
  app.add_number("-c,--context N", options->context, 1, 1 << 30,
                 "Maximum number of tokens of the conversation (default: the model's context, or what fits in half "
                 "of the free memory)");
  app.add_choice("--overflow WHAT", kOverflowNames, options->overflow,
                 "When the context is full, drop the oldest turns (default), or stop until /reset");
  add_prompt_cache_option(app, &options->prompt_cache);
  add_stop_option(app, &options->stops);
  add_speculate_option(app, &options->speculate);
  app.add_flag("--no-thinking", options->no_thinking, "Set the template's variable enable_thinking to false");
  app.add_flag("--hide-thinking", options->hide_thinking, "Show one line instead of the model's thoughts");
  add_sampling_options(app, &options->sampling);
  add_quiet_option(app, &options->quiet);
  return {[options] { return run_chat(*options); }, {&options->run}};
}

}  // namespace pinion
