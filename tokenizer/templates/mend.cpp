#include "tokenizer/templates/chat_template.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/base/hash.h"
#include "loader/files/json.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Message = OrderedJson;

bool is_from(const Message& message, std::string_view role) { return message["role"] == role; }

void rename_role(Message& message, const char* from, const char* to) {
  if (is_from(message, from)) message["role"] = to;
}

void make_parts(OrderedJson& content) {
  if (content.is_string()) content = OrderedJson::array({{{"type", "text"}, {"text", content}}});
}

// Two texts become paragraphs of one; a list of parts and anything else become one list.
void append_content(OrderedJson next, OrderedJson* content) {
  if (next.is_null() || next == "") return;
  if (content->is_null() || *content == "") {
    *content = std::move(next);
  } else if (content->is_string() && next.is_string()) {
    content->get_ref<std::string&>() += "\n\n" + next.get_ref<const std::string&>();
  } else {
    make_parts(next);
    make_parts(*content);
    if (!next.is_array() || !content->is_array()) return;
    content->push_back({{"type", "text"}, {"text", "\n\n"}});
    content->insert(content->end(), next.begin(), next.end());
  }
}

// Appends each message to the one before if that `takes` it.
void merge(Conversation& conversation, bool (*takes)(const Message& message, const Message& next)) {
  OrderedJson kept = OrderedJson::array();
  for (Message& message : conversation.messages) {
    if (kept.empty() || !takes(kept.back(), message)) {
      kept.push_back(std::move(message));
      continue;
    }
    for (const auto& [key, value] : message.items()) {
      if (key != "role" && key != "name") append_content(value, &kept.back()[key]);
    }
  }
  conversation.messages = std::move(kept);
}

// System messages, except in the `kept` first places, become the beginning of the user message that follows.
void move_system(Conversation& conversation, size_t kept) {
  OrderedJson& messages = conversation.messages;
  for (size_t i = kept; i < messages.size(); ++i) rename_role(messages[i], "system", "moved");
  merge(conversation, [](const Message& message, const Message& next) {
    return is_from(message, "moved") && (is_from(next, "moved") || is_from(next, "user"));
  });
  for (Message& message : messages) rename_role(message, "moved", "user");
}

// Results of calls that the conversation does not contain.
void rename_lone_results(Conversation& conversation) {
  for (Message& message : conversation.messages) {
    if (message.contains("tool_calls")) return;
    rename_role(message, "tool", "user");
  }
}

// Templates for alternating roles refuse a greeting by the assistant.
void begin_with_user(Conversation& conversation) {
  OrderedJson& messages = conversation.messages;
  const size_t first = !messages.empty() && is_from(messages[0], "system") ? 1 : 0;
  if (messages.size() <= first || !is_from(messages[first], "assistant")) return;
  messages.insert(messages.begin() + static_cast<std::ptrdiff_t>(first), Message{{"role", "user"}, {"content", ""}});
}

void fill(OrderedJson& object, const char* name, const OrderedJson& value) {
  if (object[name].is_null()) object[name] = value;
}

void fill_tools(Conversation& conversation, void (*fill_parameters)(OrderedJson&)) {
  for (OrderedJson& tool : conversation.tools) {
    OrderedJson& function = tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object()) continue;
    fill(function, "description", "");
    fill(function, "parameters", OrderedJson::object());
    if (function["parameters"].is_object()) fill_parameters(function["parameters"]);
  }
}

void fill_parameters(OrderedJson& schema) {
  fill(schema, "type", "object");
  fill(schema, "properties", OrderedJson::object());
}

// Some templates write types of a programming language: they read a description and one type of each property.
void simplify_schema(OrderedJson& schema) {
  if (!schema.is_object()) return;
  fill(schema, "description", "");
  if (schema.contains("type")) {
    OrderedJson& type = schema["type"];
    if (type.is_array() && !type.empty()) type = OrderedJson(type[type[0] == "null" && type.size() > 1 ? 1 : 0]);
    if (type == "object") fill(schema, "additionalProperties", false);
  }
  if (schema.contains("items")) simplify_schema(schema["items"]);
  if (!schema.contains("properties")) return;
  for (OrderedJson& property : schema["properties"]) simplify_schema(property);
}

template <void (*change)(OrderedJson&)>
void change_arguments(Message& message) {
  for (OrderedJson* call : calls_of(message)) change((*call)["function"]["arguments"]);
}

// The object that a text contains, or one with the text as "arguments".
void make_object(OrderedJson& arguments) {
  if (arguments.is_object()) return;
  const auto* text = arguments.get_ptr<const std::string*>();
  OrderedJson parsed = OrderedJson::object();
  if (text && !text->empty() && parse_ordered_json(*text, "arguments", &parsed)) parsed = nullptr;
  const bool is_whole = parsed.is_object() && (text || arguments.is_null());
  arguments = is_whole ? std::move(parsed) : OrderedJson{{"arguments", std::move(arguments)}};
}

void print_object(OrderedJson& arguments) {
  if (!arguments.is_string()) arguments = arguments.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// Mistral's templates accept ids of nine letters and digits only. Equal ids stay equal.
void shorten_id(OrderedJson& id) {
  const std::string text = id.is_string() ? id.get<std::string>() : "";
  const bool fits = text.size() == 9 && std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c); });
  if (!fits) id = hash_text(hash_bytes(std::as_bytes(std::span(text)))).substr(0, 9);
}

void shorten_ids(Message& message) {
  if (is_from(message, "tool")) shorten_id(message["tool_call_id"]);
  for (OrderedJson* call : calls_of(message)) shorten_id((*call)["id"]);
}

// Most templates expect text, also instead of null.
void join_parts(Message& message) {
  if (find_text(message, "content")) return;
  std::string text;
  for (const OrderedJson& part : message["content"]) {
    const std::string* more = find_text(part, "text");
    if (!more) return;
    text += *more;
  }
  message["content"] = text;
}

template <void (*change)(Message&)>
void change_messages(Conversation& conversation) {
  for (Message& message : conversation.messages) change(message);
}

using C = Conversation&;
using M = const Message&;

struct Mend {
  const char* name;  // for reports: what was changed, and into which form
  void (*apply)(Conversation&);
  bool is_contents_shape = false;       // excludes the others of its kind
  bool is_part_of_strict_mode = false;  // changes no text, so strict mode has it too and reports omit it
};

// In the order in which they are tried and applied. None changes a conversation that it does not concern.
constexpr Mend kMends[] = {
    {"contents as text", change_messages<join_parts>, true},
    // DeepSeek's templates write tool calls only for messages whose content is null.
    {"empty contents as null", change_messages<[](Message& each) {
       if (each.contains("tool_calls") && each.contains("content") && each["content"] == "") each["content"] = nullptr;
     }>,
     true, true},
    // SmolVLM's templates read content as a list of parts only, and omit plain text.
    {"contents as parts", change_messages<[](Message& each) {
       if (each.contains("content")) make_parts(each["content"]);
     }>,
     true, true},
    {"developer as system", change_messages<[](Message& each) { rename_role(each, "developer", "system"); }>},
    {"system messages merged",
     [](C c) { merge(c, [](M m, M next) { return is_from(m, "system") && is_from(next, "system"); }); }},
    {"late system messages as user text", [](C c) { move_system(c, 1); }},
    {"system messages as user text", [](C c) { move_system(c, 0); }},
    {"tool results without calls as user text", rename_lone_results},
    {"user text merged into tool results",
     [](C c) { merge(c, [](M m, M next) { return is_from(m, "tool") && is_from(next, "user"); }); }},
    {"messages of one role merged",  // results of tools answer different calls
     [](C c) { merge(c, [](M m, M next) { return m["role"] == next["role"] && !is_from(m, "tool"); }); }},
    {"empty user message added", begin_with_user},
    // For templates that always write tools, such as a "tool_use" template that is the only one.
    {"no tools as an empty list",
     [](C c) {
       if (c.tools.is_null()) c.tools = OrderedJson::array();
     }},
    {"missing fields of tools added", [](C c) { fill_tools(c, fill_parameters); }},
    {"schemas of tools simplified", [](C c) { fill_tools(c, simplify_schema); }},
    {"arguments as an object", change_messages<change_arguments<make_object>>},
    {"arguments as text", change_messages<change_arguments<print_object>>},
    {"ids of calls shortened", change_messages<shorten_ids>},
    {"tool results as user text", change_messages<[](Message& each) { rename_role(each, "tool", "user"); }>},
};

// The longest run near the beginning of a text of characters that templates neither escape nor remove: results become
// JSON, and flags such as /no_think in system messages have no text of their own.
std::string_view probe_of(std::string_view text) {
  constexpr size_t kMaxBytes = 256;  // templates may cut long results
  std::string_view longest, rest = text.substr(0, kMaxBytes);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find_first_of("\t\n\r\"'\\/<>&:,[]{}"), rest.size());
    const std::string_view run = strip(rest.substr(0, end));
    if (run.size() > longest.size()) longest = run;
    rest.remove_prefix(std::min(rest.size(), end + 1));
  }
  return longest;
}

// A text that a prompt must not omit.
struct RequiredText {
  std::string_view text;
  bool is_in_order = true;  // templates may move system messages and tool results
  bool is_name = false;     // of a called function; templates without tools omit it
};

std::vector<RequiredText> required_texts(const OrderedJson& messages) {
  std::vector<RequiredText> out;
  const auto add = [&](const std::string* text, bool is_from_user) {
    if (text) out.push_back({is_from_user ? strip(*text) : probe_of(*text), is_from_user});
  };
  for (const Message& message : messages) {
    const bool is_from_user = is_from(message, "user");
    if (is_from(message, "assistant")) {
      for (const OrderedJson* call : calls_of(message)) {
        if (const std::string* name = find_text((*call)["function"], "name")) out.push_back({*name, true, true});
      }
    } else if (message.contains("content")) {
      add(find_text(message, "content"), is_from_user);
      if (!message["content"].is_array()) continue;
      for (const OrderedJson& part : message["content"]) add(find_text(part, "text"), is_from_user);
    }
  }
  return out;
}

// The number of required texts in a prompt. A missing one costs a search of the whole prompt, so kMaxMissing ends it.
size_t count_present(const std::vector<RequiredText>& required, const std::string& prompt) {
  constexpr size_t kMaxMissing = 16;
  std::string_view rest = prompt;
  size_t present = 0, missing = 0;
  for (const auto& [text, is_in_order, is_name] : required) {
    const std::string_view searched = is_in_order ? rest : prompt;
    const void* found = searched.data();
    if (!text.empty()) found = memmem(searched.data(), searched.size(), text.data(), text.size());
    if (!found && ++missing == kMaxMissing) break;
    if (found && is_in_order) rest.remove_prefix(static_cast<const char*>(found) - rest.data() + text.size());
    present += found != nullptr;
  }
  return present;
}

struct Rendering {
  std::vector<size_t> mends = {};  // indices in kMends, ascending
  Error failure = {};
  std::string text = {};
  size_t present = 0;  // required texts in it
};

// False if there was nothing to change.
bool apply(const Mend& mend, Conversation* conversation) {
  const Conversation before = *conversation;
  mend.apply(*conversation);
  return conversation->messages != before.messages || conversation->tools != before.tools;
}

// Renders one conversation with several sets of mends.
struct Renderer {
  const Conversation& conversation;
  const std::function<Error(const Conversation&, std::string*)>& render;
  const std::vector<RequiredText> required = required_texts(conversation.messages);
  std::vector<std::pair<std::vector<size_t>, Conversation>> shapes = {};
  size_t tries_left = std::max<size_t>(4, 20'000 / (conversation.messages.size() + 1));  // bounds the time

  bool is_done(const Rendering& best) const {
    return (!best.failure && best.present == required.size()) || tries_left == 0;
  }

  // Renders with these mends; with `min_present` required texts the result replaces *best.
  void attempt(const std::vector<size_t>& mends, const Conversation& mended, size_t min_present, Rendering* best) {
    Rendering now{.mends = mends};
    --tries_left;
    if (render(mended, &now.text)) return;
    now.present = count_present(required, now.text);
    if (now.present >= min_present) *best = std::move(now);
  }

  // Adds one mend after another to the conversation, until nothing is missing; of the shapes of contents each alone.
  void add(std::vector<size_t> mends, Conversation mended, bool adds_shapes, Rendering* best) {
    const size_t names = static_cast<size_t>(std::ranges::count(required, true, &RequiredText::is_name));
    for (size_t i = 0; i < std::size(kMends) && !is_done(*best); ++i) {
      if (kMends[i].is_contents_shape != adds_shapes) continue;
      if (conversation.is_strict && !kMends[i].is_part_of_strict_mode) continue;
      Conversation next = mended;
      if (!apply(kMends[i], &next)) continue;
      mends.push_back(i);
      attempt(mends, next, best->failure ? required.size() - names : best->present + 1, best);
      if (adds_shapes && !conversation.is_strict) shapes.emplace_back(mends, next);
      if (adds_shapes) mends.pop_back();
      if (!adds_shapes) mended = std::move(next);
    }
  }

  // Tries the shapes of contents alone, since many conversations need nothing else, then the other mends with each of
  // the shapes. Afterwards drops those that turn out to be superfluous, the last ones first, which change more.
  void mend(Rendering* best) {
    add({}, conversation, true, best);
    shapes.emplace(shapes.begin(), std::vector<size_t>(), conversation);
    for (const auto& [mends, mended] : shapes) add(mends, mended, false, best);
    for (size_t i = best->mends.size(); i-- > 0 && tries_left > 0;) {
      std::vector<size_t> fewer = best->mends;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      Conversation mended = conversation;
      for (const size_t each : fewer) kMends[each].apply(mended);
      attempt(fewer, mended, best->present, best);
    }
  }

  bool fails_alike(const Conversation& other, const Error& failure) const {
    std::string text;
    return render(other, &text).actual == failure.actual;
  }

  // The last item of the shortest beginning of a list that fails in the same way; -1 for an empty list.
  int64_t failing_item(OrderedJson Conversation::* list, const Error& failure) const {
    Conversation part = conversation;
    const OrderedJson& all = conversation.*list;
    int64_t passing = 0, failing = std::ssize(all);
    while (failing - passing > 1) {
      const int64_t middle = (passing + failing) / 2;
      part.*list = OrderedJson(OrderedJson::array_t(all.begin(), all.begin() + middle));
      (fails_alike(part, failure) ? failing : passing) = middle;
    }
    return failing - 1;
  }

  // The failure with the message or tool that causes it in place of the template.
  Error located(Error failure) const {
    int64_t item = failing_item(&Conversation::messages, failure);
    Conversation without_tools = conversation;
    without_tools.tools = nullptr;
    const bool is_tool = item <= 0 && conversation.tools.is_array() && !fails_alike(without_tools, failure);
    if (is_tool) item = failing_item(&Conversation::tools, failure);
    failure.where = (is_tool ? "tools" : "messages") + (item < 0 ? "" : "[" + std::to_string(item) + "]");
    return failure;
  }
};

}  // namespace

const std::string* find_text(const nlohmann::ordered_json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? &found->get_ref<const std::string&>() : nullptr;
}

Error render_mended(const Conversation& conversation,
                    const std::function<Error(const Conversation&, std::string*)>& render_as_given, std::string* out,
                    std::vector<std::string>* mended) {
  Renderer renderer{conversation, render_as_given};
  Rendering best;
  best.failure = render_as_given(conversation, &best.text);
  if (best.failure && best.failure.what != kTemplateFails) return best.failure;  // takes too long, for instance
  if (!best.failure) best.present = count_present(renderer.required, best.text);
  renderer.mend(&best);
  if (best.failure) return renderer.located(best.failure);
  for (const size_t i : best.mends) {
    if (mended != nullptr && !kMends[i].is_part_of_strict_mode) mended->emplace_back(kMends[i].name);
  }
  *out = std::move(best.text);
  return {};
}

}  // namespace pinion
