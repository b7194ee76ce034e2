// See chat_template.h.
#include "tokenizer/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "loader/json.h"
#include "tokenizer/jinja.h"
#include "tokenizer/settings.h"
#include "tokenizer/stand_ins.h"

namespace pinion {
namespace {

struct NamedTemplate {
  std::string name, source;
  std::shared_ptr<const JinjaTemplate> jinja;  // null: does not parse
  Error failure = {};                          // why not
};

}  // namespace

struct ChatTemplate {
  std::vector<NamedTemplate> templates;
  std::vector<std::pair<std::string, std::string>> special_tokens;  // name in templates ("bos_token"), text
  std::string where;
};

namespace {

void add_template(std::string name, std::string source, const std::string& where, ChatTemplate* out) {
  NamedTemplate named{std::move(name), std::move(source), nullptr};
  named.failure = parse_jinja(named.source, where, &named.jinja);
  out->templates.push_back(std::move(named));
}

Error add_files(const std::filesystem::path& folder, ChatTemplate* out) {
  std::vector<std::filesystem::path> files;
  std::error_code missing;
  if (std::filesystem::exists(folder / "chat_template.jinja", missing)) files.push_back(folder / "chat_template.jinja");
  for (const auto& entry : std::filesystem::directory_iterator(folder / "additional_chat_templates", missing)) {
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    std::string source;
    if (Error e = read_file(file, &source)) return e;
    const bool is_default = file.parent_path() == folder;
    add_template(is_default ? "default" : file.stem().string(), source, file.string(), out);
  }
  return {};
}

Error add_setting(JsonFields& config, ChatTemplate* out) {
  const Json* value = config.find("chat_template");
  if (value == nullptr || !value->is_array()) {
    const std::string source = config.text("chat_template", "");
    if (!source.empty()) add_template("default", source, config.where, out);
    return config.error;
  }
  for (const Json& item : *value) {
    JsonFields entry{item, config.where + ": chat_template"};
    const std::string name = entry.text("name"), source = entry.text("template");
    if (entry.error) return entry.error;
    add_template(name, source, entry.where + " " + name, out);
  }
  return {};
}

void read_special_tokens(JsonFields& config, ChatTemplate* out) {
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (const std::string token = setting_token(config, name); !token.empty()) {
      out->special_tokens.emplace_back(name, token);
    }
  }
}

Error find_template(const ChatTemplate& chat_template, const Conversation& conversation, const NamedTemplate** out) {
  const auto& all = chat_template.templates;
  const auto find = [&](std::string_view name) { return std::ranges::find(all, name, &NamedTemplate::name); };
  auto found = all.end();
  if (!conversation.template_name.empty()) {
    found = find(conversation.template_name);
  } else {
    if (!conversation.tools.is_null()) found = find("tool_use");
    if (found == all.end()) found = find("default");
  }
  if (found == all.end()) {
    std::string names;
    for (const NamedTemplate& named : all) names += (names.empty() ? "" : ", ") + named.name;
    const std::string& wanted = conversation.template_name.empty() ? "default" : conversation.template_name;
    return error("no such chat template", chat_template.where, wanted, names);
  }
  *out = &*found;
  return found->failure;
}

Error check_messages(const nlohmann::ordered_json& messages) {
  if (!messages.is_array()) return error("wrong type", "messages", "a list");
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool fits = messages[i].is_object() && messages[i].contains("role") && messages[i]["role"].is_string();
    if (!fits) return error("wrong type", "message " + std::to_string(i), "an object with a \"role\"");
  }
  return {};
}

nlohmann::ordered_json template_variables(const ChatTemplate& chat_template, const Conversation& conversation) {
  nlohmann::ordered_json variables = conversation.variables;
  for (const auto& [name, token] : chat_template.special_tokens) variables[name] = token;
  variables["messages"] = conversation.messages;
  variables["tools"] = conversation.tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = conversation.add_generation_prompt;
  return variables;
}

// A template that wants text and gets a list of parts should fail; minja joins anything to a string, in Python's
// spelling.
Error check_parts(const ChatTemplate& chat_template, const nlohmann::ordered_json& messages, const std::string& text) {
  for (const auto& message : messages) {
    const auto content = message.find("content");
    const bool has_parts = content != message.end() && content->is_array() && !content->empty() &&
                           content->front().is_object() && !content->front().empty();
    if (!has_parts) continue;
    if (text.find("[{'" + content->front().begin().key() + "': ") == std::string::npos) continue;
    return error("template fails", chat_template.where, {}, "it takes no list as a message's content");
  }
  return {};
}

}  // namespace

Error load_chat_template(const std::string& folder, std::shared_ptr<const ChatTemplate>* out) {
  *out = nullptr;
  const std::filesystem::path settings = std::filesystem::path(folder) / "tokenizer_config.json";
  const auto chat_template = std::make_shared<ChatTemplate>();
  chat_template->where = folder;
  if (Error e = add_files(folder, chat_template.get())) return e;
  std::error_code missing;
  if (std::filesystem::exists(settings, missing)) {
    Json json;
    if (Error e = read_json_file(settings, &json, {.duplicate_keys = true})) return e;
    JsonFields config{json, settings.string()};
    read_special_tokens(config, chat_template.get());
    if (config.error) return config.error;
    if (chat_template->templates.empty()) {
      if (Error e = add_setting(config, chat_template.get())) return e;
    }
  }
  const auto& templates = chat_template->templates;
  if (templates.size() == 1 && templates[0].failure) return templates[0].failure;
  if (!templates.empty()) *out = chat_template;
  return {};
}

Error render(const ChatTemplate& chat_template, const Conversation& conversation, std::string* out) {
  const NamedTemplate* chosen = nullptr;
  if (Error e = check_messages(conversation.messages)) return e;
  if (Error e = find_template(chat_template, conversation, &chosen)) return e;
  std::string text;
  if (Error e = render_jinja(*chosen->jinja, template_variables(chat_template, conversation), &text)) return e;
  if (Error e = check_parts(chat_template, conversation.messages, text)) return e;
  *out = std::move(text);
  return {};
}

Error make_prompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const Conversation& conversation,
                  Prompt* out) {
  if (Error e = check_messages(conversation.messages)) return e;
  using Ordered = nlohmann::ordered_json;
  std::string taken =
      template_variables(chat_template, conversation).dump(-1, ' ', false, Ordered::error_handler_t::replace);
  for (const NamedTemplate& named : chat_template.templates) taken += named.source;
  Conversation guarded = conversation;
  EncodeOptions encoding{.add_special = false};  // templates write BOS themselves where the model wants one
  if (Error e = replace_special_tokens(special_tokens(tokenizer), taken, &guarded.messages, &guarded.tools,
                                       &encoding.stand_ins)) {
    return e;
  }
  std::string text;
  if (Error e = render(chat_template, guarded, &text)) return e;
  out->ids = encode(tokenizer, text, encoding);
  out->text = put_back(text, encoding.stand_ins);
  return {};
}

}  // namespace pinion
