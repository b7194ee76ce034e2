// A session as bytes, to be continued later or on another machine. Little-endian:
//
//   header
//   ids     int32 [tokens], padded to 8 bytes
//   cache   KV cache blocks of the first `held` tokens
//   state   recurrent state after `held` tokens, if the model has one
//
// `held`, below `tokens`, is all tokens except the last one, or those of the latest snapshot. Restoring evaluates the
// other tokens again and compares the bits of the last token's logits, which detects another model, config or mode.
// Length, shapes and a checksum are checked first. The checksum detects damage; it is no signature.
#pragma once

#include "engine/session/session.h"

namespace pinion {

struct ImageHeader {
  char magic[8] = {'p', 'i', 'n', 'i', 'o', 'n', 'S', '3'};
  int64_t layers, kv_heads, head_dim, kv_type;  // of the KV cache; sizes of its first layer
  int64_t state_bytes;                          // of the recurrent state; 0: none
  int64_t tokens = 0;
  int64_t held = 0;
  uint64_t logits_hash = 0;  // after all tokens
  uint64_t checksum = 0;     // of all other bytes of the image
};

// The bytes of an image. `parts` refer to memory of the session, which must not change before they are written.
struct SessionImage {
  ImageHeader header;
  std::vector<int32_t> ids;                       // padded to 8 bytes, as in the image
  std::vector<std::span<const std::byte>> parts;  // in order
};

// The session holds at least one token, of a model on one board. Evaluates at least the last token again.
Error make_image(Session& session, std::unique_ptr<SessionImage>* out);

// Replaces the tokens of the session; after an error (damage, another model, too many tokens) it is empty. where: for
// errors.
Error restore_image(std::span<const std::byte> image, const std::string& where, Session* session);

}  // namespace pinion
