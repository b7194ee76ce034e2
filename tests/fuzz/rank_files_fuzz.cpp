// Any bytes as tekken.json or as a list of ranks: an error, or a usable tokenizer.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/target.h"
#include "tokenizer/tokens/tokenizer_internal.h"

FUZZ_TARGET(rank_files) {
  const auto tokenizer = std::make_shared<pinion::Tokenizer>();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto load = pinion::is_rank_list(bytes) ? pinion::load_rank_list : pinion::load_tekken;
  if (load(bytes, "file", {}, tokenizer.get())) return 0;
  pinion::check_tokenizer(tokenizer);
  return 0;
}
