// Top-k sums on a CUDA device have the codes, errors and sums of plain loops.
#include "engine/ops/codes/top_k_codes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "engine/ops/codes/top_k_entry.h"
#include "tests/engine/ops/codes/code_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;
using namespace code_test;

constexpr int kTopKRanks = 3;

template <class T>
class TopKCodesCuda : public CudaTest {};
using TopKNumbers = testing::Types<float, double>;
TYPED_TEST_SUITE(TopKCodesCuda, TopKNumbers);

// Besides those of other codes: equal magnitudes, mostly zeros, and several that are infinite.
template <class T>
std::vector<T> contribution(const std::string& kind, std::int64_t count, std::uint64_t stream) {
  std::vector<T> values = numbers<T>(kind, count, stream);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (kind == "several" && i % 50 == 3) values[i] = std::numeric_limits<T>::infinity();
    if (kind == "ties") values[i] = std::round(2 * values[i]);
    if (kind == "rare" && i % 37 != 5) values[i] = T(0);
  }
  return values;
}

// Sorts, unlike the kernels and TopKSum.
template <class T>
std::vector<std::byte> code_of(std::vector<T>& owed, std::int64_t sent) {
  std::vector<TopKIndex> order(owed.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](TopKIndex a, TopKIndex b) {
    return top_k_key(owed[a]) > top_k_key(owed[b]);
  });
  order.resize(static_cast<std::size_t>(sent));
  std::sort(order.begin(), order.end());
  std::vector<std::byte> code(top_k_bytes(sent, sizeof(T)));
  for (std::size_t k = 0; k < order.size(); ++k) {
    T& value = owed[order[k]];
    std::memcpy(code.data() + k * sizeof(T), &value, sizeof(T));
    std::memcpy(code.data() + order.size() * sizeof(T) + k * sizeof(TopKIndex), &order[k],
                sizeof(TopKIndex));
    value = 0;
  }
  for (T& value : owed) value = kept_of(value);
  return code;
}

// Codes of all ranks, as far apart as their bytes, then their sum.
template <class T>
void expect_values(const std::string& kind, std::int64_t count, std::int64_t sent) {
  SCOPED_TRACE(kind + ", " + std::to_string(sent) + " of " + std::to_string(count));
  DeviceContext context(top_k_scratch_bytes());
  const std::size_t bytes = top_k_bytes(sent, sizeof(T));
  const auto all_bytes = static_cast<std::int64_t>(bytes * kTopKRanks);
  const DeviceOperand<std::uint8_t> all(
      {all_bytes}, std::vector<std::uint8_t>(static_cast<std::size_t>(all_bytes), 0xa5));
  const DeviceOperand<std::uint8_t> own({static_cast<std::int64_t>(bytes)},
                                        std::vector<std::uint8_t>(bytes, 0xa5));
  std::vector<T> sum(static_cast<std::size_t>(count));
  for (int rank = 0; rank < kTopKRanks; ++rank) {
    const std::vector<T> values = contribution<T>(kind, count, static_cast<std::uint64_t>(rank));
    std::vector<T> owed = numbers<T>(kind == "uniform" ? "mixed" : "zeros", count, 100);
    const DeviceOperand<T> here({count}, values), error({count}, owed);
    take_top_k(context.context, {here.view(), error.view()}, sent, bytes_of(own));
    engine::cuda::copy_async(bytes_of(all) + static_cast<std::size_t>(rank) * bytes, bytes_of(own),
                             bytes, context.stream.handle());
    context.finish();
    expect_same(here.values(), values, "value");
    for (std::size_t i = 0; i < owed.size(); ++i) owed[i] += values[i];
    const std::vector<std::byte> code = code_of(owed, sent);
    if (kind != "nan") expect_codes(own.values(), code);
    expect_same(error.values(), owed, "error");
    for (std::int64_t k = 0; k < sent; ++k) {
      T value;
      TopKIndex index;
      std::memcpy(&value, code.data() + static_cast<std::size_t>(k) * sizeof value, sizeof value);
      std::memcpy(&index,
                  code.data() + top_k_indices_at(sent, sizeof value) +
                      static_cast<std::size_t>(k) * sizeof index,
                  sizeof index);
      sum[index] += value;
    }
  }
  const DeviceOperand<T> total({count}, std::vector<T>(static_cast<std::size_t>(count), T(5)));
  add_top_k(context.context, sent, {bytes_of(all), bytes, kTopKRanks}, total.view());
  context.finish();
  expect_same(total.values(), sum, "sum");
}

TYPED_TEST(TopKCodesCuda, HaveTheValuesOfPlainLoops) {
  std::vector<std::string> kinds = kKinds;
  kinds.insert(kinds.end(), {"ties", "rare", "several"});
  for (const std::string& kind : kinds)
    for (const std::int64_t count : {100, 4097}) expect_values<TypeParam>(kind, count, count / 3);
  for (const std::string kind : {"uniform", "ties"})
    for (const std::int64_t count : {1, 9000})
      for (const std::int64_t sent : {std::int64_t{1}, count})
        expect_values<TypeParam>(kind, count, sent);
}

// Chunks have several tiles, and the last one fewer.
TYPED_TEST(TopKCodesCuda, OfManyElementsAreTheFirstOfTheLargest) {
  if (sizeof(TypeParam) != sizeof(float)) return;
  constexpr std::int64_t kCount = (std::int64_t{4100} << 10) + 77, kSent = 1'000'001;
  std::vector<float> values(kCount), error(kCount);
  for (std::size_t i = 0; i < values.size(); ++i) {  // 600 magnitudes
    const std::uint32_t word = static_cast<std::uint32_t>(i) * 2654435761U;
    values[i] = static_cast<float>((word >> 16) % 600) * ((word & 1) != 0 ? -1.0F : 1.0F);
  }
  std::vector<float> sizes(values);
  for (float& size : sizes) size = std::abs(size);
  std::nth_element(sizes.begin(), sizes.end() - kSent, sizes.end());
  const float limit = *(sizes.end() - kSent);
  std::int64_t left = kSent - std::count_if(values.begin(), values.end(), [limit](float value) {
                        return std::abs(value) > limit;
                      });
  DeviceContext context(top_k_scratch_bytes());
  const DeviceOperand<float> here({kCount}, values), kept({kCount}, error);
  const auto bytes = static_cast<std::int64_t>(top_k_bytes(kSent, sizeof(float)));
  const DeviceOperand<std::uint8_t> code({bytes}, std::vector<std::uint8_t>(bytes));
  take_top_k(context.context, {here.view(), kept.view()}, kSent, bytes_of(code));
  context.finish();
  const std::vector<std::uint8_t> found = code.values();
  std::size_t k = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float size = std::abs(values[i]);
    if (size < limit || (size == limit && left-- <= 0)) {
      error[i] += values[i];
      continue;
    }
    float value;
    TopKIndex index;
    std::memcpy(&value, found.data() + k * sizeof value, sizeof value);
    std::memcpy(&index, found.data() + (kSent + k) * sizeof index, sizeof index);
    ASSERT_EQ(value, values[i]) << k;
    ASSERT_EQ(index, i) << k;
    ++k;
  }
  EXPECT_EQ(k, static_cast<std::size_t>(kSent));
  expect_same(kept.values(), error, "error");
}

TYPED_TEST(TopKCodesCuda, AnIndexOutsideMakesTheSumNaN) {
  DeviceContext context;
  constexpr std::int64_t kCount = 10, kSent = 3;
  const std::size_t bytes = top_k_bytes(kSent, sizeof(TypeParam));
  std::vector<std::uint8_t> code(bytes);
  const TopKIndex indices[] = {0, 2, 10};
  std::memcpy(code.data() + top_k_indices_at(kSent, sizeof(TypeParam)), indices, sizeof indices);
  const DeviceOperand<std::uint8_t> all({static_cast<std::int64_t>(bytes)}, code);
  const DeviceOperand<TypeParam> total({kCount}, std::vector<TypeParam>(kCount));
  add_top_k(context.context, kSent, {bytes_of(all), bytes, 1}, total.view());
  context.finish();
  EXPECT_TRUE(std::isnan(total.values()[0]));
  EXPECT_EQ(total.values()[2], TypeParam(0));
}

TYPED_TEST(TopKCodesCuda, RejectWhatIsNoSelection) {
  DeviceContext context(top_k_scratch_bytes());
  const DeviceOperand<TypeParam> values({4}, std::vector<TypeParam>(4)),
      short_error({3}, std::vector<TypeParam>(3));
  const DeviceOperand<std::uint8_t> code({64}, std::vector<std::uint8_t>(64));
  EXPECT_THROW(take_top_k(context.context, {values.view(), short_error.view()}, 2, bytes_of(code)),
               Error);
  EXPECT_THROW(take_top_k(context.context, {values.view(), values.view()}, 5, bytes_of(code)),
               Error);
  DeviceContext without_scratch;
  EXPECT_THROW(
      take_top_k(without_scratch.context, {values.view(), values.view()}, 2, bytes_of(code)),
      Error);
  KernelContext on_cpu;
  EXPECT_THROW(take_top_k(on_cpu, {values.view(), values.view()}, 2, bytes_of(code)), Error);
}

}  // namespace
}  // namespace engine::ops
