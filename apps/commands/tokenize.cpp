// pinion tokenize, detokenize and template: text to ids and back, and conversations to prompts, without weights.

#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "loader/files/json.h"
#include "tokenizer/templates/chat_template.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

struct TokenizeOptions {
  RunOptions run;
  std::optional<std::string> text, ids;
  bool no_special = false;
  bool keep_special = false;
  bool json = false;
  bool jsonl = false;
};

// `answer` maps the JSON value of an input line to that of the output line.
int run_lines(const std::function<Error(const Json&, Json*)>& answer) {
  std::string line;
  Error failure;
  for (int64_t number = 1; read_line(&line, &failure); ++number) {
    const std::string where = "standard input, line " + std::to_string(number);
    Json question, reply;
    if (Error e = parse_json(to_utf8(line), where, &question)) return fail(e);
    if (Error e = answer(question, &reply)) {
      e.where = where;
      return fail(e);
    }
    print_json(reply);
  }
  return failure ? fail(failure) : kSuccess;
}

Error read_ids(const Json& json, std::vector<int32_t>* out) {
  out->clear();
  if (!json.is_array()) return error("wrong type", "", "a list of token ids", brief(json));
  for (const Json& item : json) {
    const bool fits = item.is_number_integer() && item >= 0 && item <= std::numeric_limits<int32_t>::max();
    if (!fits) return error("no token id", "", "a number from 0", brief(item));
    out->push_back(item.get<int32_t>());
  }
  return {};
}

int run_tokenize(const TokenizeOptions& options) {
  std::shared_ptr<const Tokenizer> tokenizer;
  if (Error e = check_folder(options.run.model)) return fail(e);
  if (Error e = load_tokenizer(options.run.model, &tokenizer)) return fail(e);
  const EncodeOptions encoding{.add_special = !options.no_special};
  if (options.jsonl) {
    return run_lines([&](const Json& question, Json* reply) -> Error {
      if (!question.is_string()) return error("wrong type", "", "a string", brief(question));
      std::vector<int32_t> ids;
      if (Error e = encode(*tokenizer, question.get_ref<const std::string&>(), encoding, &ids)) return e;
      *reply = ids;
      return {};
    });
  }
  std::string text = options.text.value_or("");
  if (Error e = options.text ? Error{} : read_input("-", kMaxTextBytes, &text)) return fail(e);
  std::vector<int32_t> ids;
  if (Error e = encode(*tokenizer, text, encoding, &ids)) return fail(e);
  OrderedJson report = {{"ids", ids}, {"tokens", OrderedJson::array()}};
  for (const int32_t id : ids) report["tokens"].push_back(token_text(*tokenizer, id));
  options.json ? print_json(report) : print(join_ids(ids) + "\n");
  return kSuccess;
}

int run_detokenize(const TokenizeOptions& options) {
  std::vector<int32_t> ids;
  if (Error e = options.ids ? parse_ids(*options.ids, &ids) : Error{}) return fail_usage("--ids: " + e.message());
  std::shared_ptr<const Tokenizer> tokenizer;
  if (Error e = check_folder(options.run.model)) return fail(e);
  if (Error e = load_tokenizer(options.run.model, &tokenizer)) return fail(e);
  if (options.jsonl) {
    return run_lines([&](const Json& question, Json* reply) -> Error {
      if (Error e = read_ids(question, &ids)) return e;
      if (Error e = check_ids(*tokenizer, ids)) return e;
      *reply = decode(*tokenizer, ids, !options.keep_special);
      return {};
    });
  }
  if (!options.ids) {
    std::string text;
    if (Error e = read_input("-", kMaxTextBytes, &text)) return fail(e);
    if (Error e = parse_ids(text, &ids)) return fail(e);
  }
  if (Error e = check_ids(*tokenizer, ids)) return fail(e);
  const std::string text = decode(*tokenizer, ids, !options.keep_special);
  options.json ? print_json({{"text", text}}) : print(text + "\n");
  return kSuccess;
}

struct TemplateOptions {
  RunOptions run;
  std::string messages, tools;
  std::vector<std::string> variables;  // NAME=VALUE
  std::string name;
  bool no_generation_prompt = false;
  bool continue_final_message = false;
  bool strict = false;
  bool ids = false;
};

Error read_json_text(const std::string& path, OrderedJson* out) {
  constexpr int64_t kMaxBytes = int64_t{64} << 20;
  std::string text;
  if (Error e = read_input(path, kMaxBytes, &text)) return e;
  return parse_ordered_json(text, input_name(path), out);
}

// The value is JSON if it parses ("false", "3"), otherwise text.
Error add_variable(const std::string& setting, OrderedJson* out) {
  const size_t equals = setting.find('=');
  if (equals == 0 || equals == std::string::npos) return error("not a variable", "--var", "NAME=VALUE", setting);
  const std::string value = to_utf8(setting.substr(equals + 1));
  OrderedJson json;
  if (parse_ordered_json(value, "--var", &json)) json = value;
  (*out)[to_utf8(setting.substr(0, equals))] = std::move(json);
  return {};
}

Error read_conversation(const TemplateOptions& options, Conversation* out) {
  if (Error e = read_json_text(options.messages, &out->messages)) return e;
  if (!options.tools.empty()) {
    if (Error e = read_json_text(options.tools, &out->tools)) return e;
    if (!out->tools.is_array()) return error("wrong type", options.tools, "a list of tools");
  }
  for (const std::string& setting : options.variables) {
    if (Error e = add_variable(setting, &out->variables)) return e;
  }
  out->add_generation_prompt = !options.no_generation_prompt;
  out->continue_final_message = options.continue_final_message;
  out->template_name = options.name;
  out->is_strict = options.strict;
  return {};
}

int run_template(const TemplateOptions& options) {
  if (Error e = check_folder(options.run.model)) return fail(e);
  std::shared_ptr<const ChatTemplate> chat_template;
  if (Error e = load_chat_template(options.run.model, &chat_template)) return fail(e);
  if (!chat_template) return fail(error("no chat template", options.run.model));
  Conversation conversation;
  if (Error e = read_conversation(options, &conversation)) return fail(e);
  if (Error e = check_variables(*chat_template, conversation, "--var ")) return fail(e);
  Prompt prompt;
  if (options.ids) {
    std::shared_ptr<const Tokenizer> tokenizer;
    if (Error e = load_tokenizer(options.run.model, &tokenizer)) return fail(e);
    if (Error e = make_prompt(*chat_template, *tokenizer, conversation, &prompt)) return fail(e);
  } else if (Error e = render(*chat_template, conversation, &prompt.text, &prompt.mended)) {
    return fail(e);
  }
  if (!prompt.mended.empty()) note("mended for this template: " + joined(prompt.mended));
  print(options.ids ? join_ids(prompt.ids) + "\n" : prompt.text);
  return kSuccess;
}

}  // namespace

Run setup_tokenize(Command app) {
  auto options = std::make_shared<TokenizeOptions>();
  add_model_option(app, &options->run).required();
  Option text = app.add_option("--text TEXT", options->text);
  app.add_flag("--no-special", options->no_special);
  app.add_flag("--json", options->json);
  app.add_flag("--jsonl", options->jsonl).excludes(text);
  return {[options] { return run_tokenize(*options); }};
}

Run setup_detokenize(Command app) {
  auto options = std::make_shared<TokenizeOptions>();
  add_model_option(app, &options->run).required();
  Option ids = app.add_option("--ids LIST", options->ids);
  app.add_flag("--special", options->keep_special);
  app.add_flag("--json", options->json);
  app.add_flag("--jsonl", options->jsonl).excludes(ids);
  return {[options] { return run_detokenize(*options); }};
}

Run setup_template(Command app) {
  auto options = std::make_shared<TemplateOptions>();
  add_model_option(app, &options->run).required();
  app.add_path("--messages F", options->messages).required();
  app.add_path("--tools F", options->tools);
  app.add_option("--var NAME=VALUE", options->variables);
  app.add_option("--template NAME", options->name);
  app.add_flag("--no-generation-prompt", options->no_generation_prompt);
  app.add_flag("--continue-final-message", options->continue_final_message);
  app.add_flag("--strict", options->strict);
  app.add_flag("--ids", options->ids);
  return {[options] { return run_template(*options); }};
}

}  // namespace pinion
