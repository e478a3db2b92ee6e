// The dense layer on activations stored in bf16: the sums of products in bf16 of floats, rounded
// where stored.
#include <gtest/gtest.h>

#include "engine/ops/dense/dense.h"
#include "tests/engine/ops/common/stored_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

struct StoredDense {
  std::int64_t n, in, out;
  int threads;
  Write write;

  std::size_t scratch(DType dtype) const {
    return dense_scratch_bytes(n, in, out, dtype, threads, Device::Kind::kCpu, Products::kBF16);
  }

  // y, dx; then the gradients of parameters, which are f32.
  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    auto x = stored_operand<T>({n, in}, 1), dy = stored_operand<T>({n, out}, 2),
         y = stored_output<T>({n, out}, Write::kOverwrite), dx = stored_output<T>({n, in}, write);
    auto weight = random_operand({out, in}, 3), bias = random_operand({out}, 4),
         dweight = output({out, in}, write), dbias = output({out}, write);
    Bf16Context c(threads, scratch(DTypeOf<T>::value));
    dense_forward(c.context, {.x = x.view(),
                              .weight = weight.view(),
                              .bias = bias.view(),
                              .relu = write == Write::kAdd,
                              .y = y.view()});
    dense_backward_data(
        c.context, {.dy = dy.view(), .weight = weight.view(), .dx = dx.view(), .write = write});
    dense_backward_weights(c.context, {.x = x.view(),
                                       .dy = dy.view(),
                                       .dweight = dweight.view(),
                                       .dbias = dbias.view(),
                                       .write = write});
    return {floats_of(y), floats_of(dx), dweight.values, dbias.values};
  }
};

// Odd and even sums, rows read in place and copied, several chunks of steps, more rows than a
// block.
const std::int64_t kStoredDense[][3] = {
    {0, 3, 5},     {1, 1, 1},     {1, 2, 17},    {3, 7, 10},      {5, 16, 33},  {13, 257, 15},
    {97, 300, 40}, {200, 65, 47}, {385, 20, 67}, {300, 1030, 70}, {9, 1301, 34}};

class DenseStored : public Bf16Test {};

TEST_F(DenseStored, IsThatOfFloatsRounded) {
  for (const auto& [n, in, out] : kStoredDense)
    for (int threads = 1; threads <= 3; ++threads)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(std::to_string(n) + " x " + std::to_string(in) + " -> " + std::to_string(out) +
                     ", " + std::to_string(threads) + " threads" +
                     (write == Write::kAdd ? ", add" : ""));
        expect_same_rounded(StoredDense{n, in, out, threads, write}, 2, 1e-4);
      }
}

TEST_F(DenseStored, BitsDoNotDependOnThreads) {
  for (const auto& [n, in, out] : kStoredDense) {
    const StoredDense one{n, in, out, 1, Write::kAdd};
    for (int threads = 2; threads <= 4; ++threads)
      EXPECT_EQ((StoredDense{n, in, out, threads, Write::kAdd})(bf16{}), one(bf16{})) << in;
  }
}

TEST_F(DenseStored, ScratchOfALargerBatchServesASmallerOne) {
  for (const int threads : {1, 3})
    for (const std::int64_t in : {21, 1200}) {
      std::size_t before = 0;
      for (std::int64_t n = 0; n < 500; ++n) {
        const std::size_t bytes =
            StoredDense{n, in, 30, threads, Write::kAdd}.scratch(DType::kBF16);
        EXPECT_GE(bytes, before) << n;
        before = bytes;
      }
    }
}

}  // namespace
}  // namespace engine::ops
