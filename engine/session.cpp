#include "engine/session.h"

#include <algorithm>

namespace pinion {

Error open_session(const Model& model, Team& team, const SessionOptions& options, std::unique_ptr<Session>* out) {
  const ModelConfig& c = model.config;
  const int64_t limit = context_length(c);
  if (options.prefill_chunk < 1) {
    return error("out of range", "prefill chunk", "at least 1", std::to_string(options.prefill_chunk));
  }
  auto session = std::make_unique<Session>();
  session->model = &model;
  session->team = &team;
  session->prefill_team = options.prefill_team ? options.prefill_team : &team;
  session->prefill_chunk = options.prefill_chunk;
  session->kernels = options.kernels;
  if (!options.kernels) {
    if (Error e = select_kernels({}, &session->kernels)) return e;
  }
  const int64_t positions = options.capacity > 0 ? std::min(options.capacity, limit) : limit;
  if (Error e = allocate_kv_cache(c.layers, c.kv_heads, c.head_dim, options.kv_float, positions, &session->cache)) {
    return e;
  }
  session->rope = rope_frequencies(c, 0);
  allocate_scratch(model, *session->kernels, std::min(options.prefill_chunk, positions), positions,
                   std::max(team.size(), session->prefill_team->size()), &session->scratch);
  *out = std::move(session);
  return {};
}

Error evaluate(Session& session, std::span<const int32_t> tokens, bool all, float* logits) {
  const ModelConfig& c = session.model->config;
  const int64_t start = std::ssize(session.ids);
  const int64_t count = std::ssize(tokens);
  if (start + count > session.cache.capacity) {
    return error("too many tokens", "context", "at most " + std::to_string(session.cache.capacity),
                 std::to_string(start + count));
  }
  for (const int32_t id : tokens) {
    if (id < 0 || id >= c.vocab_size) {
      return error("not in the vocabulary", "token id", "0 to " + std::to_string(c.vocab_size - 1), std::to_string(id));
    }
  }
  if (c.rope.kind == RopeKind::dynamic) session.rope = rope_frequencies(c, start + count);
  for (int64_t done = 0; done < count;) {
    const int64_t rows = std::min(session.prefill_chunk, count - done);
    const bool last = done + rows == count;
    const Pass pass{*session.model,
                    *session.kernels,
                    session.cache,
                    session.scratch,
                    session.rope,
                    tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(rows)),
                    start + done,
                    all    ? rows
                    : last ? 1
                           : 0,
                    all ? logits + done * c.vocab_size : logits,
                    session.profile};
    Team& team = rows > 1 ? *session.prefill_team : *session.team;
    team.run([&pass](Worker& worker) { forward(worker, pass); });
    done += rows;
  }
  session.ids.insert(session.ids.end(), tokens.begin(), tokens.end());
  return {};
}

void rewind(Session& session, int64_t position) {
  session.ids.resize(static_cast<size_t>(std::clamp<int64_t>(position, 0, std::ssize(session.ids))));
}

}  // namespace pinion
