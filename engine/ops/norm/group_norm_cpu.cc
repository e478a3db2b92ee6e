// Group normalization in float32. Each thread processes whole samples; vectors extend along the
// channels independently of the groups, and the sums per channel of a pass are then added over the
// channels of each group. Sums are float32 within a block of positions and float64 across blocks. A
// sample mostly stays in L2 between the passes: one each for mean, variance and result. Bound by
// bytes.
#include "engine/ops/norm/group_norm_cpu.h"

#include "engine/ops/common/cpu_operands.h"
#include "engine/ops/common/flat_loops.h"

namespace engine::ops::ENGINE_ISA_NAMESPACE {
namespace {

constexpr std::int64_t kBlockPlaces = 64;

ENGINE_INLINE std::int64_t padded(std::int64_t channels) { return (channels + 15) / 16 * 16; }

// The scratch of one sample, arrays of [padded(channels)]: two of f64, four of f32.
constexpr std::int64_t kShareFloats = 2 * 2 + 4;

std::int64_t scratch_floats(std::int64_t n, std::int64_t channels) {
  return n * kShareFloats * padded(channels);
}

struct Share {
  double *first, *second;                  // sums per channel
  float *center, *scale, *factor, *shift;  // coefficients of a result, per channel
};
ENGINE_INLINE Share share_of(void* scratch, std::int64_t channels, std::int64_t sample) {
  const std::int64_t c = padded(channels);
  float* base = static_cast<float*>(scratch) + sample * kShareFloats * c;
  double* doubles = reinterpret_cast<double*>(base);
  return {doubles, doubles + c, base + 4 * c, base + 5 * c, base + 6 * c, base + 7 * c};
}

// sums[c] = sum over the positions of body(lanes, element, channel).
template <class Body>
ENGINE_INLINE void sum_places(const GroupNormSizes& s, double* sums, Body body) {
  for_each_vector(0, s.channels, [&](auto lanes, std::int64_t c) {
    double total[kWidth] = {};
    for (std::int64_t start = 0; start < s.places; start += kBlockPlaces) {
      Floats block = zero();
      for (std::int64_t p = start; p < smaller(s.places, start + kBlockPlaces); ++p)
        block += body(lanes, p * s.channels + c, c);
      float part[kWidth];
      store(part, block);
      for (int i = 0; i < kWidth; ++i) total[i] += static_cast<double>(part[i]);
    }
    for (int i = 0; i < kWidth && c + i < s.channels; ++i) sums[c + i] = total[i];
  });
}

// Returns the sum over a group's channels of sums[c] * weights[c]; without weights, of sums[c].
ENGINE_INLINE double fold(const double* sums, const float* weights, std::int64_t first,
                          std::int64_t count) {
  double total = 0;
  for (std::int64_t c = first; c < first + count; ++c)
    total += weights == nullptr ? sums[c] : sums[c] * static_cast<double>(weights[c]);
  return total;
}

void forward_sample(const GroupNormForward& o, const GroupNormSizes& s, const Share& share,
                    std::int64_t sample) {
  const std::int64_t offset = sample * s.places * s.channels;
  const float *x = floats(o.x) + offset, *gamma = floats(o.gamma), *beta = floats(o.beta);
  float *y = floats(o.y) + offset, *statistics = floats(o.statistics);
  const double per_value = 1 / static_cast<double>(s.places * s.group_channels);
  sum_places(s, share.first,
             [=](auto lanes, std::int64_t at, std::int64_t) { return lanes.load_from(x + at); });
  for (std::int64_t g = 0; g < s.groups; ++g) {
    const std::int64_t first = g * s.group_channels;
    const auto mean =
        static_cast<float>(fold(share.first, nullptr, first, s.group_channels) * per_value);
    for (std::int64_t c = first; c < first + s.group_channels; ++c) share.center[c] = mean;
  }
  const float *center = share.center, *scale = share.scale;
  sum_places(s, share.second, [=](auto lanes, std::int64_t at, std::int64_t c) {
    const Floats d = lanes.load_from(x + at) - lanes.load_from(center + c);
    return d * d;
  });
  for (std::int64_t g = 0; g < s.groups; ++g) {
    const std::int64_t first = g * s.group_channels;
    const double variance = fold(share.second, nullptr, first, s.group_channels) * per_value;
    const auto inverse = static_cast<float>(1 / __builtin_sqrt(variance + o.eps));
    for (std::int64_t c = first; c < first + s.group_channels; ++c)
      share.scale[c] = inverse * gamma[c];
    if (statistics == nullptr) continue;
    statistics[sample * s.groups + g] = share.center[first];
    statistics[(s.n + sample) * s.groups + g] = inverse;
  }
  for (std::int64_t p = 0; p < s.places; ++p)
    for_each_vector(0, s.channels, [=](auto lanes, std::int64_t c) {
      const std::int64_t at = p * s.channels + c;
      const Floats d = lanes.load_from(x + at) - lanes.load_from(center + c);
      lanes.store_to(y + at, d * lanes.load_from(scale + c) + lanes.load_from(beta + c));
    });
}

void forward(const GroupNormForward& o, const GroupNormSizes& s, ThreadPool& threads,
             void* scratch) {
  threads.run(s.n, [&o, &s, scratch](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i)
      forward_sample(o, s, share_of(scratch, s.channels, i), i);
  });
}

// dx = dy * scale - (x - center) * factor - shift, with per-channel coefficients from `share`.
template <bool kAdd>
void write_dx(const GroupNormBackward& o, const GroupNormSizes& s, const Share& share,
              std::int64_t sample) {
  const std::int64_t offset = sample * s.places * s.channels;
  const float *x = floats(o.x) + offset, *dy = floats(o.dy) + offset;
  const float *center = share.center, *scale = share.scale, *factor = share.factor,
              *shift = share.shift;
  float* dx = floats(o.dx) + offset;
  for (std::int64_t p = 0; p < s.places; ++p)
    for_each_vector(0, s.channels, [=](auto lanes, std::int64_t c) {
      const std::int64_t at = p * s.channels + c;
      const Floats d = lanes.load_from(x + at) - lanes.load_from(center + c);
      put<kAdd>(lanes, dx + at,
                lanes.load_from(dy + at) * lanes.load_from(scale + c) -
                    d * lanes.load_from(factor + c) - lanes.load_from(shift + c));
    });
}

// Writes the sums of dy and of dy * xhat over the sample's positions to `share`.
void backward_sample(const GroupNormBackward& o, const GroupNormSizes& s, const Share& share,
                     std::int64_t sample) {
  const std::int64_t offset = sample * s.places * s.channels;
  const float *x = floats(o.x) + offset, *dy = floats(o.dy) + offset, *gamma = floats(o.gamma);
  const float *means = floats(o.statistics) + sample * s.groups, *inverses = means + s.n * s.groups;
  float* center = share.center;
  for (std::int64_t c = 0; c < s.channels; ++c) center[c] = means[c / s.group_channels];
  sum_places(s, share.first,
             [=](auto lanes, std::int64_t at, std::int64_t) { return lanes.load_from(dy + at); });
  sum_places(s, share.second, [=](auto lanes, std::int64_t at, std::int64_t c) {
    return lanes.load_from(dy + at) * (lanes.load_from(x + at) - lanes.load_from(center + c));
  });
  const double per_value = 1 / static_cast<double>(s.places * s.group_channels);
  for (std::int64_t c = 0; c < s.channels; ++c)
    share.second[c] *= static_cast<double>(inverses[c / s.group_channels]);
  for (std::int64_t g = 0; g < s.groups; ++g) {
    const std::int64_t first = g * s.group_channels;
    const auto inverse = static_cast<double>(inverses[g]);
    const double sum = fold(share.first, gamma, first, s.group_channels) * per_value,
                 products = fold(share.second, gamma, first, s.group_channels) * per_value;
    for (std::int64_t c = first; c < first + s.group_channels; ++c) {
      share.scale[c] = inverses[g] * gamma[c];
      share.factor[c] = static_cast<float>(products * inverse * inverse);
      share.shift[c] = static_cast<float>(sum * inverse);
    }
  }
  if (o.dx.data == nullptr) return;
  o.dx_write == Write::kAdd ? write_dx<true>(o, s, share, sample)
                            : write_dx<false>(o, s, share, sample);
}

void backward(const GroupNormBackward& o, const GroupNormSizes& s, ThreadPool& threads,
              void* scratch) {
  threads.run(s.n, [&o, &s, scratch](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i)
      backward_sample(o, s, share_of(scratch, s.channels, i), i);
  });
  float *dgamma = floats(o.dgamma), *dbeta = floats(o.dbeta);
  const bool add = o.parameter_write == Write::kAdd;
  for (std::int64_t c = 0; c < s.channels; ++c) {  // samples in order
    double sum = add ? static_cast<double>(dbeta[c]) : 0,
           products = add ? static_cast<double>(dgamma[c]) : 0;
    for (std::int64_t i = 0; i < s.n; ++i) {
      const Share share = share_of(scratch, s.channels, i);
      sum += share.first[c];
      products += share.second[c];
    }
    dbeta[c] = static_cast<float>(sum);
    dgamma[c] = static_cast<float>(products);
  }
}

}  // namespace

const GroupNormTable group_norm_table{scratch_floats, forward, backward};

}  // namespace engine::ops::ENGINE_ISA_NAMESPACE
