// Copies of channels on a CUDA device: exact, for every storage and alignment; the rest of the wide
// tensor keeps its numbers.
#include "engine/ops/pool/copy_channels.h"
#include "tests/engine/ops/device/device_runs.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class CopyChannelsCuda : public CudaTest {};
TYPED_TEST_SUITE(CopyChannelsCuda, Storages);

TYPED_TEST(CopyChannelsCuda, AgreesWithTheHost) {
  for (const Shape& in : {Shape{0, 3, 3, 4}, Shape{1, 1, 1, 1}, Shape{3, 5, 7, 17},
                          Shape{2, 8, 8, 64}, Shape{5, 16}, Shape{4, 3}})
    for (const std::int64_t before : {0, 3, 8, 16})
      for (const std::int64_t after : {0, 5, 24})
        for (const std::int64_t shift : {0, 1}) {
          SCOPED_TRACE(in.to_string() + " after " + std::to_string(before) + ", shifted by " +
                       std::to_string(shift));
          Shape out = in;
          out[in.rank() - 1] += before + after;
          const Given operands[] = {random_operand(in, 1), random_operand(out, 2)};
          const auto [found, expected] = run_on_device<TypeParam>(
              operands,
              [&](KernelContext& c, TensorView x, TensorView y) {
                copy_channels(c, {.before = before, .x = x, .y = y});
              },
              shift);
          EXPECT_LE(relative_error(found[1], expected[1]), 0);
        }
}

TYPED_TEST(CopyChannelsCuda, OfTheLastOnesAgreeWithTheHost) {
  const Shape shape{3, 5, 24};
  for (const std::int64_t from : {0, 5, 16, 23})
    for (const std::int64_t before : {0, 1, 8})
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        if (before + 24 - from > 24) continue;
        SCOPED_TRACE(std::to_string(from) + " after " + std::to_string(before));
        const Given operands[] = {random_operand(shape, 1), random_operand(shape, 2)};
        const auto [found, expected] =
            run_on_device<TypeParam>(operands, [&](KernelContext& c, TensorView x, TensorView y) {
              copy_channels(c, {.before = before, .x = x, .y = y, .from = from, .write = write});
            });
        EXPECT_LE(relative_error(found[1], expected[1]),
                  write == Write::kAdd ? storage_error<TypeParam>() : 0);
      }
}

// More packs than the largest grid has threads.
TYPED_TEST(CopyChannelsCuda, LoopsPastTheGrid) {
  const std::int64_t rows = 132 * 16 * 256 + 100;
  const Operand<float> x = random_operand({rows, 1}, 1);
  const auto from = to_device<TypeParam>(x.shape, x.values),
             to = to_device<TypeParam>({rows, 2}, std::vector<float>(2 * x.values.size(), 7));
  DeviceContext c;
  copy_channels(c.context, {.before = 1, .x = from.view(), .y = to.view()});
  c.finish();
  const auto kept_x = as_floats(from.values()), found = as_floats(to.values());
  for (std::size_t i = 0; i < kept_x.size(); ++i) {
    ASSERT_EQ(found[2 * i], 7) << i;
    ASSERT_EQ(found[2 * i + 1], kept_x[i]) << i;
  }
}

using CopyChannelsCudaOnce = CudaTest;

TEST_F(CopyChannelsCudaOnce, RefusesATensorThatIsTooNarrow) {
  DeviceContext c;
  const auto x = to_device<float>({2, 3}, std::vector<float>(6)),
             y = to_device<float>({2, 4}, std::vector<float>(8));
  EXPECT_THROW(copy_channels(c.context, {.before = 2, .x = x.view(), .y = y.view()}), ShapeError);
}

}  // namespace
}  // namespace engine::ops
