// Quantized codes on a CUDA device have the bytes, sums and errors of QuantizedCode on the CPU.
#include "engine/ops/codes/quantized_codes.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/averaging/codes/lossy_code.h"
#include "tests/engine/ops/codes/code_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;
using namespace code_test;

constexpr std::uint64_t kStream = 77;
constexpr std::int64_t kPosition = 512, kRound = 9;
constexpr int kRanks = 3;

template <class T>
class QuantizedCodesCuda : public CudaTest {};
using Numbers = testing::Types<float, double>;
TYPED_TEST_SUITE(QuantizedCodesCuda, Numbers);

// The same calculations on the CPU, block after block.
template <class T>
struct OnCpu {
  QuantizedCode code;

  std::vector<std::byte> encode(std::vector<T>& values, int rank) const {
    const RoundingNoise noise(kStream, rank, kRound);
    const auto count = static_cast<std::int64_t>(values.size());
    std::vector<std::byte> bytes(code_bytes(code, count));
    std::size_t at = 0;
    for (std::int64_t first = 0; first < count; first += QuantizedCode::kBlock) {
      const std::int64_t here = std::min(QuantizedCode::kBlock, count - first);
      const std::span<T> block(values.data() + first, static_cast<std::size_t>(here));
      code.encode(std::span<const T>(block), noise, kPosition + first, bytes.data() + at);
      code.add(bytes.data() + at, T(-1), block);
      for (T& value : block) value = kept_of(value);
      at += code.block_bytes(here);
    }
    return bytes;
  }

  void add(const std::vector<std::byte>& bytes, std::vector<T>& values) const {
    const auto count = static_cast<std::int64_t>(values.size());
    for (std::int64_t first = 0; first < count; first += QuantizedCode::kBlock)
      code.add(bytes.data() + static_cast<std::size_t>(first / QuantizedCode::kBlock) *
                                  code.block_bytes(QuantizedCode::kBlock),
               T(1),
               std::span<T>(values.data() + first, static_cast<std::size_t>(std::min(
                                                       QuantizedCode::kBlock, count - first))));
  }
};

// Codes of all ranks, then their sum in both ways. Rounds come from device memory if asked for.
template <class T>
void expect_values_of_cpu(std::int64_t count, int bits, const std::string& kind, bool on_device) {
  SCOPED_TRACE(kind + ", " + std::to_string(count) + " of " + std::to_string(bits) + " bits");
  DeviceContext c(0);
  const OnCpu<T> cpu{QuantizedCode(bits)};
  const std::size_t stride = code_bytes(cpu.code, count) + 1;
  const auto bytes = static_cast<std::int64_t>(stride * kRanks);
  const DeviceOperand<std::uint8_t> all(
      {bytes}, std::vector<std::uint8_t>(static_cast<std::size_t>(bytes), 0xa5));
  const DeviceOperand<std::int64_t> round({1}, {kRound});
  const auto span_of = [&](int rank) {
    NoiseSource noise{.stream = kStream, .rank = rank, .round = on_device ? -3 : kRound};
    if (on_device) noise.round_at = static_cast<const std::int64_t*>(round.view().data);
    return QuantizedSpan{.bits = bits, .position = kPosition, .noise = noise};
  };
  std::vector<T> sum(static_cast<std::size_t>(count)), rest;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<T> values = numbers<T>(kind, count, static_cast<std::uint64_t>(rank)),
                         error = numbers<T>("uniform", count, 100);
    const DeviceOperand<T> here({count}, values), kept({count}, error);
    quantize(c.context, span_of(rank), 0.5, here.view(), kept.view(), kept.view(),
             bytes_of(all) + static_cast<std::size_t>(rank) * stride);
    c.finish();
    rest = values;
    for (std::size_t i = 0; i < rest.size(); ++i) rest[i] = values[i] + T(0.5) * error[i];
    const std::vector<std::byte> code = cpu.encode(rest, rank);
    std::vector<std::uint8_t> found = all.values();
    found.erase(found.begin(), found.begin() + rank * static_cast<std::ptrdiff_t>(stride));
    found.resize(stride);
    expect_codes(found, code);
    expect_same(kept.values(), rest, "error");
    cpu.add(code, sum);
  }
  const RankCodes of_ranks{bytes_of(all), stride, kRanks};
  const DeviceOperand<T> total({count}, std::vector<T>(static_cast<std::size_t>(count), T(5))),
      left({count}, rest);
  const DeviceOperand<std::uint8_t> coded({static_cast<std::int64_t>(stride)},
                                          std::vector<std::uint8_t>(stride, 0xa5));
  add_quantized(c.context, span_of(0), of_ranks, total.view());
  quantize_sum(c.context, span_of(-1), of_ranks, left.view(), bytes_of(coded));
  c.finish();
  expect_same(total.values(), sum, "sum");
  expect_codes(coded.values(), cpu.encode(sum, -1));
  for (std::size_t i = 0; i < rest.size(); ++i) rest[i] += sum[i];
  expect_same(left.values(), rest, "error of the sum");
}

TYPED_TEST(QuantizedCodesCuda, HaveTheBytesSumsAndErrorsOfTheCpu) {
  for (const std::int64_t count : {1, 2, 255, 256, 257, 5000})
    for (const int bits : {8, 4})
      for (const std::string& kind : kKinds)
        expect_values_of_cpu<TypeParam>(count, bits, kind, count % 2 == 0);
}

TYPED_TEST(QuantizedCodesCuda, ManyBlocksHaveTheBytesOfTheCpu) {
  for (const int bits : {8, 4}) expect_values_of_cpu<TypeParam>(100'000, bits, "mixed", true);
}

TYPED_TEST(QuantizedCodesCuda, RejectOtherSizesAndTypes) {
  DeviceContext c(0);
  const DeviceOperand<TypeParam> two({2}, {1, 2}), three({3}, {1, 2, 3});
  const DeviceOperand<std::int32_t> integers({2}, {1, 2});
  const DeviceOperand<std::uint8_t> codes({64}, std::vector<std::uint8_t>(64));
  const QuantizedSpan span{.bits = 8, .noise = {}};
  EXPECT_THROW(
      quantize(c.context, span, 1, two.view(), three.view(), three.view(), bytes_of(codes)),
      ShapeError);
  EXPECT_THROW(add_quantized(c.context, span, {bytes_of(codes), 4, 1}, integers.view()),
               ShapeError);
  EXPECT_THROW(
      add_quantized(c.context, {.bits = 5, .noise = {}}, {bytes_of(codes), 4, 1}, two.view()),
      Error);
  KernelContext cpu;
  EXPECT_THROW(add_quantized(cpu, span, {bytes_of(codes), 4, 1}, two.view()), Error);
}

}  // namespace
}  // namespace engine::ops
