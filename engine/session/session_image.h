// A session as bytes, to go on with later or on another machine. Little-endian, in this order:
//
//   header
//   ids     int32 [tokens], padded to 8 bytes
//   cache   the KV cache's chunks with the first `held` tokens
//   state   the recurrent state after `held` tokens, if the model has one
//
// `held` is less than `tokens`: all but the last token, or what the latest snapshot holds. The tokens after it are
// evaluated again when the image is restored, and their logits must have the bits that they had when it was made. So
// another model, config or mode is noticed, unless it leaves those logits as they were. Length, shapes and a checksum
// are looked at before. The checksum is against damage; it is no signature.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/session/session.h"
#include "kernels/base/error.h"

namespace pinion {

struct ImageHeader {
  char magic[8];
  int64_t layers, kv_heads, head_dim, kv_type;  // of the KV cache
  int64_t state_bytes;                          // of a recurrent state, 0 without one
  int64_t tokens;
  int64_t held;
  uint64_t logits_hash;  // after all tokens
  uint64_t checksum;     // of all that stands before and after it
};

// The pieces of an image, in order. They lie partly in the session, which must not change before they are written.
struct SessionImage {
  ImageHeader header;
  std::vector<int32_t> ids;  // padded to 8 bytes, as in the image
  std::vector<std::span<const std::byte>> parts;
};

// Of a session that holds at least one token, and of a model that is on one board. Evaluates the last of them again.
Error make_image(Session& session, std::unique_ptr<SessionImage>* out);

// Replaces what the session holds. Errors: damaged, not of this model, more tokens than the session can hold; the
// session is empty then. `where` names the image in errors.
Error restore_image(std::span<const std::byte> image, const std::string& where, Session* session);

}  // namespace pinion
