// Dropout: each thread draws for a pack of 16 bytes of one sample, one Philox block for every four
// elements, so that the mask is bit for bit that of the CPU kernels. Bound by bytes for f32; with
// 16-bit storage the ten rounds of Philox take almost as long. Source of the generator: Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#include "engine/core/error.h"
#include "engine/ops/device/packs.h"
#include "engine/ops/device/storage_dispatch.h"
#include "engine/ops/elementwise/elementwise_cuda.h"

namespace engine::ops::cuda {
namespace {

constexpr int kThreads = 256;

// Elements that a thread draws for at once: 16 bytes, and at least the four of a block of words.
template <class T>
inline constexpr int kUnit = Packed<T>::kCount < 4 ? 4 : Packed<T>::kCount;

struct Words {
  std::uint32_t at[4];
};

// philox() of engine/core/random.h.
__device__ __forceinline__ Words philox_words(std::uint64_t key, std::uint64_t high,
                                              std::uint64_t low) {
  constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57, kWeyl0 = 0x9E3779B9,
                          kWeyl1 = 0xBB67AE85;
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  Words c{{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
           static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)}};
  for (int round = 0; round < 10; ++round) {
    c = {{__umulhi(kMultiplier1, c.at[2]) ^ c.at[1] ^ k0, kMultiplier1 * c.at[2],
          __umulhi(kMultiplier0, c.at[0]) ^ c.at[3] ^ k1, kMultiplier0 * c.at[0]}};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
}

struct Samples {
  const std::int64_t* ids;
  std::int64_t count;  // elements per sample
  std::int64_t units;  // packs per sample; the last one may be short
  std::int64_t total;  // packs of all samples
};

// `whole`: no pack is short, and all are aligned.
template <class T>
__global__ void drop(const T* from, DropoutDraw<Wide<T>> draw, const std::uint64_t* epoch,
                     Samples samples, bool whole, bool add, T* to) {
  constexpr int kWidth = kUnit<T>;
  const std::uint64_t high = *epoch, blocks = static_cast<std::uint64_t>((samples.count + 3) / 4);
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < samples.total;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t sample = quotient(i, samples.units),
                       element = (i - sample * samples.units) * kWidth;
    const std::int64_t base = sample * samples.count + element;
    const std::int64_t left = samples.count - element;
    const int here = left < kWidth ? static_cast<int>(left) : kWidth;
    Pack<T, kWidth> in{}, out{};
    if (whole) {
      in = load_pack<kWidth>(from + base);
      if (add) out = load_pack<kWidth>(to + base);
    } else {
      ENGINE_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        if (j >= here) continue;
        in.at[j] = from[base + j];
        if (add) out.at[j] = to[base + j];
      }
    }
    const std::uint64_t start = static_cast<std::uint64_t>(samples.ids[sample]) * blocks +
                                static_cast<std::uint64_t>(element) / 4;
    ENGINE_UNROLL
    for (int k = 0; k < kWidth / 4; ++k) {
      const Words words = philox_words(draw.key, high, start + static_cast<std::uint64_t>(k));
      ENGINE_UNROLL
      for (int j = 4 * k; j < 4 * k + 4; ++j) {
        const Wide<T> value = to_wide(in.at[j]) *
                              ((words.at[j % 4] >> 8) >= draw.threshold ? draw.factor : Wide<T>(0));
        out.at[j] = from_wide<T>(add ? to_wide(out.at[j]) + value : value);
      }
    }
    if (whole) {
      store_pack<kWidth>(to + base, out);
    } else {
      ENGINE_UNROLL
      for (int j = 0; j < kWidth; ++j)
        if (j < here) to[base + j] = out.at[j];
    }
  }
}

}  // namespace

void dropout(KernelContext& context, const Dropout& o, const DropoutDraw<double>& draw) {
  require(context.epoch != nullptr, "dropout on a CUDA device reads the epoch from the context");
  const std::int64_t n = draw.n, count = draw.count;
  if (n * count == 0) return;
  with_any_storage(o.from.dtype, [&]<class T>(T) {
    constexpr int kWidth = kUnit<T>;
    const DropoutDraw<Wide<T>> own{draw.key, draw.threshold, static_cast<Wide<T>>(draw.factor), n,
                                   count};
    const std::int64_t units = divide_up(count, kWidth);
    const bool whole = kWidth == Packed<T>::kCount && count % kWidth == 0 &&
                       aligned_to_16({o.from.data, o.to.data});
    launch("dropout", drop<T>, {loop_blocks(n * units, kThreads)}, kThreads, 0, context.stream,
           o.from.as<T>(), own, context.epoch,
           Samples{o.sample_ids.data(), count, units, n * units}, whole, o.write == Write::kAdd,
           o.to.as<T>());
  });
}

}  // namespace engine::ops::cuda
