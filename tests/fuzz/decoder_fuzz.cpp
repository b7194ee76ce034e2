// Any ids and any text with the tokenizers of the fixtures: incremental decoding equals decoding at once and gives
// whole characters; encoding gives ids of the vocabulary.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"
#include "tokenizer/tokens/tokenizer.h"
#include "tokenizer/tokens/unicode.h"

namespace {

using namespace pinion;
using Ids = std::vector<int32_t>;

// One of each kind of file and decoder.
constexpr const char* kFolders[] = {"llama2",      "gemma", "llama3", "metaspace",         "phi3",
                                    "tekken",      "gpt2",  "qwen2",  "sentencepiece_bpe", "sentencepiece_unigram",
                                    "llama3_ranks"};

std::shared_ptr<const Tokenizer> fixture(size_t index) {
  static std::shared_ptr<const Tokenizer> loaded[std::size(kFolders)];
  std::shared_ptr<const Tokenizer>& tokenizer = loaded[index % std::size(kFolders)];
  const std::string folder = std::string(PINION_TEST_DATA "/tokenizers/") + kFolders[index % std::size(kFolders)];
  if (!tokenizer) require(!load_tokenizer(folder, &tokenizer));
  return tokenizer;
}

// Two bytes per id, sometimes beyond the vocabulary.
Ids ids_of(std::string_view bytes, int32_t vocabulary) {
  Ids ids;
  for (uint16_t word = 0; bytes.size() >= sizeof word; bytes.remove_prefix(sizeof word)) {
    std::memcpy(&word, bytes.data(), sizeof word);
    ids.push_back(word == 0xFFFF ? -1 : word == 0xFFFE ? std::numeric_limits<int32_t>::max() : word % (vocabulary + 1));
  }
  return ids;
}

}  // namespace

// Input: a byte that selects the tokenizer, a byte of options, ids or a text.
FUZZ_TARGET(decoder) {
  if (size < 2) return 0;
  const auto tokenizer = fixture(data[0]);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const bool skip_special = data[1] & 1, is_text = data[1] & 2;
  Ids ids = ids_of(bytes, vocab_size(*tokenizer));
  if (is_text) {
    const EncodeOptions options{.add_special = (data[1] & 4) != 0, .parse_special = (data[1] & 8) != 0};
    require(!encode(*tokenizer, bytes, options, &ids));
    for (const int32_t id : ids) require(id >= 0 && id < vocab_size(*tokenizer));
  }
  const std::string whole = decode(*tokenizer, ids, skip_special);
  IncrementalDecoder decoder(tokenizer, skip_special);
  for (int round = 0; round < 2; ++round) {  // finish() resets the decoder
    std::string incremental;
    for (const int32_t id : ids) {
      const std::string piece = decoder.put(id);
      require(to_utf8(piece) == piece);
      incremental += piece;
    }
    require(incremental + decoder.finish() == whole);
  }
  return 0;
}
