// Arbitrary bytes as a session image, and valid images with overwritten words and a correct checksum: refused with the
// session left empty, or a session that can continue.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/load.h"
#include "engine/session/session_image.h"
#include "kernels/base/hash.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"

namespace {

using pinion::failed;
using pinion::require;
using Bytes = std::vector<std::byte>;

void correct_checksum(Bytes& image) {
  pinion::ImageHeader header;
  if (image.size() % 4 != 0) return;
  std::memcpy(&header, image.data(), sizeof header);
  header.checksum = 0;
  const uint64_t hash = pinion::hash_words(pinion::kHashSeed, std::as_bytes(std::span(&header, 1)));
  header.checksum = pinion::hash_words(hash, std::span(image).subspan(sizeof header));
  std::memcpy(image.data(), &header, sizeof header);
}

// Overwrites words of the image by pairs of offset and word; appends the rest of the input.
Bytes patched(Bytes image, std::span<const std::byte> input) {
  struct Patch {
    uint32_t offset, word;
  } patch;
  for (; input.size() >= sizeof patch; input = input.subspan(sizeof patch)) {
    std::memcpy(&patch, input.data(), sizeof patch);
    std::memcpy(image.data() + patch.offset % (image.size() - 3), &patch.word, sizeof patch.word);
  }
  image.insert(image.end(), input.begin(), input.end());
  correct_checksum(image);
  return image;
}

// A session of a small model, with its image.
struct Case {
  std::unique_ptr<pinion::Model> model;
  pinion::Team team{{-1}};
  std::unique_ptr<pinion::Session> session;
  Bytes image;

  Case(const std::string& name, pinion::KvType kv, int32_t tokens) {
    const std::string folder = PINION_TEST_DATA "/families/" + name;
    require(!pinion::load_model(folder, {.quant = pinion::Quant::w8a8}, &model));
    require(!pinion::open_session(*model, team, {.kv = kv}, &session));
    std::vector<float> logits(static_cast<size_t>(model->config.vocab_size));
    for (int32_t id = 0; id < tokens; ++id) {
      const int32_t known = id % 29;
      if (id == tokens - 1 && session->sequence.state.layers > 0) pinion::keep_snapshot(*session);
      require(!pinion::evaluate(*session, {&known, 1}, false, logits.data()));
    }
    std::unique_ptr<pinion::SessionImage> made;
    require(!pinion::make_image(*session, &made));
    for (const std::span<const std::byte> part : made->parts) image.insert(image.end(), part.begin(), part.end());
    Bytes same = image;
    correct_checksum(same);
    require(same == image);
  }

  void restore(std::span<const std::byte> bytes) {
    const bool refused = failed(pinion::restore_image(bytes, "image", session.get()));
    require(refused == session->sequence.ids.empty());
    if (refused || std::ssize(session->sequence.ids) == session->sequence.cache.capacity) return;
    const int32_t next = 1;
    std::vector<float> logits(static_cast<size_t>(model->config.vocab_size));
    require(!pinion::evaluate(*session, {&next, 1}, false, logits.data()));
  }
};

}  // namespace

FUZZ_TARGET(session_image) {
  // A sliding window and more than one cache block; a recurrent state; longrope factors that change at 21 tokens.
  static Case cases[] = {{"mistral_window", pinion::KvType::q8, 258},
                         {"qwen3_5", pinion::KvType::f32, 3},
                         {"phi3_crossing", pinion::KvType::bf16, 20}};
  const std::span<const std::byte> input{reinterpret_cast<const std::byte*>(data), size};
  if (input.empty()) return 0;
  Case& chosen = cases[data[0] % std::size(cases)];
  chosen.restore(input.subspan(1));
  chosen.restore(patched(chosen.image, input.subspan(1)));
  return 0;
}
