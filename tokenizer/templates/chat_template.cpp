// See chat_template.h.
#include "tokenizer/templates/chat_template.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "loader/files/json.h"
#include "tokenizer/templates/jinja.h"
#include "tokenizer/tokens/settings.h"
#include "tokenizer/tokens/special_token_escape.h"

namespace pinion {
namespace {

// Parsing one can take seconds.
constexpr size_t kMostTemplates = 16;

struct NamedTemplate {
  std::string name, source, where;
  std::shared_ptr<const JinjaTemplate> jinja;  // null: does not parse, or is parsed when it is asked for
  Error failure = {};                          // why it does not
};

}  // namespace

struct ChatTemplate {
  std::vector<NamedTemplate> templates;
  std::vector<std::pair<std::string, std::string>> special_tokens;  // name in templates ("bos_token"), text
  std::string where;
};

namespace {

Error add_template(std::string name, std::string source, std::string where, ChatTemplate* out) {
  if (out->templates.size() == kMostTemplates) {
    return error("too many chat templates", out->where, "at most " + std::to_string(kMostTemplates));
  }
  out->templates.push_back({std::move(name), std::move(source), std::move(where), nullptr});
  return {};
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
    if (Error e = add_template(is_default ? "default" : file.stem().string(), source, file.string(), out)) return e;
  }
  return {};
}

Error add_setting(JsonFields& config, ChatTemplate* out) {
  const Json* value = config.find("chat_template");
  if (value == nullptr || !value->is_array()) {
    const std::string source = config.text("chat_template", "");
    if (config.error || source.empty()) return config.error;
    return add_template("default", source, config.where, out);
  }
  for (const Json& item : *value) {
    JsonFields entry{item, config.where + ": chat_template"};
    const std::string name = entry.text("name"), source = entry.text("template");
    if (entry.error) return entry.error;
    if (Error e = add_template(name, source, entry.where + " " + name, out)) return e;
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

Error parsed(const NamedTemplate& named, std::shared_ptr<const JinjaTemplate>* out) {
  *out = named.jinja;
  return named.jinja ? Error() : parse_jinja(named.source, named.where, out);
}

// Messages with a model's thoughts under the names that templates read: of these three the first that is there is
// reasoning_content, and thinking in front of everything where a message has none.
nlohmann::ordered_json with_named_thoughts(const nlohmann::ordered_json& messages) {
  nlohmann::ordered_json all = messages;
  for (auto& message : all) {
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
      const auto found = message.find(name);
      if (found == message.end() || found->is_null()) continue;
      auto named = nlohmann::ordered_json::object();
      named["thinking"] = *found;
      for (const auto& [key, value] : message.items()) named[key] = value;
      named["reasoning_content"] = *found;
      message = std::move(named);
      break;
    }
  }
  return all;
}

nlohmann::ordered_json template_variables(const ChatTemplate& chat_template, const Conversation& conversation) {
  nlohmann::ordered_json variables = conversation.variables;
  for (const auto& [name, token] : chat_template.special_tokens) variables[name] = token;
  variables["messages"] = with_named_thoughts(conversation.messages);
  variables["tools"] = conversation.tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = conversation.add_generation_prompt;
  return variables;
}

bool has_text(const nlohmann::ordered_json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_string();
}

const std::string& text_in(const nlohmann::ordered_json& object, const char* name) {
  return object[name].get_ref<const std::string&>();
}

void append_strings(const nlohmann::ordered_json& value, std::string* out) {
  if (value.is_string()) *out += value.get_ref<const std::string&>() + '\0';
  if (!value.is_structured()) return;
  for (const auto& item : value) append_strings(item, out);
}

// A template that wants text and gets a list of parts should fail; Jinja prints anything, in Python's spelling. One
// that does prints every list, so the first few will do; a text that is spelled like one is just text.
Error check_parts(const ChatTemplate& chat_template, const nlohmann::ordered_json& messages, const std::string& text) {
  constexpr size_t kMostLists = 16;
  std::set<std::string> spellings;
  for (const auto& message : messages) {
    const auto content = message.find("content");
    const bool has_parts = content != message.end() && content->is_array() && !content->empty() &&
                           content->front().is_object() && !content->front().empty();
    if (!has_parts || spellings.size() == kMostLists) continue;
    std::string spelling;
    if (Error e = print_as_jinja(*content, &spelling)) return e;
    spellings.insert(std::move(spelling));
  }
  std::string strings;
  if (!spellings.empty()) append_strings(messages, &strings);
  for (const std::string& spelling : spellings) {
    if (text.find(spelling) == std::string::npos || strings.find(spelling) != std::string::npos) continue;
    return error("template fails", chat_template.where, {}, "it takes no list as a message's content");
  }
  return {};
}

// A message's content, or that of its parts.
void append_texts(const nlohmann::ordered_json& message, std::vector<std::string_view>* out) {
  if (has_text(message, "content")) return out->push_back(text_in(message, "content"));
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return;
  for (const auto& part : *content) {
    if (has_text(part, "text")) out->push_back(text_in(part, "text"));
  }
}

// What a prompt must not leave out: instructions, what users said, and the names of functions that were called.
std::vector<std::string_view> wanted_texts(const nlohmann::ordered_json& messages) {
  std::vector<std::string_view> out;
  for (const auto& message : messages) {
    if (message["role"] == "user" || message["role"] == "system") append_texts(message, &out);
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (const auto& call : *calls) {
      const bool has_function = call.is_object() && call.contains("function");
      if (has_function && has_text(call["function"], "name")) out.push_back(text_in(call["function"], "name"));
    }
  }
  return out;
}

// How many of them are there, one behind the other. Each that is not there is looked for in all of the text, so a few
// such will do.
size_t count_said(const std::vector<std::string_view>& wanted, std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  constexpr int kMostMissing = 16;
  size_t said = 0;
  int missing = 0;
  for (std::string_view part : wanted) {
    part.remove_prefix(std::min(part.find_first_not_of(kBlanks), part.size()));
    part = part.substr(0, part.find_last_not_of(kBlanks) + 1);
    const void* found = memmem(text.data(), text.size(), part.data(), part.size());
    if (!found && ++missing == kMostMissing) break;
    if (!found) continue;
    text.remove_prefix(static_cast<size_t>(static_cast<const char*>(found) - text.data()) + part.size());
    ++said;
  }
  return said;
}

// Some templates write calls only where there is no text at all (DeepSeek's). Whether that changes anything.
bool leave_out_empty_texts(nlohmann::ordered_json* messages) {
  bool changed = false;
  for (auto& message : *messages) {
    if (!message.contains("tool_calls") || !has_text(message, "content") || text_in(message, "content") != "") continue;
    message["content"] = nullptr;
    changed = true;
  }
  return changed;
}

// Others know nothing but parts (SmolVLM's): they find none in a text, and leave it out.
bool make_parts_of_texts(nlohmann::ordered_json* messages) {
  bool changed = false;
  for (auto& message : *messages) {
    if (!has_text(message, "content")) continue;
    message["content"] = {{{"type", "text"}, {"text", text_in(message, "content")}}};
    changed = true;
  }
  return changed;
}

Error render_as_given(const ChatTemplate& chat_template, const JinjaTemplate& jinja, const Conversation& conversation,
                      std::string* out) {
  std::string text;
  if (Error e = render_jinja(jinja, template_variables(chat_template, conversation), &text)) return e;
  if (Error e = check_parts(chat_template, conversation.messages, text)) return e;
  *out = std::move(text);
  return {};
}

}  // namespace

Error check_messages(const nlohmann::ordered_json& messages) {
  if (!messages.is_array()) return error("wrong type", "messages", "a list");
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool fits = messages[i].is_object() && messages[i].contains("role") && messages[i]["role"].is_string();
    if (!fits) return error("wrong type", "message " + std::to_string(i), "an object with a \"role\"");
  }
  return {};
}

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
  const std::filesystem::path own = std::filesystem::path(folder) / "chat_template.json";  // of a processor of pictures
  if (chat_template->templates.empty() && std::filesystem::exists(own, missing)) {
    Json json;
    if (Error e = read_json_file(own, &json)) return e;
    JsonFields config{json, own.string()};
    if (Error e = add_setting(config, chat_template.get())) return e;
  }
  auto& templates = chat_template->templates;
  for (NamedTemplate& named : templates) {
    if (named.name != "default" && templates.size() > 1) continue;
    named.failure = parse_jinja(named.source, named.where, &named.jinja);
    break;
  }
  if (templates.size() == 1 && templates[0].failure) return templates[0].failure;
  if (!templates.empty()) *out = chat_template;
  return {};
}

std::string_view template_source(const ChatTemplate& chat_template, const Conversation& conversation) {
  const NamedTemplate* named = nullptr;
  return find_template(chat_template, conversation, &named) ? std::string_view() : std::string_view(named->source);
}

Error render(const ChatTemplate& chat_template, const Conversation& conversation, std::string* out) {
  const NamedTemplate* chosen = nullptr;
  if (Error e = check_messages(conversation.messages)) return e;
  if (Error e = find_template(chat_template, conversation, &chosen)) return e;
  std::shared_ptr<const JinjaTemplate> jinja;
  if (Error e = parsed(*chosen, &jinja)) return e;
  const std::vector<std::string_view> wanted = wanted_texts(conversation.messages);
  Error failure = render_as_given(chat_template, *jinja, conversation, out);
  size_t said = failure ? 0 : count_said(wanted, *out);
  for (const auto reshape : {leave_out_empty_texts, make_parts_of_texts}) {
    if (!failure && said == wanted.size()) break;
    Conversation other = conversation;
    std::string text;
    if (!reshape(&other.messages) || render_as_given(chat_template, *jinja, other, &text)) continue;
    const size_t other_said = count_said(wanted, text);
    if (failure ? other_said < wanted.size() : other_said <= said) continue;
    failure = {};
    said = other_said;
    *out = std::move(text);
  }
  return failure;
}

bool gives_variable(const ChatTemplate& chat_template, const std::string& name) {
  return template_variables(chat_template, {}).contains(name);
}

Error make_prompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const Conversation& conversation,
                  Prompt* out, int64_t most_tokens) {
  const NamedTemplate* chosen = nullptr;
  if (Error e = check_messages(conversation.messages)) return e;
  if (Error e = find_template(chat_template, conversation, &chosen)) return e;
  using Ordered = nlohmann::ordered_json;
  Conversation guarded = conversation;
  // Where no tokenizer_config.json names them, as beside Mistral's tekken.json.
  if (const auto id = bos_id(tokenizer)) guarded.variables.emplace("bos_token", token_text(tokenizer, *id));
  if (const auto id = eos_id(tokenizer)) guarded.variables.emplace("eos_token", token_text(tokenizer, *id));
  std::string taken =
      template_variables(chat_template, guarded).dump(-1, ' ', false, Ordered::error_handler_t::replace);
  std::string written = chosen->source;
  for (const auto& [name, token] : chat_template.special_tokens) written += '\n' + token;
  taken += written;
  EncodeOptions encoding{.add_special = false};  // templates write BOS themselves where the model wants one
  encoding.most_tokens = most_tokens;
  const std::vector<AddedToken> tokens = special_tokens(tokenizer, written);
  for (const AddedToken& token : tokens) encoding.guarded.push_back(token.id);
  if (Error e = escape_special_tokens(tokens, taken, &guarded.messages, &guarded.tools, &encoding.escapes)) {
    return e;
  }
  std::string text;
  if (Error e = render(chat_template, guarded, &text)) return e;
  out->text = unescaped(text, encoding.escapes);
  return encode(tokenizer, text, encoding, &out->ids);
}

}  // namespace pinion
