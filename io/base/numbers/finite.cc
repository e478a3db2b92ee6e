// A number is not finite if all bits of its exponent are set: only then does adding the lowest of
// them to these bits carry into the sign bit. These are plain integer sums, so the loop vectorizes
// for every width.
#include "io/base/numbers/finite.h"

#include <algorithm>
#include <cstring>

#include "io/base/machine/cpu_features.h"

namespace base {
namespace {

template <class Word>
[[gnu::always_inline]] inline std::int64_t search(const std::byte* data, std::size_t count,
                                                  Word exponent) {
  constexpr std::size_t kBlock = 4096;
  const Word lowest = static_cast<Word>(exponent & (~exponent + 1u)),
             sign = static_cast<Word>(~(static_cast<Word>(~Word{0}) >> 1));
  const auto carry = [&](std::size_t i) {
    Word word;
    std::memcpy(&word, data + i * sizeof word, sizeof word);
    return static_cast<Word>((word & exponent) + lowest);
  };
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t end = std::min(count, at + kBlock);
    Word all = 0;
    for (std::size_t i = at; i < end; ++i) all = static_cast<Word>(all | carry(i));
    if ((all & sign) == 0) continue;
    for (std::size_t i = at; i < end; ++i)
      if ((carry(i) & sign) != 0) return static_cast<std::int64_t>(i);
  }
  return -1;
}

template <class Word>
[[gnu::always_inline]] inline bool same(const std::byte* a, const std::byte* b, std::size_t count,
                                        Word exponent) {
  constexpr std::size_t kBlock = 4096;
  const Word lowest = static_cast<Word>(exponent & (~exponent + 1u)),
             sign = static_cast<Word>(~(static_cast<Word>(~Word{0}) >> 1));
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t end = std::min(count, at + kBlock);
    Word carries = 0, differences = 0;
    for (std::size_t i = at; i < end; ++i) {
      Word one, other;
      std::memcpy(&one, a + i * sizeof one, sizeof one);
      std::memcpy(&other, b + i * sizeof other, sizeof other);
      carries = static_cast<Word>(carries | static_cast<Word>((one & exponent) + lowest));
      differences = static_cast<Word>(differences | (one ^ other));
    }
    if ((carries & sign) != 0 || differences != 0) return false;
  }
  return true;
}

[[gnu::always_inline]] inline bool same_as(DType type, const std::byte* a, const std::byte* b,
                                           std::size_t count) {
  switch (type) {
    case DType::kF32:
      return same<std::uint32_t>(a, b, count, 0x7F800000u);
    case DType::kF64:
      return same<std::uint64_t>(a, b, count, 0x7FF0000000000000u);
    case DType::kF16:
      return same<std::uint16_t>(a, b, count, 0x7C00u);
    case DType::kBF16:
      return same<std::uint16_t>(a, b, count, 0x7F80u);
    case DType::kI64:
    case DType::kU8:
    case DType::kI32:
      return std::memcmp(a, b, count * size_of(type)) == 0;
  }
  return false;
}

[[gnu::always_inline]] inline std::int64_t search_as(DType type, const std::byte* bytes,
                                                     std::size_t count) {
  switch (type) {
    case DType::kF32:
      return search<std::uint32_t>(bytes, count, 0x7F800000u);
    case DType::kF64:
      return search<std::uint64_t>(bytes, count, 0x7FF0000000000000u);
    case DType::kF16:
      return search<std::uint16_t>(bytes, count, 0x7C00u);
    case DType::kBF16:
      return search<std::uint16_t>(bytes, count, 0x7F80u);
    case DType::kI64:
    case DType::kU8:
    case DType::kI32:
      return -1;
  }
  return -1;
}

// Compiled again for CPUs with wider registers.
using Search = std::int64_t (*)(DType, const std::byte*, std::size_t);

std::int64_t search_plain(DType type, const std::byte* bytes, std::size_t count) {
  return search_as(type, bytes, count);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] std::int64_t search_avx2(DType type, const std::byte* bytes,
                                                 std::size_t count) {
  return search_as(type, bytes, count);
}
#endif

using Same = bool (*)(DType, const std::byte*, const std::byte*, std::size_t);

bool same_plain(DType type, const std::byte* a, const std::byte* b, std::size_t count) {
  return same_as(type, a, b, count);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] bool same_avx2(DType type, const std::byte* a, const std::byte* b,
                                       std::size_t count) {
  return same_as(type, a, b, count);
}

[[gnu::target("avx512f,avx512bw")]] bool same_avx512(DType type, const std::byte* a,
                                                     const std::byte* b, std::size_t count) {
  return same_as(type, a, b, count);
}
#endif

Same same_of_this_cpu() {
#if defined(__x86_64__)
  const CpuFeatures cpu = cpu_features();
  if (cpu.avx512) return &same_avx512;
  if (cpu.avx2) return &same_avx2;
#endif
  return &same_plain;
}

Search search_of_this_cpu() {
#if defined(__x86_64__)
  if (cpu_features().avx2) return &search_avx2;
#endif
  return &search_plain;
}

}  // namespace

std::int64_t first_not_finite(DType type, const void* data, std::size_t count) {
  static const Search search = search_of_this_cpu();
  return search(type, static_cast<const std::byte*>(data), count);
}

bool equal_and_finite(DType type, const void* a, const void* b, std::size_t count) {
  static const Same same = same_of_this_cpu();
  return same(type, static_cast<const std::byte*>(a), static_cast<const std::byte*>(b), count);
}

}  // namespace base
