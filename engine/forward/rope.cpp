// The rules follow Hugging Face's transformers (modeling_rope_utils.py). As there, frequencies are rounded to fp32 and
// multiplied by the position in fp32: the rounding error grows with the position, so it must be the same.
#include "engine/forward/rope.h"

#include <cmath>
#include <numbers>

#include "kernels/base/math.h"

namespace pinion {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

// theta^(-2i / head_dim)
std::vector<double> plain_frequencies(double theta, int64_t head_dim) {
  std::vector<double> inverse(head_dim / 2);
  for (size_t i = 0; i < inverse.size(); ++i) {
    inverse[i] = 1.0 / portable_pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  }
  return inverse;
}

double dynamic_theta(const Rope& rope, int64_t head_dim, int64_t max_positions, int64_t sequence) {
  const double length = static_cast<double>(std::max(sequence, max_positions));
  const double d = static_cast<double>(head_dim);
  const double stretch = rope.factor * length / static_cast<double>(max_positions) - (rope.factor - 1.0);
  return rope.theta * portable_pow(stretch, d / (d - 2.0));
}

// Llama 3.1: long wavelengths are stretched by `factor`, short ones are unchanged, the others are interpolated.
void scale_llama3(const Rope& rope, std::vector<double>* inverse) {
  const double context = static_cast<double>(rope.original_max_positions);
  for (double& f : *inverse) {
    const double wavelength = kTwoPi / f;
    if (wavelength > context / rope.low_freq_factor) {
      f /= rope.factor;
    } else if (wavelength >= context / rope.high_freq_factor) {
      const double mix = (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      f = (1.0 - mix) * f / rope.factor + mix * f;
    }
  }
}

// YaRN (Peng et al. 2023): a linear ramp over the dimensions from unstretched to stretched.
void scale_yarn(const Rope& rope, int64_t head_dim, std::vector<double>* inverse) {
  const double d = static_cast<double>(head_dim);
  const auto dimension_of = [&](double rotations) {
    const double turns = static_cast<double>(rope.original_max_positions) / (rotations * kTwoPi);
    return d * portable_log(turns) / (2.0 * portable_log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast);
  double high = dimension_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, d - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inverse->size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    (*inverse)[i] = (*inverse)[i] / rope.factor * ramp + (*inverse)[i] * (1.0 - ramp);
  }
}

double yarn_amplitude(const Rope& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  const auto magnitude = [&](double mscale) {
    return rope.factor <= 1.0 ? 1.0 : 0.1 * mscale * portable_log(rope.factor) + 1.0;
  };
  if (rope.mscale != 0.0 && rope.mscale_all_dim != 0.0) return magnitude(rope.mscale) / magnitude(rope.mscale_all_dim);
  return magnitude(1.0);
}

double longrope_amplitude(const Rope& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.factor <= 1.0) return 1.0;
  return std::sqrt(1.0 + portable_log(rope.factor) / portable_log(static_cast<double>(rope.original_max_positions)));
}

}  // namespace

RopeFrequencies rope_frequencies(const Rope& rope, int64_t max_positions, int64_t sequence) {
  const RopeKind kind = rope.kind;
  const bool is_dynamic = kind == RopeKind::dynamic;
  const double theta = is_dynamic ? dynamic_theta(rope, rope.dims, max_positions, sequence) : rope.theta;
  std::vector<double> inverse = plain_frequencies(theta, rope.dims);
  RopeFrequencies result;
  if (kind == RopeKind::proportional) std::fill(inverse.begin() + rope.turning / 2, inverse.end(), 0.0);
  if (kind == RopeKind::proportional || kind == RopeKind::linear) {
    for (double& f : inverse) f /= rope.factor;
  } else if (kind == RopeKind::llama3) {
    scale_llama3(rope, &inverse);
  } else if (kind == RopeKind::yarn) {
    scale_yarn(rope, rope.dims, &inverse);
    result.amplitude = static_cast<float>(yarn_amplitude(rope));
  } else if (kind == RopeKind::longrope) {  // LongRoPE (Ding et al. 2024): one factor per frequency
    const auto& factors = sequence > rope.original_max_positions ? rope.long_factor : rope.short_factor;
    for (size_t i = 0; i < inverse.size(); ++i) inverse[i] /= factors[i];
    result.amplitude = static_cast<float>(longrope_amplitude(rope));
  }
  for (const double f : inverse) result.inverse.push_back(static_cast<float>(f));
  return result;
}

std::vector<RopeFrequencies> rope_frequencies(const ModelConfig& config, int64_t sequence) {
  std::vector<RopeFrequencies> all;
  for (const Rope& rope : config.ropes) all.push_back(rope_frequencies(rope, config.max_positions, sequence));
  return all;
}

bool uses_long_factors(const ModelConfig& config, int64_t sequence) {
  return std::ranges::any_of(config.ropes, [&](const Rope& rope) {
    return rope.kind == RopeKind::longrope && sequence > rope.original_max_positions;
  });
}

void rope_angles(const RopeFrequencies& frequencies, int64_t position, float* cos, float* sin) {
  for (size_t i = 0; i < frequencies.inverse.size(); ++i) {
    double sine, cosine;
    portable_sincos(static_cast<float>(position) * frequencies.inverse[i], &sine, &cosine);
    cos[i] = static_cast<float>(cosine) * frequencies.amplitude;
    sin[i] = static_cast<float>(sine) * frequencies.amplitude;
  }
}

float query_scale(const Rope& rope, int64_t position) {
  if (rope.query_power != 0.0) {
    const auto distance = static_cast<double>(position + rope.query_offset);
    return static_cast<float>(
        portable_pow(1.0 + distance / static_cast<double>(rope.original_max_positions), rope.query_power));
  }
  if (rope.query_beta == 0.0) return 1.0f;
  const auto lengths = static_cast<double>((position + rope.query_offset) / rope.original_max_positions);
  return static_cast<float>(1.0 + rope.query_beta * portable_log(1.0 + lengths));
}

int64_t context_length(const ModelConfig& config) {
  // With several ropes, max_positions of the file already includes the scaling. Learned positions end there.
  if (config.ropes.size() > 1 || config.position_rows > 0) return config.max_positions;
  const Rope& rope = config.ropes.front();
  const bool is_yarn = rope.kind == RopeKind::yarn;
  if (!is_yarn && rope.kind != RopeKind::linear && rope.kind != RopeKind::dynamic) return config.max_positions;
  const auto positions = static_cast<double>(is_yarn ? rope.original_max_positions : config.max_positions);
  return std::max(config.max_positions, static_cast<int64_t>(positions * rope.factor));
}

bool frequencies_follow_length(const ModelConfig& config) {
  return std::ranges::any_of(config.ropes, [](const Rope& rope) { return rope.kind == RopeKind::dynamic; });
}

int64_t fixed_rope_positions(const ModelConfig& config) {
  return frequencies_follow_length(config) ? config.max_positions : std::numeric_limits<int64_t>::max();
}

}  // namespace pinion
