// Sessions for C.

#include "apps/library/interface.h"
#include "apps/model/open.h"
#include "engine/session/session_image.h"

namespace pinion {
namespace {

pinion_status does_not_fit(const Session& session, int64_t tokens) {
  return failed(PINION_ERROR_CONTEXT,
                error("too many tokens", "context", "at most " + std::to_string(session.sequence.cache.capacity),
                      std::to_string(tokens)));
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
  if (tokens > session.sequence.cache.capacity) return does_not_fit(session, tokens);
  if (Error e = check_ids(session.model->config, ids)) return failed(PINION_ERROR_ARGUMENT, e);
  if (Error e = check_room(session, ids.size(), all, logits, room)) return failed(PINION_ERROR_ARGUMENT, e);
  if (ids.empty()) return PINION_OK;
  if (Error e = evaluate(session, ids, all && logits, logits)) return failed(PINION_ERROR_RUN, e);
  return PINION_OK;
}

}  // namespace
}  // namespace pinion

using namespace pinion;

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
  return guarded([&] {
    if (!session) return missing("session");
    if (!out || !count) return missing("out or count");
    return give_ids(session->session->sequence.ids, out, count);
  });
}

pinion_status pinion_session_evaluate(pinion_session* session, const int32_t* ids, size_t count, int all, float* logits,
                                      size_t room) {
  return guarded([&] {
    if (!session) return missing("session");
    if (!ids && count > 0) return missing("ids");
    return evaluate_ids(*session, {ids, count}, all != 0, logits, room);
  });
}

pinion_status pinion_session_rewind(pinion_session* session, int64_t tokens, int64_t* left) {
  return guarded([&] {
    if (!session) return missing("session");
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
  return guarded([&] {
    if (!session) return missing("session");
    if (!out || !bytes) return missing("out or bytes");
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
  return guarded([&] {
    if (!session) return missing("session");
    if (!state) return missing("state");
    const PassLock lock(session->model->passes);
    if (!lock.is_held()) return busy();
    session->interrupted = false;
    const std::span image(static_cast<const std::byte*>(state), bytes);
    if (Error e = restore_image(image, "state", session->session.get())) return failed(PINION_ERROR_STATE, e);
    return PINION_OK;
  });
}
