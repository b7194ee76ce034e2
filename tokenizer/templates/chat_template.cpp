#include "tokenizer/templates/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "loader/files/json.h"
#include "loader/files/mapped_file.h"
#include "tokenizer/templates/jinja.h"
#include "tokenizer/tokens/settings.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {

struct NamedTemplate {
  std::string name, source, where;
  std::string jinja = {};  // `source` as render_jinja() reads it; empty: not parsed yet
  Error failure = {};      // if it does not parse
};

struct ChatTemplate {
  std::vector<NamedTemplate> templates;
  std::vector<std::pair<std::string, std::string>> special_tokens;  // variable ("bos_token"), text
  std::string where;
};

namespace {

Error add_template(std::string name, std::string source, std::string where, ChatTemplate* out) {
  constexpr size_t kMaxTemplates = 16;  // parsing one can take seconds
  if (out->templates.size() == kMaxTemplates) {
    return error("too many chat templates", out->where, at_most(kMaxTemplates));
  }
  out->templates.push_back({std::move(name), std::move(source), std::move(where)});
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
    if (Error e = read_text_file(file, kMaxJsonBytes, &source)) return e;
    const bool is_default = file.parent_path() == folder;
    if (Error e = add_template(is_default ? "default" : file.stem().string(), source, file.string(), out)) return e;
  }
  return {};
}

// Adds the templates of the field "chat_template".
Error add_field(JsonFields& config, ChatTemplate* out) {
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
    const std::string token = setting_token(config, name);
    if (!token.empty()) out->special_tokens.emplace_back(name, token);
  }
}

Error find_template(const ChatTemplate& chat_template, const Conversation& conversation, const NamedTemplate** out) {
  const auto& all = chat_template.templates;
  const auto find = [&](std::string_view name) { return std::ranges::find(all, name, &NamedTemplate::name); };
  const std::string wanted = conversation.template_name.empty() ? "default" : conversation.template_name;
  const bool prefers_tool_use = conversation.template_name.empty() && !conversation.tools.is_null();
  auto found = find(prefers_tool_use ? "tool_use" : wanted);
  if (found == all.end()) found = find(wanted);
  if (found == all.end()) {
    std::string names;
    for (const NamedTemplate& named : all) names += (names.empty() ? "" : ", ") + named.name;
    return error("no such chat template", chat_template.where, wanted, names);
  }
  *out = &*found;
  return found->failure;
}

constexpr const char* kThoughtNames[] = {"reasoning_content", "thinking", "reasoning"};

// Templates read thoughts as reasoning_content or as thinking. Adds both members to each message that has thoughts
// under one of three names; if it has several, the first of these names counts. A new `thinking` becomes the first
// member.
nlohmann::ordered_json with_named_thoughts(const nlohmann::ordered_json& messages) {
  nlohmann::ordered_json all = messages;
  for (auto& message : all) {
    for (const char* name : kThoughtNames) {
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

void append_strings(const nlohmann::ordered_json& value, std::string* out) {
  if (value.is_string()) *out += value.get_ref<const std::string&>() + '\0';
  if (!value.is_structured()) return;
  for (const auto& item : value) append_strings(item, out);
}

// An error if the template expects text as content and so prints a list of parts as Python would ("[{'type': ...").
// Such a template prints every list, so the first few are sufficient. A spelling that a text of the conversation
// contains proves nothing.
Error check_parts(const ChatTemplate& chat_template, const nlohmann::ordered_json& messages, const std::string& text) {
  constexpr size_t kMaxLists = 16;
  std::set<std::string> spellings;
  for (const auto& message : messages) {
    const auto content = message.find("content");
    const bool has_parts = content != message.end() && content->is_array() && !content->empty() &&
                           content->front().is_object() && !content->front().empty();
    if (!has_parts || spellings.size() == kMaxLists) continue;
    std::string spelling;
    if (Error e = print_as_jinja(*content, &spelling)) return e;
    spellings.insert(std::move(spelling));
  }
  std::string strings;
  if (!spellings.empty()) append_strings(messages, &strings);
  for (const std::string& spelling : spellings) {
    if (text.find(spelling) == std::string::npos || strings.find(spelling) != std::string::npos) continue;
    return error(kTemplateFails, chat_template.where, {}, "it prints a list of content parts");
  }
  return {};
}

// Stands behind the text that the model continues while the template runs. The space shows whether the template trims
// the text; no ordinary text has the noncharacter before it.
constexpr std::string_view kEndTag = "\U0010FFFE ";

// The text of the last message to continue, or null.
std::string* find_continued(nlohmann::ordered_json* message) {
  nlohmann::ordered_json& content = (*message)["content"];
  if (content.is_array()) {
    const auto has_text = [](const auto& part) { return part.is_object() && find_text(part, "text"); };
    const auto last = std::find_if(content.rbegin(), content.rend(), has_text);
    return last == content.rend() ? nullptr : (*last)["text"].get_ptr<std::string*>();
  }
  if (!content.is_null()) return content.get_ptr<std::string*>();
  content = "";  // many templates fail on null; the prompt ends before it
  for (const char* name : kThoughtNames) {
    if (find_text(*message, name)) return (*message)[name].get_ptr<std::string*>();
  }
  return nullptr;
}

// Renders with kEndTag behind the text to continue and cuts there, as transformers does.
Error render_continued(const ChatTemplate& chat_template, Conversation conversation, std::string* out,
                       std::vector<std::string>* mended, size_t* continued_at) {
  conversation.continue_final_message = conversation.add_generation_prompt = false;
  if (conversation.messages.empty()) return error("no message to continue", "messages");
  nlohmann::ordered_json& last = conversation.messages.back();
  if (const auto calls = last.find("tool_calls"); calls != last.end() && !calls->empty()) {
    return error("the last one has tool calls and cannot be continued; add the results of the calls", "messages");
  }
  std::string* text = find_continued(&last);
  if (text == nullptr) return error("the last one has no text to continue", "messages");
  const std::string continued(strip(*text));
  *text += kEndTag;
  if (Error e = render(chat_template, conversation, out, mended)) return e;
  const size_t end = out->rfind(kEndTag.substr(0, kEndTag.size() - 1));
  if (end == std::string::npos || out->find(continued) == std::string::npos) {
    return error("the chat template changes the text of the last one, so it cannot be continued", "messages");
  }
  const bool is_trimmed = !std::string_view(*out).substr(end).starts_with(kEndTag);
  out->resize(end);
  const size_t bytes = rstrip(*out).size();
  if (is_trimmed) out->resize(bytes);
  const bool is_whole = std::string_view(*out).substr(0, bytes).ends_with(continued);
  if (continued_at != nullptr) *continued_at = is_whole && !continued.empty() ? bytes - continued.size() : out->size();
  return {};
}

constexpr std::string_view kAnswer = "Answerxyz";  // part of no template
constexpr const char* kAnswered = R"([{"role": "user", "content": "Question"},
    {"role": "assistant", "content": "Answerxyz"}])";
constexpr const char* kCalled = R"([{"role": "user", "content": "Question"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdef123", "type": "function",
     "function": {"name": "find", "arguments": {"text": "Answerxyz"}}}]}])";
constexpr const char* kTools = R"([{"type": "function", "function": {"name": "find", "description": "Finds",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}}])";

// The tokens of a rendering behind the last kAnswer. Text between them, other than white space, counts as id -1.
// Returns false if the template refuses the conversation.
bool rest_of_turn(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const Conversation& conversation,
                  std::vector<AddedToken>* out) {
  out->clear();
  Prompt prompt;
  if (make_prompt(chat_template, tokenizer, conversation, &prompt)) return false;
  const size_t at = prompt.text.rfind(kAnswer);
  if (at == std::string::npos) return true;
  const std::string text = prompt.text.substr(at + kAnswer.size());
  for (const TextRun& run : split_added(make_finder(special_tokens(tokenizer, text)), text, true)) {
    if (run.id < 0 && strip(run.text).empty()) continue;
    out->push_back({.content = std::string(run.text), .id = run.id, .special = is_special(tokenizer, run.id)});
  }
  return true;
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

Error load_chat_template(const std::string& model, std::shared_ptr<const ChatTemplate>* out) {
  *out = nullptr;
  const auto chat_template = std::make_shared<ChatTemplate>();
  auto& templates = chat_template->templates;
  chat_template->where = model;
  if (Error e = add_files(model, chat_template.get())) return e;
  // tokenizer_config.json, then chat_template.json, which belongs to the processor of a vision model.
  for (const bool is_tokenizer_config : {true, false}) {
    const char* name = is_tokenizer_config ? "tokenizer_config.json" : "chat_template.json";
    if (!is_tokenizer_config && !templates.empty()) continue;
    Json json;
    if (Error e = read_settings_file(model, name, {.duplicate_keys = is_tokenizer_config}, &json)) return e;
    JsonFields config{json, (std::filesystem::path(model) / name).string()};
    if (is_tokenizer_config) read_special_tokens(config, chat_template.get());
    if (config.error) return config.error;
    if (!templates.empty()) continue;
    if (Error e = add_field(config, chat_template.get())) return e;
  }
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

Error render(const ChatTemplate& chat_template, const Conversation& conversation, std::string* out,
             std::vector<std::string>* mended, size_t* continued_at) {
  const NamedTemplate* chosen = nullptr;
  if (Error e = check_messages(conversation.messages)) return e;
  if (conversation.continue_final_message) {
    return render_continued(chat_template, conversation, out, mended, continued_at);
  }
  if (Error e = find_template(chat_template, conversation, &chosen)) return e;
  std::string jinja = chosen->jinja;
  if (Error e = jinja.empty() ? parse_jinja(chosen->source, chosen->where, &jinja) : Error{}) return e;
  const auto render_as_given = [&](const Conversation& shown, std::string* text) {
    if (Error e =
            render_jinja(jinja, chosen->where, template_variables(chat_template, shown), text, shown.has_fixed_date)) {
      return e;
    }
    return check_parts(chat_template, shown.messages, *text);
  };
  return render_mended(conversation, render_as_given, out, mended);
}

Error check_variables(const ChatTemplate& chat_template, const Conversation& conversation, const std::string& where) {
  for (const auto& [name, value] : conversation.variables.items()) {
    if (!template_variables(chat_template, {}).contains(name)) continue;
    return error("cannot be set here: an option or the folder sets it", where + brief(name));
  }
  return {};
}

Error make_prompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const Conversation& conversation,
                  Prompt* out, int64_t max_tokens) {
  const NamedTemplate* chosen = nullptr;
  if (Error e = check_messages(conversation.messages)) return e;
  if (Error e = find_template(chat_template, conversation, &chosen)) return e;
  using Ordered = nlohmann::ordered_json;
  Conversation guarded = conversation;
  // For folders without tokenizer_config.json, such as Mistral's with tekken.json.
  if (const auto id = bos_id(tokenizer)) guarded.variables.emplace("bos_token", token_text(tokenizer, *id));
  if (const auto id = eos_id(tokenizer)) guarded.variables.emplace("eos_token", token_text(tokenizer, *id));
  std::string template_text = chosen->source;  // may write special tokens, directly or by variables
  for (const auto& [name, token] : chat_template.special_tokens) template_text += '\n' + token;
  const std::string taken =
      template_text +
      template_variables(chat_template, guarded).dump(-1, ' ', false, Ordered::error_handler_t::replace);
  EncodeOptions encoding{.add_special = false};  // templates write BOS themselves
  encoding.max_tokens = max_tokens;
  const std::vector<AddedToken> tokens = special_tokens(tokenizer, template_text);
  for (const AddedToken& token : tokens) encoding.guarded.push_back(token.id);
  if (Error e = escape_special_tokens(tokens, taken, &guarded.messages, &guarded.tools, &encoding.escapes)) return e;
  std::string text;
  size_t continued_at = std::string::npos;
  out->mended.clear();
  if (Error e = render(chat_template, guarded, &text, &out->mended, &continued_at)) return e;
  out->text = unescaped(text, encoding.escapes);
  out->continued_at = unescaped(text.substr(0, continued_at), encoding.escapes).size();
  return encode(tokenizer, text, encoding, &out->ids);
}

std::vector<int32_t> turn_ends(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  std::vector<int32_t> ends;
  std::vector<AddedToken> rest;
  Conversation talk{.messages = nlohmann::ordered_json::parse(kAnswered), .add_generation_prompt = false};
  talk.is_strict = true;  // a mended conversation may end its turns elsewhere
  if (!rest_of_turn(chat_template, tokenizer, talk, &rest)) return ends;
  if (rest.empty()) {
    talk.messages.push_back(talk.messages[0]);
    rest_of_turn(chat_template, tokenizer, talk, &rest);
  }
  if (!rest.empty() && rest.front().id >= 0) ends.push_back(rest.front().id);
  talk.messages = nlohmann::ordered_json::parse(kCalled);
  talk.tools = nlohmann::ordered_json::parse(kTools);
  rest_of_turn(chat_template, tokenizer, talk, &rest);
  // The end mark of a call ends no turn: another call may follow.
  const bool is_end = !rest.empty() && rest.back().special && rest.back().content.find("tool") == std::string::npos;
  if (is_end) ends.push_back(rest.back().id);
  return ends;
}

}  // namespace pinion
