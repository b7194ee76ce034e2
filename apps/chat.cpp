// pinion chat: a conversation by the folder's own template. Each turn renders all of it; the session evaluates only
// what its cache does not hold yet.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>

#include "apps/commands.h"
#include "apps/line_reader.h"
#include "apps/machine.h"
#include "engine/generate.h"
#include "engine/memory.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace pinion {
namespace {

struct Options {
  RunOptions run;
  SamplingFlags sampling;
  std::string system;
  int64_t max_tokens = 0;  // 0: until the context is full
  int64_t context = 0;     // 0: the model's, up to kDefaultContext
};

// A cache for a context of 128k can take more memory than the weights, and few conversations get there.
constexpr int64_t kDefaultContext = 8192;

struct Chat {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;
  SamplerOptions sampler;
  int64_t max_tokens = 0;
  Runtime runtime;
  std::unique_ptr<Session> session;

  std::vector<Message> messages;
  GenerateResult last;  // of the turn before
};

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

void stop_answers_on_interrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = true; };
  sigaction(SIGINT, &action, nullptr);
}

// The system message alone starts the conversation. A template may refuse that role.
Error restart(Chat& chat, const std::string& system) {
  std::vector<Message> messages;
  if (!system.empty()) messages.push_back({"system", system});
  std::vector<Message> trial = messages;
  trial.push_back({"user", "Hello"});
  std::string text;
  if (Error e = render(*chat.chat_template, trial, true, &text)) return e;
  chat.messages = messages;
  return {};
}

Error encode_conversation(const Chat& chat, std::vector<int32_t>* out) {
  std::string text;
  if (Error e = render(*chat.chat_template, chat.messages, true, &text)) return e;
  // Templates write BOS themselves where the model wants one.
  *out = encode(*chat.tokenizer, text, {.add_special = false});
  const int64_t capacity = chat.session->cache.capacity;
  if (std::ssize(*out) < capacity) return {};
  return error("the conversation no longer fits; /reset starts a new one", "context",
               "fewer than " + std::to_string(capacity) + " tokens", std::to_string(out->size()));
}

Error answer_last_message(Chat& chat) {
  std::vector<int32_t> ids;
  if (Error e = encode_conversation(chat, &ids)) return e;
  GenerateOptions options;
  options.max_tokens = chat.max_tokens > 0 ? chat.max_tokens : chat.session->cache.capacity;
  options.sampler = chat.sampler;
  options.hash_logits = false;
  chat.sampler.seed += 1;  // or the same question would always get the same answer
  StreamDecoder decoder(chat.tokenizer);
  interrupted = false;
  const auto on_token = [&](int32_t id) {
    print(decoder.put(id));
    return !interrupted;
  };
  GenerateResult result;
  if (Error e = generate(*chat.session, ids, options, on_token, &result)) return e;
  print(decoder.finish() + "\n");
  if (result.finish_reason == FinishReason::context) note("the context is full; /reset starts a new conversation");
  chat.messages.push_back({"assistant", decode(*chat.tokenizer, result.ids)});
  chat.last = std::move(result);
  return {};
}

void take_turn(Chat& chat, const std::string& text) {
  chat.messages.push_back({"user", text});
  if (Error e = answer_last_message(chat)) {
    note(e.message());
    chat.messages.pop_back();
  }
}

void reset(Chat& chat, const std::string&) {
  const bool has_system = !chat.messages.empty() && chat.messages.front().role == "system";
  chat.messages.resize(has_system ? 1 : 0);
}

void set_system(Chat& chat, const std::string& argument) {
  if (Error e = restart(chat, argument)) note(e.message());
}

void show_stats(Chat& chat, const std::string&) {
  const GenerateResult& last = chat.last;
  std::array<char, 256> text;
  std::snprintf(text.data(), text.size(),
                "prefilled %lld tokens at %s/s, reused %lld, generated %zu at %s/s, context %zu of %lld, peak %s\n",
                static_cast<long long>(last.prefilled_tokens),
                rate_text(static_cast<double>(last.prefilled_tokens), last.prefill_seconds).c_str(),
                static_cast<long long>(last.reused_tokens), last.ids.size(),
                rate_text(static_cast<double>(last.decode_passes), last.decode_seconds).c_str(),
                chat.session->ids.size(), static_cast<long long>(chat.session->cache.capacity),
                bytes_text(static_cast<double>(peak_rss_bytes())).c_str());
  print(text.data());
  const auto snapshots = static_cast<double>(snapshot_bytes(*chat.session));
  if (snapshots > 0) print("snapshots of the recurrent state " + bytes_text(snapshots) + "\n");
}

struct ChatCommand {
  const char* name;
  const char* help;
  void (*run)(Chat&, const std::string& argument);
};

constexpr ChatCommand kChatCommands[] = {
    {"/reset", "forgets the conversation, keeps the system message", reset},
    {"/system", "with a TEXT: sets the system message (without: none) and starts a new conversation", set_system},
    {"/stats", "figures of the last answer", show_stats},
};

void show_help() {
  for (const ChatCommand& command : kChatCommands) print(std::string(command.name) + "\t" + command.help + "\n");
  print("/quit\tends the program, as Ctrl-D does; Ctrl-C stops an answer\n");
}

void run_command(Chat& chat, const std::string& line) {
  const size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  const size_t begin = line.find_first_not_of(' ', space);
  const std::string argument = begin == std::string::npos ? "" : line.substr(begin);
  if (name == "/help") return show_help();
  const auto command = std::ranges::find(kChatCommands, name, &ChatCommand::name);
  if (command == std::end(kChatCommands)) return note("unknown command " + name + "; /help lists them");
  command->run(chat, argument);
}

Error open_chat(const Options& options, Chat* out) {
  const std::string& folder = options.run.model;
  if (Error e = check_folder(folder)) return e;
  if (Error e = load_chat_template(folder, &out->chat_template)) return e;
  if (!out->chat_template) return error("no chat template; `pinion generate` continues plain text", folder);
  if (Error e = load_tokenizer(folder, &out->tokenizer)) return e;
  if (Error e = sampler_options(folder, options.sampling, &out->sampler)) return e;
  if (Error e = restart(*out, options.system)) return e;
  out->max_tokens = options.max_tokens;
  if (Error e = open_runtime(options.run, &out->runtime)) return e;
  const int64_t context = options.context > 0 ? options.context : kDefaultContext;
  return open_session(out->runtime, options.run, context, &out->session);
}

int run(const Options& options) {
  Chat chat;
  if (Error e = open_chat(options, &chat)) return fail(e);
  LineReader reader("> ");
  if (reader.interactive()) {
    stop_answers_on_interrupt();
    print(chat.runtime.model->config.architecture + ", " + std::to_string(chat.runtime.model->parameters / 1000) +
          "k parameters, " + options.run.quant + "; /help lists commands\n");
  }
  while (std::optional<std::string> line = reader.read()) {
    line->erase(line->find_last_not_of(" \t\r") + 1);
    if (*line == "/quit") break;
    if (line->starts_with('/')) {
      run_command(chat, *line);
    } else if (!line->empty()) {
      take_turn(chat, *line);
    }
  }
  return kSuccess;
}

}  // namespace

Run setup_chat(CLI::App& app) {
  auto options = std::make_shared<Options>();
  add_run_options(app, &options->run);
  app.add_option("--system", options->system, "The system message")->type_name("TEXT");
  app.add_option("--max-tokens", options->max_tokens,
                 "Tokens of an answer at most (default: until the context is full)")
      ->check(in_range(1, 1 << 30))
      ->type_name("N");
  app.add_option("--context", options->context, "Tokens the conversation may have (default: the model's, up to 8192)")
      ->check(in_range(1, 1 << 30))
      ->type_name("N");
  add_sampling_options(app, &options->sampling);
  return [options] { return run(*options); };
}

}  // namespace pinion
