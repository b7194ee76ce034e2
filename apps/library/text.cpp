// Texts, tokens and conversations for C.
#include <memory>

#include "apps/library/interface.h"
#include "apps/library/owned.h"
#include "loader/files/json.h"

namespace pinion {
namespace {

Error no_tokenizer(const OpenModel& model) { return error("has no tokenizer", model.run.model); }

// Reads the template at the first use, so that a broken one does not prevent other uses of the folder.
Error find_template(OpenModel& model, std::shared_ptr<const ChatTemplate>* out) {
  const std::lock_guard lock(model.template_mutex);
  if (!model.is_template_read) {
    if (Error e = load_chat_template(model.run.model, &model.chat_template)) return e;
    model.is_template_read = true;
  }
  *out = model.chat_template;
  return *out ? Error{} : error("no chat template", model.run.model);
}

Error read_conversation(const pinion_chat& chat, Conversation* out) {
  if (!chat.messages) return error("NULL", "messages", "a list of messages as JSON");
  if (Error e = parse_ordered_json(chat.messages, "messages", &out->messages)) return e;
  if (Error e = check_messages(out->messages)) return e;
  if (chat.tools) {
    if (Error e = parse_ordered_json(chat.tools, "tools", &out->tools)) return e;
    if (!out->tools.is_array()) return error("wrong type", "tools", "a list of tools");
  }
  if (chat.variables) {
    if (Error e = parse_ordered_json(chat.variables, "variables", &out->variables)) return e;
    if (!out->variables.is_object()) return error("wrong type", "variables", "an object");
  }
  out->add_generation_prompt = chat.no_generation_prompt == 0;
  out->continue_final_message = chat.continue_final_message != 0;
  out->template_name = text_or_empty(chat.template_name);
  return {};
}

Error check_variables(const ChatTemplate& chat_template, const Conversation& conversation) {
  for (const auto& [name, value] : conversation.variables.items()) {
    if (defines_variable(chat_template, name)) {
      return error("cannot be set here: an option or the folder sets it", "variables", {}, brief(Json(name)));
    }
  }
  return {};
}

}  // namespace
}  // namespace pinion

using namespace pinion;

pinion_status pinion_tokenize(const pinion_model* model, const char* text, size_t bytes, int add_special, int32_t** out,
                              size_t* count) {
  return guarded([&] {
    if (!model) return missing("model");
    if (!out || !count) return missing("out or count");
    if (!text && bytes > 0) return missing("text");
    const OpenModel& shared = *model->shared;
    if (!shared.tokenizer) return failed(PINION_ERROR_MODEL, no_tokenizer(shared));
    std::vector<int32_t> ids;
    const std::string_view all = text ? std::string_view(text, bytes) : std::string_view();
    if (Error e = encode(*shared.tokenizer, all, {.add_special = add_special != 0}, &ids)) {
      return failed(PINION_ERROR_ARGUMENT, e);
    }
    return give_ids(ids, out, count);
  });
}

pinion_status pinion_detokenize(const pinion_model* model, const int32_t* ids, size_t count, int keep_special,
                                char** out, size_t* bytes) {
  return guarded([&] {
    if (!model) return missing("model");
    if (!out) return missing("out");
    if (!ids && count > 0) return missing("ids");
    const OpenModel& shared = *model->shared;
    if (!shared.tokenizer) return failed(PINION_ERROR_MODEL, no_tokenizer(shared));
    const std::span<const int32_t> all(ids, count);
    if (Error e = check_ids(*shared.tokenizer, all)) return failed(PINION_ERROR_ARGUMENT, e);
    const std::string text = decode(*shared.tokenizer, all, keep_special == 0);
    *out = copy_of(text);
    if (bytes) *bytes = text.size();
    return PINION_OK;
  });
}

pinion_status pinion_chat_render(const pinion_model* model, const pinion_chat* chat, char** text, int32_t** ids,
                                 size_t* count) {
  return guarded([&] {
    if (!model) return missing("model");
    if (!chat) return missing("chat");
    if (ids && !count) return missing("count");
    pinion_chat given;
    if (Error e = read_options(chat, "chat", &given)) return failed(PINION_ERROR_ARGUMENT, e);
    OpenModel& shared = *model->shared;
    if (ids && !shared.tokenizer) return failed(PINION_ERROR_MODEL, no_tokenizer(shared));
    Conversation conversation;
    if (Error e = read_conversation(given, &conversation)) return failed(PINION_ERROR_ARGUMENT, e);
    std::shared_ptr<const ChatTemplate> chat_template;
    if (Error e = find_template(shared, &chat_template)) return failed(PINION_ERROR_TEMPLATE, e);
    if (Error e = check_variables(*chat_template, conversation)) return failed(PINION_ERROR_ARGUMENT, e);
    Prompt prompt;
    const Error e = ids ? make_prompt(*chat_template, *shared.tokenizer, conversation, &prompt)
                        : render(*chat_template, conversation, &prompt.text);
    if (e) return failed(PINION_ERROR_TEMPLATE, e);
    if (text && prompt.text.find('\0') != std::string::npos) {
      return failed(PINION_ERROR_ARGUMENT,
                    error("the prompt has a character that ends C's texts", "chat", {}, "\\u0000"));
    }
    std::unique_ptr<char, Closes<pinion_free>> text_copy(text ? copy_of(prompt.text) : nullptr);
    if (ids) give_ids(prompt.ids, ids, count);
    if (text) *text = text_copy.release();
    return PINION_OK;
  });
}
