// Texts, tokens, conversations and sessions for C.
#include <memory>

#include "apps/library/interface.h"
#include "apps/library/owned.h"
#include "apps/model/open.h"
#include "engine/session/session_image.h"
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

// Fails if evaluate() would write more numbers than fit.
Error check_room(const Session& session, size_t count, bool all, const float* logits, size_t room) {
  if (!logits) return {};
  const size_t want = (all ? count : 1) * session.model->config.vocab_size;
  if (room >= want) return {};
  return error("too small", "logits", std::to_string(want) + " numbers", std::to_string(room));
}

pinion_status evaluate_ids(pinion_session& handle, std::span<const int32_t> ids, bool all, float* logits, size_t room) {
  const PassLock lock(handle.model->passes);
  if (!lock.is_held()) return busy();
  Session& session = *handle.session;
  handle.interrupted = false;
  const int64_t tokens = std::ssize(session.sequence.ids) + std::ssize(ids);
  if (const int64_t capacity = session.sequence.cache.capacity; tokens > capacity) {
    const std::string most = "at most " + std::to_string(capacity);
    return failed(PINION_ERROR_CONTEXT, error("too many tokens", "context", most, std::to_string(tokens)));
  }
  if (Error e = check_ids(session.model->config, ids)) return failed(PINION_ERROR_ARGUMENT, e);
  if (Error e = check_room(session, ids.size(), all, logits, room)) return failed(PINION_ERROR_ARGUMENT, e);
  if (ids.empty()) return PINION_OK;
  if (Error e = evaluate(session, ids, all && logits, logits)) return failed(PINION_ERROR_RUN, e);
  return PINION_OK;
}

}  // namespace
}  // namespace pinion

using namespace pinion;

pinion_status pinion_tokenize(const pinion_model* model, const char* text, size_t bytes, int add_special, int32_t** out,
                              size_t* count) {
  return guarded({{"model", model}, {"out or count", out && count}, {"text", text || bytes == 0}}, [&] {
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
  return guarded({{"model", model}, {"out", out}, {"ids", ids || count == 0}}, [&] {
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
  return guarded({{"model", model}, {"chat", chat}, {"count", count || !ids}}, [&] {
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

pinion_status pinion_session_open(pinion_model* model, int64_t context, pinion_session** out) {
  return guarded([&] {
    if (!out) return missing("out");
    *out = nullptr;
    if (!model) return missing("model");
    if (context < 0) return failed(PINION_ERROR_ARGUMENT, error("negative", "context", {}, std::to_string(context)));
    auto handle = std::make_unique<pinion_session>();
    handle->model = model->shared;
    const PassLock lock(handle->model->passes);
    if (!lock.is_held()) return busy();
    const int64_t capacity = context > 0 ? context : fitting_context(handle->model->runtime);
    if (Error e = open_session(handle->model->runtime, {.capacity = capacity}, &handle->session)) {
      return failed(PINION_ERROR_MEMORY, e);
    }
    handle->session->interrupted = &handle->interrupted;
    *out = handle.release();
    return PINION_OK;
  });
}

void pinion_session_close(pinion_session* session) { delete session; }

int64_t pinion_session_context(const pinion_session* session) {
  return session ? session->session->sequence.cache.capacity : 0;
}

pinion_status pinion_session_ids(const pinion_session* session, int32_t** out, size_t* count) {
  return guarded({{"session", session}, {"out or count", out && count}},
                 [&] { return give_ids(session->session->sequence.ids, out, count); });
}

pinion_status pinion_session_evaluate(pinion_session* session, const int32_t* ids, size_t count, int all, float* logits,
                                      size_t room) {
  return guarded({{"session", session}, {"ids", ids || count == 0}},
                 [&] { return evaluate_ids(*session, {ids, count}, all != 0, logits, room); });
}

pinion_status pinion_session_rewind(pinion_session* session, int64_t tokens, int64_t* left) {
  return guarded({{"session", session}}, [&] {
    const PassLock lock(session->model->passes);
    if (!lock.is_held()) return busy();
    Sequence& sequence = session->session->sequence;
    if (Error e = check_range("tokens", tokens, 0, std::ssize(sequence.ids))) return failed(PINION_ERROR_ARGUMENT, e);
    const int64_t held = rewind(sequence, tokens);
    if (left) *left = held;
    return PINION_OK;
  });
}

void pinion_session_interrupt(pinion_session* session) {
  if (session) session->interrupted = true;
}

pinion_status pinion_session_save(pinion_session* session, void** out, size_t* bytes) {
  return guarded({{"session", session}, {"out or bytes", out && bytes}}, [&] {
    const PassLock lock(session->model->passes);
    if (!lock.is_held()) return busy();
    session->interrupted = false;
    if (session->session->sequence.ids.empty()) {
      return failed(PINION_ERROR_ARGUMENT, error("holds no token", "session"));
    }
    std::unique_ptr<SessionImage> image;
    if (Error e = make_image(*session->session, &image)) return failed(PINION_ERROR_RUN, e);
    size_t total = 0;
    for (const std::span<const std::byte> part : image->parts) total += part.size();
    auto* copy = allocate<std::byte>(total);
    auto* end = copy;
    for (const std::span<const std::byte> part : image->parts) end = std::ranges::copy(part, end).out;
    *out = copy;
    *bytes = total;
    return PINION_OK;
  });
}

pinion_status pinion_session_load(pinion_session* session, const void* state, size_t bytes) {
  return guarded({{"session", session}, {"state", state}}, [&] {
    const PassLock lock(session->model->passes);
    if (!lock.is_held()) return busy();
    session->interrupted = false;
    const std::span image(static_cast<const std::byte*>(state), bytes);
    if (Error e = restore_image(image, "state", session->session.get())) return failed(PINION_ERROR_STATE, e);
    return PINION_OK;
  });
}
