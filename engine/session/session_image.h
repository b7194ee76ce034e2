// A session as bytes, to go on with later or on another machine: the ids, the keys and values of all but the last
// tokens, and the latest snapshot of a recurrent state. Little-endian, in this order:
//
//   header | ids [tokens] int32, padded to 8 bytes | chunks of the KV cache that hold `held` tokens | state after
//   `held`
//
// Checked when an image is restored are its length, the shapes of cache and state, a checksum against damage (no
// signature: who makes an image can make it fit) and the logits: what follows the held tokens (the last one, or those
// after the snapshot) is evaluated anew and must give the bits that it gave when the image was made. Another model,
// config or mode is noticed by those logits alone: a change that leaves them as they were passes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/session/session.h"
#include "kernels/error.h"

namespace pinion {

struct ImageHeader {
  char magic[8];
  int64_t layers, kv_heads, head_dim, is_float;  // of the KV cache
  int64_t state_bytes;                           // of a recurrent state, 0 without one
  int64_t tokens;
  int64_t held;
  uint64_t logits_hash;  // after all tokens
  uint64_t checksum;     // of all that stands before and after it
};

// The pieces of an image, in order. They lie partly in the session, which must not change before they are written.
struct SessionImage {
  ImageHeader header;
  std::vector<int32_t> ids;
  std::vector<std::span<const std::byte>> parts;
};

// Of a session that holds at least one token. Evaluates the last of them again.
Error make_image(Session& session, std::unique_ptr<SessionImage>* out);

// Replaces what the session holds. Errors: damaged, not of this model, more tokens than the session can hold; the
// session is empty then. `where` names the image in errors.
Error restore_image(std::span<const std::byte> image, const std::string& where, Session* session);

}  // namespace pinion
