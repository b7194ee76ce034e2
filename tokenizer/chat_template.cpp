// See chat_template.h. The template engine is minja; it is met in this file only, and its exceptions end here.
#include "tokenizer/chat_template.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>
#include <filesystem>
#include <minja/minja.hpp>
#include <utility>
#include <vector>

#include "loader/json.h"
#include "tokenizer/settings.h"

namespace pinion {

struct ChatTemplate {
  std::shared_ptr<minja::TemplateNode> root;
  std::vector<std::pair<std::string, std::string>> special_tokens;  // name in templates ("bos_token"), text
  std::string where;
};

namespace {

// The engine recurses with the text it reads; within these bounds, far above any template in use, the stack suffices.
constexpr size_t kMostTemplateBytes = size_t{64} << 10;
constexpr size_t kMostTagBytes = size_t{8} << 10;
constexpr int kMostBrackets = 100;

// Messages of the engine show the lines around the place, innermost first: the first line says it all.
Error engine_error(std::string what, const std::string& where, const std::exception& e) {
  std::string text = e.what();
  const size_t place = text.find(" at row ");
  const size_t end = text.find(":\n", place == std::string::npos ? 0 : place);
  text = text.substr(0, std::min(end, text.size()));
  std::replace(text.begin(), text.end(), '\n', ' ');
  return error(std::move(what), where, {}, text);
}

Error check_bounds(const std::string& source, const std::string& where) {
  if (source.size() > kMostTemplateBytes) {
    return error("chat template is too long", where, "at most " + std::to_string(kMostTemplateBytes) + " bytes",
                 std::to_string(source.size()));
  }
  int depth = 0;
  size_t tag = 0;  // start of the last tag
  for (size_t i = 0; i < source.size(); ++i) {
    const char c = source[i];
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') depth = std::max(depth - 1, 0);
    if (c == '{') tag = i;
    if (depth > kMostBrackets) return error("chat template nests its brackets too deep", where);
    if (depth > 0 && i - tag > kMostTagBytes) return error("chat template has too long a tag", where);
  }
  return {};
}

Error parse_template(const std::string& source, ChatTemplate* out) {
  if (Error e = check_bounds(source, out->where)) return e;
  try {
    // As transformers sets up Jinja.
    out->root =
        minja::Parser::parse(source, {.trim_blocks = true, .lstrip_blocks = true, .keep_trailing_newline = false});
  } catch (const std::exception& e) {
    return engine_error("chat template does not parse", out->where, e);
  }
  return {};
}

// "chat_template" is the text, or a list of {"name", "template"}.
Error default_template(JsonFields& config, std::string* out) {
  const Json* value = config.find("chat_template");
  if (value == nullptr || !value->is_array()) {
    *out = config.text("chat_template", "");
    return config.error;
  }
  for (const Json& item : *value) {
    JsonFields entry{item, config.where + ": chat_template"};
    if (entry.text("name") == "default") *out = entry.text("template");
    if (entry.error) return entry.error;
  }
  return {};
}

void read_special_tokens(JsonFields& config, ChatTemplate* out) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    if (const std::string token = setting_token(config, name); !token.empty()) {
      out->special_tokens.emplace_back(name, token);
    }
  }
}

minja::Value strftime_now(const std::shared_ptr<minja::Context>&, minja::ArgumentsValue& arguments) {
  arguments.expectArgs("strftime_now", {1, 1}, {0, 0});
  const auto format = arguments.args[0].get<std::string>();
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 256> text{};
  return {std::string(text.data(), std::strftime(text.data(), text.size(), format.c_str(), &local))};
}

}  // namespace

Error load_chat_template(const std::string& folder, std::shared_ptr<const ChatTemplate>* out) {
  *out = nullptr;
  const std::filesystem::path file = std::filesystem::path(folder) / "chat_template.jinja";
  const std::filesystem::path settings = std::filesystem::path(folder) / "tokenizer_config.json";
  const auto chat_template = std::make_shared<ChatTemplate>();
  std::string source;
  std::error_code missing;
  if (std::filesystem::exists(settings, missing)) {
    chat_template->where = settings.string();
    Json json;
    if (Error e = read_json_file(settings, &json, {.duplicate_keys = true})) return e;
    JsonFields config{json, settings.string()};
    read_special_tokens(config, chat_template.get());
    if (Error e = default_template(config, &source)) return e;
  }
  if (std::filesystem::exists(file, missing)) {
    chat_template->where = file.string();
    if (Error e = read_file(file, &source)) return e;
  }
  if (source.empty()) return {};
  if (Error e = parse_template(source, chat_template.get())) return e;
  *out = chat_template;
  return {};
}

Error render(const ChatTemplate& chat_template, std::span<const Message> messages, bool add_generation_prompt,
             std::string* out) {
  try {
    auto list = nlohmann::ordered_json::array();
    for (const Message& message : messages) list.push_back({{"role", message.role}, {"content", message.content}});
    const auto context = minja::Context::make(
        nlohmann::ordered_json{{"messages", list}, {"add_generation_prompt", add_generation_prompt}});
    for (const auto& [name, token] : chat_template.special_tokens) context->set(name, token);
    context->set("strftime_now", minja::Value::callable(strftime_now));
    *out = chat_template.root->render(context);
  } catch (const std::exception& e) {
    return engine_error("chat template refuses", chat_template.where, e);
  }
  return {};
}

}  // namespace pinion
