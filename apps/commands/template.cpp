// pinion template: a conversation as the prompt that the folder's chat template makes of it.
#include "apps/commands.h"
#include "loader/files/json.h"
#include "tokenizer/templates/chat_template.h"
#include "tokenizer/tokens/tokenizer.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

struct Options {
  RunOptions run;
  std::string messages, tools;
  std::vector<std::string> variables;  // NAME=VALUE
  std::string name;
  bool no_generation_prompt = false;
  bool ids = false;
};

// "-" is standard input.
Error read_json_text(const std::string& path, OrderedJson* out) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  std::string text;
  if (Error e = read_input(path, kMostBytes, &text)) return e;
  return parse_ordered_json(text, input_name(path), out);
}

// JSON where it is some ("false", "3"), else text.
Error add_variable(const std::string& setting, OrderedJson* out) {
  const size_t equals = setting.find('=');
  if (equals == 0 || equals == std::string::npos) return error("not a variable", "--var", "NAME=VALUE", setting);
  const std::string value = to_utf8(setting.substr(equals + 1));
  OrderedJson json;
  if (parse_ordered_json(value, "--var", &json)) json = value;
  (*out)[to_utf8(setting.substr(0, equals))] = std::move(json);
  return {};
}

Error read_conversation(const Options& options, Conversation* out) {
  if (Error e = read_json_text(options.messages, &out->messages)) return e;
  if (!options.tools.empty()) {
    if (Error e = read_json_text(options.tools, &out->tools)) return e;
    if (!out->tools.is_array()) return error("wrong type", options.tools, "a list of tools");
  }
  for (const std::string& setting : options.variables) {
    if (Error e = add_variable(setting, &out->variables)) return e;
  }
  out->add_generation_prompt = !options.no_generation_prompt;
  out->template_name = options.name;
  return {};
}

int run(const Options& options) {
  if (Error e = check_folder(options.run.model)) return fail(e);
  std::shared_ptr<const ChatTemplate> chat_template;
  if (Error e = load_chat_template(options.run.model, &chat_template)) return fail(e);
  if (!chat_template) return fail(error("no chat template", options.run.model));
  Conversation conversation;
  if (Error e = read_conversation(options, &conversation)) return fail(e);
  for (const auto& [name, value] : conversation.variables.items()) {
    if (!gives_variable(*chat_template, name)) continue;
    return fail(error("cannot be set so: an option or the folder gives it", "--var " + brief(name)));
  }
  if (!options.ids) {
    std::string text;
    if (Error e = render(*chat_template, conversation, &text)) return fail(e);
    print(text);
    return kSuccess;
  }
  std::shared_ptr<const Tokenizer> tokenizer;
  if (Error e = load_tokenizer(options.run.model, &tokenizer)) return fail(e);
  Prompt prompt;
  if (Error e = make_prompt(*chat_template, *tokenizer, conversation, &prompt)) return fail(e);
  print(join_ids(prompt.ids) + "\n");
  return kSuccess;
}

}  // namespace

Run setup_template(Command app) {
  auto options = std::make_shared<Options>();
  add_model_option(app, &options->run).required();
  app.add_option("--messages", options->messages,
                 "JSON list of messages, each with role and content; - is standard input")
      .path("F")
      .required();
  app.add_option("--tools", options->tools, "JSON list of the tools' schemas").path("F");
  app.add_option("--var", options->variables,
                 "A variable of the template, JSON or text, e.g. enable_thinking=false; repeatable")
      .type_name("NAME=VALUE")
      .repeatable();
  app.add_option("--template", options->name,
                 "Which one, where the folder has several (default: tool_use with --tools, else default)")
      .type_name("NAME");
  app.add_flag("--no-generation-prompt", options->no_generation_prompt, "End behind the last message");
  app.add_flag("--ids", options->ids,
               "Print the prompt's token ids instead: special tokens in messages are plain text");
  return {[options] { return run(*options); }};
}

}  // namespace pinion
