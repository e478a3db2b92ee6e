// Gathering of samples on a CUDA device, against copies in host memory.
#include "engine/ops/samples/gather_samples.h"

#include <numeric>

#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

// The k-th element of the data, different from its neighbors.
template <class T>
T element(std::int64_t k) {
  return static_cast<T>((k * 37 + k / 251) % 251);
}

template <class T>
std::vector<T> elements(std::int64_t count) {
  std::vector<T> values;
  for (std::int64_t k = 0; k < count; ++k) values.push_back(element<T>(k));
  return values;
}

template <class T>
std::vector<T> gathered(std::int64_t size, const Shape& sample,
                        const std::vector<std::int64_t>& ids) {
  const auto n = static_cast<std::int64_t>(ids.size());
  const std::int64_t width = sample.count();
  DeviceContext c;
  const DeviceOperand<T> rows(sample.with_batch(size), elements<T>(size * width));
  const DeviceOperand<std::int64_t> device_ids({n}, ids);
  const DeviceOperand<T> out(sample.with_batch(n),
                             std::vector<T>(static_cast<std::size_t>(n * width), T{99}));
  gather_rows(c.context, {.rows = rows.view(),
                          .ids = device_ids.view().template as<std::int64_t>(),
                          .out = out.view()});
  c.finish();
  return out.values();
}

template <class T>
void expect_rows(std::int64_t size, const Shape& sample, const std::vector<std::int64_t>& ids) {
  const std::int64_t width = sample.count();
  std::vector<T> expected;
  for (const std::int64_t id : ids)
    for (std::int64_t i = 0; i < width; ++i) expected.push_back(element<T>(id * width + i));
  EXPECT_EQ(gathered<T>(size, sample, ids), expected) << sample.to_string();
}

using GatherSamplesCuda = CudaTest;

// Samples of odd sizes, of multiples of 4 bytes and of 16.
TEST_F(GatherSamplesCuda, RowsAreThoseOfTheirIndices) {
  const std::vector<std::int64_t> ids{6, 0, 3, 3, 1, 6, 2};
  for (const Shape& sample : {Shape{5, 7, 3}, {1, 1, 1}, {2, 2, 3}, {4, 4, 1}, {3}}) {
    expect_rows<std::uint8_t>(7, sample, ids);
    expect_rows<float>(7, sample, ids);
  }
  expect_rows<std::uint8_t>(7, {4}, {});
}

// More elements than threads of the largest grid.
TEST_F(GatherSamplesCuda, RowsOfALargeBatch) {
  std::vector<std::int64_t> ids(600);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i * 7 % 11);
  expect_rows<std::uint8_t>(11, {1023}, ids);
}

TEST_F(GatherSamplesCuda, WindowsAndTheirNextTokens) {
  for (const auto& [stride, width] : {std::pair{1, 5}, {3, 5}, {8, 8}, {8, 1}}) {
    const std::vector<std::int64_t> ids{4, 0, 9, 4};
    const std::int64_t size = 9 * stride + width + 1;
    const auto n = static_cast<std::int64_t>(ids.size());
    DeviceContext c;
    const DeviceOperand<std::int32_t> stream({size}, elements<std::int32_t>(size));
    const DeviceOperand<std::int64_t> device_ids({n}, ids);
    const std::vector<std::int32_t> none(static_cast<std::size_t>(n * width), -1);
    const DeviceOperand<std::int32_t> tokens({n, width}, none), next({n, width}, none);
    gather_windows(c.context, {.stream = stream.view(),
                               .stride = stride,
                               .ids = device_ids.view().as<std::int64_t>(),
                               .tokens = tokens.view(),
                               .next = next.view()});
    c.finish();
    std::vector<std::int32_t> expected, after;
    for (const std::int64_t id : ids)
      for (std::int64_t i = 0; i < width; ++i) {
        expected.push_back(element<std::int32_t>(id * stride + i));
        after.push_back(element<std::int32_t>(id * stride + i + 1));
      }
    EXPECT_EQ(tokens.values(), expected) << stride;
    EXPECT_EQ(next.values(), after) << stride;
  }
}

TEST_F(GatherSamplesCuda, ChecksItsOperands) {
  DeviceContext c;
  const DeviceOperand<float> rows({3, 2}, std::vector<float>(6)),
      out({2, 2}, std::vector<float>(4)), wide({2, 3}, std::vector<float>(6));
  const DeviceOperand<std::int64_t> ids({2}, {0, 1});
  const std::int64_t* of = ids.view().as<std::int64_t>();
  EXPECT_THROW(gather_rows(c.context, {rows.view(), of, wide.view()}), ShapeError);
  EXPECT_THROW(gather_rows(c.context, {rows.view(), nullptr, out.view()}), ShapeError);
  KernelContext host;
  EXPECT_THROW(gather_rows(host, {rows.view(), of, out.view()}), Error);
}

}  // namespace
}  // namespace engine::ops
