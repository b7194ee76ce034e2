// How a text is drawn, as a user says it, over what the model's authors say.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session/generation_config.h"
#include "kernels/base/error.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

// What a user said about sampling.
struct SamplingFlags {
  std::array<std::optional<double>, std::size(kSamplerSettings)> settings;
  std::vector<std::string> dry_breakers;  // texts; empty: kDryBreakers
  std::optional<uint64_t> seed;
};

// At which DRY's author has repetitions end; "none" alone is none.
inline constexpr std::string_view kDryBreakers[] = {"\n", ":", "\"", "*"};

void apply_flags(const SamplingFlags& flags, SamplerOptions* options);

// The flags over what generation_config.json says over greedy; a seed of chance where none is given.
Error sampler_options(const std::string& folder, const SamplingFlags& flags, SamplerOptions* out);

// A text's ids, without what a tokenizer puts before it.
using EncodeText = std::function<Error(const std::string& text, std::vector<int32_t>* ids)>;

// The breakers as ids, where DRY is on: a text's last token, as its author has it. Without a tokenizer there are none.
Error find_dry_breakers(const SamplingFlags& flags, const Tokenizer* tokenizer, SamplerOptions* out);
Error find_dry_breakers(const SamplingFlags& flags, const EncodeText& encode, SamplerOptions* out);  // null: none

}  // namespace pinion
