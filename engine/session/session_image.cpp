#include "engine/session/session_image.h"

#include "kernels/base/hash.h"

namespace pinion {
namespace {

int64_t padded_ids(int64_t tokens) { return round_up(tokens, 2); }

ImageHeader header_of(const Session& session) {
  const KvShape& cache = session.pool.shape;
  return {.layers = std::ssize(cache.layers),
          .kv_heads = cache.layers[0].kv_heads,
          .head_dim = cache.layers[0].head_dim,
          .kv_type = static_cast<int64_t>(cache.type()),
          .state_bytes = session.sequence.state.bytes()};
}

uint64_t checksum(ImageHeader header, std::span<const std::span<const std::byte>> parts) {
  header.checksum = 0;
  uint64_t hash = hash_words(kHashSeed, std::as_bytes(std::span(&header, 1)));
  for (const std::span<const std::byte> part : parts) hash = hash_words(hash, part);
  return hash;
}

// Cache blocks of the first `tokens` tokens.
std::vector<std::span<std::byte>> blocks_of(const Session& session, int64_t tokens) {
  std::vector<std::span<std::byte>> blocks;
  for (int64_t i = 0; i < KvShape::chunks_of(tokens); ++i) {
    const int32_t index = session.sequence.cache.blocks[i];
    blocks.emplace_back(session.pool.block(index), session.pool.shape.block_bytes());
  }
  return blocks;
}

// Zeroes the unused positions of the last block: an image must not depend on dropped tokens.
void clear_unused_positions(Session& session) {
  const int64_t tokens = std::ssize(session.sequence.ids);
  const int64_t end = round_up(tokens, kAttentionChunk);
  for (int64_t position = tokens; position < end; ++position) session.sequence.cache.clear(position);
}

// Evaluates the tokens that the session does not hold, and hashes the logits of the last one.
Error evaluate_rest(Session& session, std::span<const int32_t> ids, uint64_t* hash) {
  std::vector<float> logits(session.model->config.vocab_size);
  if (Error e = evaluate(session, ids.subspan(session.sequence.ids.size()), false, logits.data())) return e;
  *hash = hash_floats(kHashSeed, logits);
  return {};
}

// Reads the header and checks it against the session, the length and the checksum.
Error read_header(std::span<const std::byte> image, const std::string& where, const Session& session, ImageHeader* to) {
  ImageHeader& h = *to;
  if (image.size() < sizeof h) return error("not a session image", where);
  std::memcpy(&h, image.data(), sizeof h);
  const ImageHeader expected = header_of(session);
  if (std::memcmp(h.magic, expected.magic, sizeof h.magic) != 0) return error("not a session image", where);
  if (h.layers != expected.layers || h.kv_heads != expected.kv_heads || h.head_dim != expected.head_dim ||
      h.kv_type != expected.kv_type || h.state_bytes != expected.state_bytes) {
    return error("its KV cache has another shape than this model's", where);
  }
  if (h.tokens < 1 || h.tokens > session.sequence.cache.capacity) {
    return error("does not fit", where, at_most(session.sequence.cache.capacity) + " tokens", h.tokens);
  }
  if (h.held < 0 || h.held >= h.tokens) return error("damaged", where);
  const int64_t bytes = std::ssize(image) - static_cast<int64_t>(sizeof h);
  const int64_t expected_bytes =
      padded_ids(h.tokens) * 4 + session.pool.shape.bytes(h.held) + (h.held > 0 ? h.state_bytes : 0);
  if (bytes != expected_bytes) return error("damaged", where, std::to_string(expected_bytes) + " bytes", bytes);
  const std::span<const std::byte> contents = image.subspan(sizeof h);
  if (h.checksum != checksum(h, {&contents, 1})) return error("damaged", where);
  return {};
}

Error check_boards(const Session& session) {
  return session.model->exchange ? error("cannot be saved or restored on several boards", "session") : Error{};
}

// Copies cache and state of the held tokens into the session. contents: the image after its ids.
void load_held(std::span<const int32_t> held, std::span<const std::byte> contents, Session* session) {
  session->sequence.ids.assign(held.begin(), held.end());
  take_blocks(&session->sequence.cache, std::ssize(held));
  const std::byte* from = contents.data();
  for (const std::span<std::byte> block : blocks_of(*session, std::ssize(held))) {
    from = std::ranges::copy_n(from, std::ssize(block), block.data()).in;
  }
  if (session->sequence.state.layers == 0 || held.empty()) return;
  std::memcpy(session->sequence.state.memory.data, from, session->sequence.state.bytes());
  keep_snapshot(*session);
}

}  // namespace

Error make_image(Session& session, std::unique_ptr<SessionImage>* out) {
  if (Error e = check_boards(session)) return e;
  if (session.sequence.ids.empty()) return error("empty", "session", "at least one token");
  auto image = std::make_unique<SessionImage>();
  image->ids = session.sequence.ids;
  const int64_t tokens = std::ssize(session.sequence.ids);
  apply_drafts(*session.kernels, session.model->layers, tokens, &session.sequence.state);
  const int64_t held = rewind(session.sequence, tokens - 1);
  ImageHeader& header = image->header;
  header = header_of(session);
  header.tokens = tokens;
  header.held = held;
  if (Error e = evaluate_rest(session, image->ids, &header.logits_hash)) return e;
  clear_unused_positions(session);
  image->ids.resize(padded_ids(tokens));
  image->parts = {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(image->ids))};
  std::ranges::copy(blocks_of(session, held), std::back_inserter(image->parts));
  const Sequence& sequence = session.sequence;
  if (sequence.state.layers > 0 && held > 0) {
    const Arena& state = sequence.snapshots.saved.back()->memory;
    image->parts.push_back({state.data, static_cast<size_t>(sequence.state.bytes())});
  }
  header.checksum = checksum(header, std::span(image->parts).subspan(1));
  *out = std::move(image);
  return {};
}

Error restore_image(std::span<const std::byte> image, const std::string& where, Session* session) {
  if (Error e = check_boards(*session)) return e;
  rewind(session->sequence, 0);
  ImageHeader header;
  if (Error e = read_header(image, where, *session, &header)) return e;
  std::vector<int32_t> ids(header.tokens);
  const std::span<const std::byte> contents = image.subspan(sizeof header);
  std::memcpy(ids.data(), contents.data(), ids.size() * 4);
  const auto known = [&](int32_t id) { return id >= 0 && id < session->model->config.vocab_size; };
  if (!std::ranges::all_of(ids, known)) return error("not of this model: ids outside its vocabulary", where);
  session->sequence.long_factors = uses_long_factors(session->model->config, header.tokens);
  session->sequence.ropes = rope_frequencies(session->model->config, header.tokens);
  load_held(std::span(ids).first(header.held), contents.subspan(padded_ids(header.tokens) * 4), session);
  uint64_t hash = 0;
  Error e = evaluate_rest(*session, ids, &hash);
  if (!e && hash != header.logits_hash) e = error("not of this model: different logits", where);
  if (e) rewind(session->sequence, 0);
  return e;
}

}  // namespace pinion
