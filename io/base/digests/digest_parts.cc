// XXH3 for long inputs, by its specification (doc/xxhash_spec.md of github.com/Cyan4973/xxHash):
// what it adds up of a block does not depend on the blocks before, only what is mixed afterwards
// does.
#include "io/base/digests/digest_parts.h"

#define XXH_STATIC_LINKING_ONLY  // for the secret
#include <xxhash.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>

namespace base {
namespace {

constexpr std::size_t kSecretBytes = 192, kSecretStep = 8, kStripes = kDigestBlock / kDigestStripe;
constexpr std::size_t kLastStripeSecret = kSecretBytes - kDigestStripe - 7, kLowSecret = 11,
                      kHighSecret = kSecretBytes - kDigestStripe - 11;
constexpr std::size_t kLongestShort = 240;  // what is shorter has other rules
constexpr std::uint64_t k32[3] = {0x9E3779B1u, 0x85EBCA77u, 0xC2B2AE3Du};
constexpr std::uint64_t k64[5] = {0x9E3779B185EBCA87u, 0xC2B2AE3D27D4EB4Fu, 0x165667B19E3779F9u,
                                  0x85EBCA77C2B2AE63u, 0x27D4EB2F165667C5u};

static_assert(std::endian::native == std::endian::little);

std::uint64_t word(const std::byte* at) {
  std::uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

const std::byte* secret() {
  static const auto bytes = [] {
    std::array<std::byte, kSecretBytes> made;
    XXH3_generateSecret_fromSeed(made.data(), 0);
    return made;
  }();
  return bytes.data();
}

void add_stripe(const std::byte* stripe, const std::byte* key, DigestLanes& lanes) {
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const std::uint64_t value = word(stripe + 8 * i), keyed = value ^ word(key + 8 * i);
    lanes[i ^ 1] += value;
    lanes[i] += (keyed & 0xFFFFFFFFu) * (keyed >> 32);
  }
}

// Sums of `count` blocks, one after the other.
using SumBlocks = void (*)(const std::byte* blocks, std::size_t count, const std::byte* key,
                           DigestLanes* sums);

void sum_plain(const std::byte* blocks, std::size_t count, const std::byte* key,
               DigestLanes* sums) {
  for (; count > 0; --count, blocks += kDigestBlock, ++sums) {
    *sums = {};
    for (std::size_t s = 0; s < kStripes; ++s)
      add_stripe(blocks + s * kDigestStripe, key + s * kSecretStep, *sums);
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) inline __m256i load_half(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

__attribute__((target("avx2"))) void sum_avx2(const std::byte* blocks, std::size_t count,
                                              const std::byte* key, DigestLanes* sums) {
  for (; count > 0; --count, blocks += kDigestBlock, ++sums) {
    for (std::size_t half = 0; half < kDigestStripe; half += kDigestStripe / 2) {
      __m256i sum = _mm256_setzero_si256();
      for (std::size_t s = 0; s < kStripes; ++s) {
        const __m256i value = load_half(blocks + s * kDigestStripe + half),
                      keyed = _mm256_xor_si256(value, load_half(key + s * kSecretStep + half));
        sum = _mm256_add_epi64(sum, _mm256_shuffle_epi32(value, 0x4E));  // neighbours change places
        sum = _mm256_add_epi64(sum, _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32)));
      }
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums->data() + half / 8), sum);
    }
  }
}

// With a mask of all ones: gcc 12 takes the plain forms for uses of something undefined.
__attribute__((target("avx512f"))) void sum_avx512(const std::byte* blocks, std::size_t count,
                                                   const std::byte* key, DigestLanes* sums) {
  constexpr __mmask8 kAll = 0xFF;
  constexpr __mmask16 kAllHalves = 0xFFFF;
  for (; count > 0; --count, blocks += kDigestBlock, ++sums) {
    __m512i sum = _mm512_setzero_si512();
    for (std::size_t s = 0; s < kStripes; ++s) {
      const __m512i value = _mm512_loadu_si512(blocks + s * kDigestStripe),
                    keyed = _mm512_xor_si512(value, _mm512_loadu_si512(key + s * kSecretStep)),
                    high = _mm512_maskz_srli_epi64(kAll, keyed, 32);
      sum = _mm512_add_epi64(sum, _mm512_maskz_shuffle_epi32(kAllHalves, value, _MM_PERM_BADC));
      sum = _mm512_add_epi64(sum, _mm512_maskz_mul_epu32(kAll, keyed, high));
    }
    _mm512_storeu_si512(sums->data(), sum);
  }
}
#endif

SumBlocks sum_of_this_cpu() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return &sum_avx512;
  if (__builtin_cpu_supports("avx2")) return &sum_avx2;
#endif
  return &sum_plain;
}

void sum_blocks(const std::byte* blocks, std::size_t count, DigestLanes* sums) {
  static const SumBlocks sum = sum_of_this_cpu();
  sum(blocks, count, secret(), sums);
}

// What follows a block.
void mix(const DigestLanes* sums, std::size_t count, DigestLanes& lanes) {
  DigestLanes keys;
  std::memcpy(keys.data(), secret() + kSecretBytes - kDigestStripe, sizeof keys);
  DigestLanes mixed = lanes;
  for (; count > 0; --count, ++sums) {
    for (std::size_t i = 0; i < mixed.size(); ++i) {
      const std::uint64_t sum = mixed[i] + (*sums)[i];
      mixed[i] = (sum ^ sum >> 47 ^ keys[i]) * k32[0];
    }
  }
  lanes = mixed;
}

// Calls `whole` with the blocks that something follows: where they begin, and how many.
template <class Whole>
void extend(DigestTail& tail, std::span<const std::byte> bytes, Whole whole) {
  const auto pass = [&](const std::byte* blocks, std::size_t count) {
    whole(blocks, count);
    std::memcpy(tail.bytes.data(), blocks + count * kDigestBlock - kDigestStripe, kDigestStripe);
  };
  while (!bytes.empty()) {
    if (tail.pending == kDigestBlock) {
      pass(tail.block().data(), 1);
      tail.pending = 0;
    }
    if (tail.pending == 0 && bytes.size() > kDigestBlock) {
      const std::size_t count = (bytes.size() - 1) / kDigestBlock;
      pass(bytes.data(), count);
      bytes = bytes.subspan(count * kDigestBlock);
    }
    const std::size_t taken = std::min(bytes.size(), kDigestBlock - tail.pending);
    std::memcpy(tail.bytes.data() + kDigestStripe + tail.pending, bytes.data(), taken);
    tail.pending += taken;
    bytes = bytes.subspan(taken);
  }
}

std::uint64_t folded_product(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t merged(const DigestLanes& lanes, const std::byte* key, std::uint64_t start) {
  for (std::size_t i = 0; i < lanes.size(); i += 2)
    start += folded_product(lanes[i] ^ word(key + 8 * i), lanes[i + 1] ^ word(key + 8 * i + 8));
  start = (start ^ start >> 37) * 0x165667919E3779F9u;
  return start ^ start >> 32;
}

}  // namespace

void DigestPart::add(std::span<const std::byte> bytes) {
  const std::size_t missing = static_cast<std::size_t>(-begin_ % kDigestBlock) - head_.size();
  const auto first = bytes.first(std::min(missing, bytes.size()));
  head_.insert(head_.end(), first.begin(), first.end());
  const auto rest = bytes.subspan(first.size());
  extend(tail_, rest, [this](const std::byte* blocks, std::size_t count) {
    sums_.resize(sums_.size() + count);
    sum_blocks(blocks, count, &sums_[sums_.size() - count]);
  });
  end_ += bytes.size();
}

PartedDigest::PartedDigest()
    : lanes_{k32[2], k64[0], k64[1], k64[2], k64[3], k32[1], k64[4], k32[0]} {}

void PartedDigest::add(const DigestPart& part) {
  add_bytes(part.head_);
  if (part.sums_.empty()) {
    add_bytes(part.tail_.block());
  } else {
    if (tail_.pending > 0) mix_in(tail_.block().data(), 1);
    mix(part.sums_.data(), part.sums_.size(), lanes_);
    tail_ = part.tail_;
  }
  size_ = part.end_;
}

Digest PartedDigest::value() const {
  const auto block = tail_.block();
  if (size_ <= kLongestShort) return digest_of(block);
  DigestLanes lanes = lanes_;
  for (std::size_t s = 0; s < (block.size() - 1) / kDigestStripe; ++s)
    add_stripe(block.data() + s * kDigestStripe, secret() + s * kSecretStep, lanes);
  add_stripe(block.data() + block.size() - kDigestStripe, secret() + kLastStripeSecret, lanes);
  return {.low = merged(lanes, secret() + kLowSecret, size_ * k64[0]),
          .high = merged(lanes, secret() + kHighSecret, ~(size_ * k64[1]))};
}

void PartedDigest::add_bytes(std::span<const std::byte> bytes) {
  extend(tail_, bytes,
         [this](const std::byte* blocks, std::size_t count) { mix_in(blocks, count); });
}

void PartedDigest::mix_in(const std::byte* blocks, std::size_t count) {
  for (; count > 0; --count, blocks += kDigestBlock) {
    DigestLanes sums;
    sum_blocks(blocks, 1, &sums);
    mix(&sums, 1, lanes_);
  }
}

}  // namespace base
