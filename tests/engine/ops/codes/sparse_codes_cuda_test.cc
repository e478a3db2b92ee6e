// Sparse codes on a CUDA device have the bytes, sums and errors of SparseCode on the CPU.
#include "engine/ops/codes/sparse_codes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/averaging/codes/lossy_code.h"
#include "tests/engine/ops/codes/code_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;
using namespace code_test;

constexpr int kRanksOfSum = 3;

template <class T>
class SparseCodesCuda : public CudaTest {};
using SparseNumbers = testing::Types<float, double>;
TYPED_TEST_SUITE(SparseCodesCuda, SparseNumbers);

// Besides those of other codes: equal magnitudes, mostly zeros, and several that are not finite.
const std::vector<std::string> kSparseKinds = {"ties", "rare", "several"};

template <class T>
std::vector<T> sparse_numbers(const std::string& kind, std::int64_t count, std::uint64_t stream) {
  std::vector<T> values = numbers<T>(kind == "several" ? "nan" : kind, count, stream);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (kind == "ties") values[i] = std::round(2 * values[i]);
    if (kind == "rare" && i % 37 != 5) values[i] = T(0);
    if (kind == "several" && i % 1000 == 3)
      values[i] =
          i % 2000 == 3 ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::quiet_NaN();
  }
  return values;
}

// The same calculations on the CPU, block after block.
template <class T>
struct SparseOnCpu {
  SparseCode code;

  // Calls call(the place of a block's code, its first element, its number of elements).
  template <class Call>
  void for_blocks(std::size_t count, const Call& call) const {
    constexpr auto kBlock = static_cast<std::size_t>(SparseCode::kBlock);
    for (std::size_t first = 0; first < count; first += kBlock)
      call(first / kBlock * code.block_bytes(SparseCode::kBlock), first,
           std::min(kBlock, count - first));
  }
  // The values become what the code drops.
  std::vector<std::byte> encode(std::vector<T>& values, std::vector<T>* velocity) const {
    std::vector<std::byte> bytes(code_bytes(code, static_cast<std::int64_t>(values.size())));
    for_blocks(values.size(), [&](std::size_t at, std::size_t first, std::size_t count) {
      const std::span<T> block(values.data() + first, count);
      code.encode(std::span<const T>(block), RoundingNoise(0, 0, 0), 0, bytes.data() + at);
      code.add(bytes.data() + at, T(-1), block);
      for (T& value : block) value = kept_of(value);
      if (velocity != nullptr)
        code.clear_sent(bytes.data() + at, std::span<T>(velocity->data() + first, count));
    });
    return bytes;
  }
  void add(const std::vector<std::byte>& bytes, std::vector<T>& values) const {
    for_blocks(values.size(), [&](std::size_t at, std::size_t first, std::size_t count) {
      code.add(bytes.data() + at, T(1), std::span<T>(values.data() + first, count));
    });
  }
};

struct SparseCase {
  std::int64_t count;
  int bits;
  std::int64_t kept;
  std::string kind;
  bool momentum = false;
};

// Codes of all ranks, then their sum.
template <class T>
void expect_values_of_sparse_code(const SparseCase& c) {
  SCOPED_TRACE(c.kind + ", " + std::to_string(c.count) + " of " + std::to_string(c.bits) +
               " bits, " + std::to_string(c.kept) + " kept");
  DeviceContext context(0);
  const SparseOnCpu<T> cpu{SparseCode(c.bits, c.kept)};
  const SparseSpan span{.bits = c.bits, .kept = c.kept};
  const std::size_t stride = code_bytes(cpu.code, c.count) + 1;
  const auto bytes = static_cast<std::int64_t>(stride * kRanksOfSum);
  const DeviceOperand<std::uint8_t> all(
      {bytes}, std::vector<std::uint8_t>(static_cast<std::size_t>(bytes), 0xa5));
  std::vector<T> sum(static_cast<std::size_t>(c.count));
  for (int rank = 0; rank < kRanksOfSum; ++rank) {
    const auto stream = static_cast<std::uint64_t>(rank);
    std::vector<T> values = sparse_numbers<T>(c.kind, c.count, stream),
                   error = numbers<T>(c.kind == "ties" ? "zeros" : "uniform", c.count, 100),
                   velocity = numbers<T>("uniform", c.count, 200 + stream);
    const DeviceOperand<T> here({c.count}, values), kept({c.count}, error),
        moving({c.count}, velocity);
    SparseOperands operands{
        .values = here.view(), .error = kept.view(), .rest = kept.view(), .decay = 0.5};
    if (c.momentum) {
      operands.velocity = moving.view();
      operands.momentum = 0.25;
    }
    select_largest(context.context, span, operands,
                   bytes_of(all) + static_cast<std::size_t>(rank) * stride);
    context.finish();
    expect_same(here.values(), values, "value");
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (c.momentum) values[i] = velocity[i] = T(0.25) * velocity[i] + values[i];
      values[i] += T(0.5) * error[i];
    }
    const std::vector<std::byte> code = cpu.encode(values, c.momentum ? &velocity : nullptr);
    std::vector<std::uint8_t> found = all.values();
    found.erase(found.begin(), found.begin() + rank * static_cast<std::ptrdiff_t>(stride));
    found.resize(stride);
    expect_codes(found, code);
    expect_same(kept.values(), values, "error");
    expect_same(moving.values(), velocity, "velocity");
    cpu.add(code, sum);
  }
  const DeviceOperand<T> total({c.count}, std::vector<T>(static_cast<std::size_t>(c.count), T(5)));
  add_selected(context.context, span, {bytes_of(all), stride, kRanksOfSum}, total.view());
  context.finish();
  expect_same(total.values(), sum, "sum");
}

TYPED_TEST(SparseCodesCuda, HaveTheBytesSumsAndErrorsOfTheCpu) {
  std::vector<std::string> kinds = kKinds;
  kinds.insert(kinds.end(), kSparseKinds.begin(), kSparseKinds.end());
  for (const std::int64_t count : {1, 100, 4095, 5000})
    for (const int bits : {8, 4, 2})
      for (const std::string& kind : kinds)
        expect_values_of_sparse_code<TypeParam>({count, bits, 82, kind, bits == 4});
}

TYPED_TEST(SparseCodesCuda, AnyNumberOfElementsHasTheBytesOfTheCpu) {
  for (const std::int64_t kept : {1, 3, 1024, 4095, 4096})
    for (const std::string kind : {"mixed", "ties", "rare", "nan"})
      expect_values_of_sparse_code<TypeParam>({9000, kept % 2 == 0 ? 2 : 8, kept, kind, true});
}

// Equal bits on both sides also need equal bits of the sum: its order is that of a block.
TYPED_TEST(SparseCodesCuda, ManyBlocksHaveTheBytesOfTheCpu) {
  expect_values_of_sparse_code<TypeParam>({130'000, 4, 500, "mixed"});
}

// An index beyond a short block is of no encoder: no memory changes but the block's.
TYPED_TEST(SparseCodesCuda, AnIndexOutsideItsBlockGivesNan) {
  constexpr std::int64_t kCount = 10;
  DeviceContext c(0);
  std::vector<std::byte> code;
  {
    std::vector<TypeParam> longer(4096);
    longer[20] = 3;
    code = SparseOnCpu<TypeParam>{SparseCode(8, 1)}.encode(longer, nullptr);
  }
  std::vector<std::uint8_t> bytes(code.size());
  std::memcpy(bytes.data(), code.data(), code.size());
  const DeviceOperand<std::uint8_t> codes({static_cast<std::int64_t>(bytes.size())}, bytes);
  const DeviceOperand<TypeParam> values({kCount}, std::vector<TypeParam>(10, TypeParam(7)));
  add_selected(c.context, {.bits = 8, .kept = 1}, {bytes_of(codes), code.size(), 1}, values.view());
  c.finish();
  const std::vector<TypeParam> found = values.values();
  EXPECT_TRUE(std::isnan(found[0]));
  for (std::size_t i = 1; i < found.size(); ++i) EXPECT_EQ(found[i], TypeParam(0)) << i;
}

TYPED_TEST(SparseCodesCuda, RejectOtherSizesAndTypes) {
  DeviceContext c(0);
  const DeviceOperand<TypeParam> two({2}, {1, 2}), three({3}, {1, 2, 3});
  const DeviceOperand<std::int32_t> integers({2}, {1, 2});
  const DeviceOperand<std::uint8_t> codes({64}, std::vector<std::uint8_t>(64));
  const SparseSpan span{.bits = 8, .kept = 82};
  const RankCodes one{bytes_of(codes), 4, 1};
  const auto select = [&](const TensorView& error, const TensorView& velocity) {
    select_largest(c.context, span,
                   {.values = two.view(), .error = error, .rest = two.view(), .velocity = velocity},
                   bytes_of(codes));
  };
  EXPECT_THROW(select(three.view(), {}), ShapeError);
  EXPECT_THROW(select(two.view(), three.view()), ShapeError);
  EXPECT_THROW(add_selected(c.context, span, one, integers.view()), ShapeError);
  EXPECT_THROW(add_selected(c.context, {.bits = 3, .kept = 82}, one, two.view()), Error);
  EXPECT_THROW(add_selected(c.context, {.bits = 8, .kept = 0}, one, two.view()), Error);
  EXPECT_THROW(add_selected(c.context, {.bits = 8, .kept = 4097}, one, two.view()), Error);
  KernelContext cpu;
  EXPECT_THROW(add_selected(cpu, span, one, two.view()), Error);
}

}  // namespace
}  // namespace engine::ops
