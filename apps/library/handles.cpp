// Errors, models, texts, conversations and sessions for C.

#include "apps/library/interface.h"
#include "apps/model/build.h"
#include "engine/session/session_image.h"
#include "loader/checkpoint/model_folder.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

thread_local std::array<char, 2048> last_text = {};

// Calls set() with the index of a name in a table; without a name it does nothing.
template <class Names, class Set>
Error read_name(const char* given, const char* where, const Names& names, const Set& set) {
  if (!given) return {};
  const auto found = std::ranges::find(names, std::string_view(given));
  if (found == std::end(names)) {
    return error("no such name", where, joined({std::begin(names), std::end(names)}), "\"" + std::string(given) + "\"");
  }
  set(found - std::begin(names));
  return {};
}

Error read_run(const char* folder, const pinion_model_options& options, RunOptions* run) {
  run->model = find_model_folder(folder);
  const auto set_quant = [&](size_t i) {
    run->load.quant = static_cast<Quant>(i);
    run->quant_reason = kQuantRequested;
  };
  const auto set_head = [&](size_t i) { run->load.head = kHeadFormats[i]; };
  if (Error e = read_name(options.quant, "quant", kQuantNames, set_quant)) return e;
  if (Error e = read_name(options.head, "head", kHeadNames, set_head)) return e;
  if (Error e = read_name(options.kv, "kv", kKvNames, [&](size_t i) { run->kv = static_cast<KvType>(i); })) return e;
  if (Error e = read_texts(options.keep, options.keep_count, "keep", &run->load.keep)) return e;
  if (std::ranges::count(run->load.keep, "") > 0) return error("an empty pattern would keep all matrices", "keep");
  if (Error e = read_texts(options.lora, options.lora_count, "lora", &run->load.lora)) return e;
  if (Error e = check_range("threads", options.threads, 0, kMaxThreads)) return e;
  if (Error e = check_range("prefill_chunk", options.prefill_chunk, 0, 65536)) return e;
  run->team.threads = options.threads;
  run->team.prefill_chunk = options.prefill_chunk;
  run->no_rotate = options.no_rotate != 0;
  run->cores = text_or_empty(options.cores);
  run->kernels_name = text_or_empty(options.kernels);
  run->no_cache = options.no_cache != 0;
  run->calibrate = text_or_empty(options.calibrate);
  resolve_quant(run);
  return {};
}

Error open_shared(const pinion_model_options& options, OpenModel* model) {
  const RunOptions& run = model->run;
  if (Error e = check_model_folder(run.model)) return e;
  if (Error e = load_tokenizer_if_any(run.model, &model->tokenizer)) return e;
  // The caller's callbacks may run on any thread.
  const auto report = [options](pinion_message kind, const std::string& text) {
    if (options.on_message) options.on_message(options.user, kind, text.c_str());
  };
  const Note note = [report](const std::string& text) { report(PINION_NOTE, text); };
  LoadOptions load = run.load;
  if (!run.no_cache) load.cache_folder = options.cache_folder ? options.cache_folder : default_cache_folder();
  load.warn = [report](const Error& e) { report(PINION_WARNING, e.message()); };
  load.doubt = [report](const Error& e) { report(PINION_DOUBT, e.message()); };
  if (options.on_progress) {
    load.progress = [options](int64_t done, int64_t total) { options.on_progress(options.user, done, total); };
  }
  if (Error e = open_model(run, load, note, model->tokenizer.get(), &model->runtime)) return e;
  for (const std::string& text : model_notes(*model->runtime.model)) note(text);
  return {};
}

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

pinion_status evaluate_ids(pinion_session& handle, std::span<const int32_t> ids, bool all, float* logits, size_t room) {
  const PassLock lock(handle.model->passes);
  if (!lock.is_held()) return busy();
  Session& session = *handle.session;
  handle.interrupted = false;
  const int64_t tokens = std::ssize(session.sequence.ids) + std::ssize(ids);
  if (const int64_t capacity = session.sequence.cache.capacity; tokens > capacity) {
    const std::string most = at_most(capacity);
    return failed(PINION_ERROR_CONTEXT, error("too many tokens", "context", most, tokens));
  }
  if (Error e = check_ids(session.model->config, ids)) return invalid(e);
  const size_t written = (all ? ids.size() : 1) * session.model->config.vocab_size;
  if (logits && room < written) {
    return invalid(error("too small", "logits", std::to_string(written) + " numbers", room));
  }
  if (ids.empty()) return PINION_OK;
  if (Error e = evaluate(session, ids, all && logits, logits)) return failed(PINION_ERROR_RUN, e);
  return PINION_OK;
}

}  // namespace

pinion_status failed(pinion_status status, std::string_view text) noexcept {
  size_t bytes = std::min(text.size(), last_text.size() - 1);
  while (bytes > 0 && bytes < text.size() && !begins_character(text[bytes])) --bytes;
  std::ranges::copy(text.substr(0, bytes), last_text.begin());
  last_text[bytes] = '\0';
  return status;
}

PassLock::PassLock(PassMutex& passes) : passes_(passes) {
  if (passes.owner.load() == std::this_thread::get_id()) return;
  lock_ = std::unique_lock(passes.mutex);
  passes.owner = std::this_thread::get_id();
  has_affinity_ = sched_getaffinity(0, sizeof affinity_, &affinity_) == 0;
}

PassLock::~PassLock() {
  if (!is_held()) return;
  Team::unpin_caller();  // updates the team's record of the thread, too
  if (has_affinity_) sched_setaffinity(0, sizeof affinity_, &affinity_);
  passes_.owner = std::thread::id();
}

}  // namespace pinion

using namespace pinion;

const char* pinion_error_text() { return last_text.data(); }

uint32_t pinion_api_version() { return PINION_API_VERSION; }

const char* pinion_version() { return PINION_VERSION; }

const char* pinion_build() {
  try {
    static const std::string text = build_text();
    return text.c_str();
  } catch (const std::bad_alloc&) {
    return "pinion " PINION_VERSION;
  }
}

void pinion_free(void* memory) { std::free(memory); }

pinion_status pinion_model_open(const char* folder, const pinion_model_options* options, pinion_model** out) {
  if (out) *out = nullptr;
  return guarded({{"out", out}, {"folder", folder}}, [&] {
    pinion_model_options given;
    if (Error e = read_options(options, "options", &given)) return invalid(e);
    auto handle = std::make_unique<pinion_model>(std::make_shared<OpenModel>());
    if (Error e = read_run(folder, given, &handle->shared->run)) return invalid(e);
    static PassMutex opening;  // starting threads and choosing cores affects the whole process (engine/team/team.h)
    const PassLock lock(opening);
    if (!lock.is_held()) return busy();
    if (Error e = open_shared(given, handle->shared.get())) return status_of(e, PINION_ERROR_MODEL);
    *out = handle.release();
    return PINION_OK;
  });
}

void pinion_model_close(pinion_model* model) { delete model; }

pinion_status pinion_model_describe(const pinion_model* model, pinion_model_info* out) {
  return guarded({{"model", model}, {"out", out}}, [&] {
    const OpenModel& shared = *model->shared;
    const Model& weights = *shared.runtime.model;
    const pinion_model_info info = {
        .size = out->size,
        .family = weights.config.family.c_str(),
        .quant = quant_name(shared.run).data(),  // of a literal, as .kv
        .kv = kv_name(shared.run).data(),
        .kernels = shared.runtime.kernels->name,
        .threads = shared.runtime.team->size(),
        .has_tokenizer = shared.tokenizer != nullptr,
        .vocab_size = weights.config.vocab_size,
        .context_length = context_length(weights.config),
        .weight_bytes = weights.weight_bytes,
        .from_cache = weights.from_cache(),
    };
    if (out->size < sizeof out->size || out->size > sizeof info) {
      const std::string most = at_most(sizeof info) + " bytes";
      return invalid(error("wrong size", "out", most, out->size));
    }
    std::memcpy(out, &info, out->size);
    return PINION_OK;
  });
}

pinion_status pinion_model_end_ids(const pinion_model* model, int32_t** out, size_t* count) {
  return guarded({{"model", model}, {"out or count", out && count}},
                 [&] { return give_ids(model->shared->runtime.model->eos_ids, out, count); });
}

// --- Texts, conversations and sessions

pinion_status pinion_tokenize(const pinion_model* model, const char* text, size_t bytes, int add_special, int32_t** out,
                              size_t* count) {
  return guarded({{"model", model}, {"out or count", out && count}, {"text", text || bytes == 0}}, [&] {
    const OpenModel& shared = *model->shared;
    if (!shared.tokenizer) return failed(PINION_ERROR_MODEL, no_tokenizer(shared));
    std::vector<int32_t> ids;
    const std::string_view all = text ? std::string_view(text, bytes) : std::string_view();
    if (Error e = encode(*shared.tokenizer, all, {.add_special = add_special != 0}, &ids)) return invalid(e);
    return give_ids(ids, out, count);
  });
}

pinion_status pinion_detokenize(const pinion_model* model, const int32_t* ids, size_t count, int keep_special,
                                char** out, size_t* bytes) {
  return guarded({{"model", model}, {"out", out}, {"ids", ids || count == 0}}, [&] {
    const OpenModel& shared = *model->shared;
    if (!shared.tokenizer) return failed(PINION_ERROR_MODEL, no_tokenizer(shared));
    const std::span<const int32_t> all(ids, count);
    if (Error e = check_ids(*shared.tokenizer, all)) return invalid(e);
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
    if (Error e = read_options(chat, "chat", &given)) return invalid(e);
    OpenModel& shared = *model->shared;
    if (ids && !shared.tokenizer) return failed(PINION_ERROR_MODEL, no_tokenizer(shared));
    Conversation conversation;
    if (Error e = read_conversation(given, &conversation)) return invalid(e);
    std::shared_ptr<const ChatTemplate> chat_template;
    if (Error e = find_template(shared, &chat_template)) return failed(PINION_ERROR_TEMPLATE, e);
    if (Error e = check_variables(*chat_template, conversation, "variables: ")) return invalid(e);
    Prompt prompt;
    const Error e = ids ? make_prompt(*chat_template, *shared.tokenizer, conversation, &prompt)
                        : render(*chat_template, conversation, &prompt.text);
    if (e) return failed(PINION_ERROR_TEMPLATE, e);
    if (text && prompt.text.find('\0') != std::string::npos) {
      return invalid(error("the prompt has a character that ends C's texts", "chat", {}, "\\u0000"));
    }
    std::unique_ptr<char, decltype(&pinion_free)> text_copy(text ? copy_of(prompt.text) : nullptr, pinion_free);
    if (ids) give_ids(prompt.ids, ids, count);
    if (text) *text = text_copy.release();
    return PINION_OK;
  });
}

pinion_status pinion_session_open(pinion_model* model, int64_t context, pinion_session** out) {
  if (out) *out = nullptr;
  return guarded({{"out", out}, {"model", model}}, [&] {
    if (context < 0) return invalid(error("negative", "context", {}, context));
    auto handle = std::make_unique<pinion_session>();
    handle->model = model->shared;
    const PassLock lock(handle->model->passes);
    if (!lock.is_held()) return busy();
    const int64_t capacity = context > 0 ? context : fitting_context(handle->model->runtime);
    if (Error e = open_session(handle->model->runtime, {.context = capacity}, &handle->session)) {
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
    if (Error e = check_range("tokens", tokens, 0, std::ssize(sequence.ids))) return invalid(e);
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
    if (session->session->sequence.ids.empty()) return invalid(error("holds no token", "session"));
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
