// Makes tables of one period's values, repeated so that copying and comparing run at memory speed.
#include "tools/bench/comm/bench_comm_pattern.h"

#include <algorithm>
#include <cstring>

#include "io/base/numbers/half.h"

namespace tools {
namespace {

using base::DType;

constexpr std::size_t kPeriods = 64;        // per table
constexpr std::size_t kSampleBytes = 4096;  // compared at each place
constexpr std::size_t kSamples = 32;

int value_of(std::size_t index, int rank) {
  return static_cast<int>((index * static_cast<std::size_t>(rank + 3) +
                           static_cast<std::size_t>(rank) * 5 + index / 11) %
                          11);
}

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void put_value(std::byte* at, DType type, int value) {
  switch (type) {
    case DType::kF32:
      return put(at, static_cast<float>(value));
    case DType::kF64:
      return put(at, static_cast<double>(value));
    case DType::kI64:
      return put(at, static_cast<std::int64_t>(value));
    case DType::kU8:
      return put(at, static_cast<std::uint8_t>(value));
    case DType::kF16:
      return put(at, base::from_float<base::f16>(static_cast<float>(value)));
    case DType::kBF16:
      return put(at, base::from_float<base::bf16>(static_cast<float>(value)));
    case DType::kI32:
      break;  // unreachable: no collective uses it
  }
}

template <class ValueAt>
std::vector<std::byte> make_table(DType type, ValueAt value_at) {
  const std::size_t element = base::size_of(type);
  std::vector<std::byte> table(CommPattern::kPeriod * kPeriods * element);
  for (std::size_t i = 0; i < CommPattern::kPeriod * kPeriods; ++i)
    put_value(&table[i * element], type, value_at(i % CommPattern::kPeriod));
  return table;
}

// Returns the position of a round's element in the table: each round starts elsewhere, so that data
// left by an earlier round are detected.
std::size_t place(std::size_t index, std::size_t round) {
  return (index + round * 37) % CommPattern::kPeriod;
}

}  // namespace

CommPattern::CommPattern(DType type, int ranks)
    : element_(base::size_of(type)),
      zeros_(make_table(type, [](std::size_t) { return 0; })),
      sum_(make_table(type, [ranks](std::size_t i) {
        int sum = 0;
        for (int r = 0; r < std::min(ranks, kSummands); ++r) sum += value_of(i, r);
        return sum;
      })) {
  for (int r = 0; r < ranks; ++r)
    tables_.push_back(make_table(type, [r](std::size_t i) { return value_of(i, r); }));
}

const std::vector<std::byte>& CommPattern::table(int rank, bool reduced) const {
  if (rank == kSum) return sum_;
  return reduced && rank >= kSummands ? zeros_ : tables_[static_cast<std::size_t>(rank)];
}

void CommPattern::fill(void* data, std::size_t count, int rank, std::size_t round,
                       bool reduced) const {
  const std::vector<std::byte>& from = table(rank, reduced);
  auto* to = static_cast<std::byte*>(data);
  for (std::size_t i = 0; i < count;) {
    const std::size_t start = place(i, round),
                      length = std::min(count - i, kPeriod * kPeriods - start);
    std::memcpy(to + i * element_, &from[start * element_], length * element_);
    i += length;
  }
}

bool CommPattern::matches(const void* data, std::size_t first, std::size_t count, int rank,
                          std::size_t round, bool all) const {
  const std::vector<std::byte>& right = table(rank, false);
  const auto* found = static_cast<const std::byte*>(data);
  const auto equal = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end;) {
      const std::size_t start = place(first + i, round),
                        length = std::min(end - i, kPeriod * kPeriods - start);
      if (std::memcmp(found + i * element_, &right[start * element_], length * element_) != 0)
        return false;
      i += length;
    }
    return true;
  };
  const std::size_t sample = kSampleBytes / element_;
  if (all || count <= sample * (kSamples + 2)) return equal(0, count);
  for (std::size_t s = 0; s <= kSamples; ++s) {
    const std::size_t begin = (count - sample) / kSamples * s;
    if (!equal(begin, begin + sample)) return false;
  }
  return equal(count - sample, count);
}

}  // namespace tools
