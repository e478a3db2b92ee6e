// Dense layers and convolutions on activations stored in bf16: the sums that floats give with
// products in bf16, or by Winograd's method, rounded where stored.
#include <gtest/gtest.h>

#include <functional>

#include "engine/ops/conv2d/winograd_rule.h"
#include "tests/engine/ops/common/products.h"
#include "tests/engine/ops/common/stored_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

template <class Product>
struct StoredProduct {
  Product s;
  int threads;
  Write write;
  Convolutions convolutions = Convolutions::kDirect;

  // y, dx; then the gradients of parameters, which are f32.
  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    auto o = operands_of(s, write).as([](const Operand<float>&) { return Operand<T>(); },
                                      std::identity(), std::identity());
    o.x = stored_operand<T>(s.x(), 1);
    o.dy = stored_operand<T>(s.y(), 2);
    o.y = stored_output<T>(s.y(), Write::kOverwrite);
    o.dx = stored_output<T>(s.x(), write);
    Bf16Context c(threads, s.scratch(threads, DTypeOf<T>::value, Products::kBF16));
    c.context.convolutions = convolutions;
    s.run(c.context, o);
    return {floats_of(o.y), floats_of(o.dx), o.dweight.values, o.dbias.values};
  }
};
// clang 14 deduces nothing for aggregates by itself.
template <class Product, class... Rest>
StoredProduct(Product, Rest...) -> StoredProduct<Product>;

// Odd and even sums, rows read in place and copied, several chunks of steps, more rows than a
// block.
const DenseProduct kStoredDenses[] = {{0, 3, 5},     {1, 1, 1},       {1, 2, 17},    {3, 7, 10},
                                      {5, 16, 33},   {13, 257, 15},   {97, 300, 40}, {200, 65, 47},
                                      {385, 20, 67}, {300, 1030, 70}, {9, 1301, 34}};

// One, three, odd and even channels, in place and with a rim, several chunks of steps, strides
// whose classes have no taps, odd and even batches, several groups.
const ConvProduct kStoredConvs[] = {
    {0, {5, 5, 2, 3, 3, 3, 1, 1}},       {1, {5, 5, 1, 1, 1, 1, 1, 0}},
    {3, {7, 6, 1, 16, 5, 5, 1, 2}},      {2, {8, 9, 3, 10, 3, 3, 1, 1}},
    {2, {8, 9, 6, 10, 3, 3, 1, 1}},      {5, {6, 6, 2, 33, 3, 3, 2, 1}},
    {4, {9, 7, 5, 32, 3, 2, 1, 0}},      {3, {10, 10, 17, 7, 1, 1, 2, 0}},
    {3, {10, 10, 18, 40, 1, 1, 2, 0}},   {2, {4, 5, 700, 33, 1, 1, 1, 0}},
    {1, {4, 4, 140, 33, 3, 3, 1, 1}},    {7, {5, 4, 6, 261, 3, 3, 3, 1}},
    {9, {3, 3, 8, 20, 2, 2, 4, 1}},      {2, {20, 20, 9, 31, 3, 3, 1, 1}},
    {2, {7, 9, 17, 17, 3, 3, 1, 1, 17}}, {3, {6, 5, 24, 48, 5, 5, 2, 2, 3}},
    {2, {12, 10, 64, 96, 1, 1, 2, 0}},   {2, {8, 8, 64, 64, 2, 2, 2, 0}},
    {2, {9, 17, 24, 24, 3, 3, 1, 1, 3}}, {2, {7, 6, 64, 64, 3, 3, 2, 1, 2}}};

class ProductsStored : public Bf16Test {};

template <class Products>
void expect_stored(const Products& products, Convolutions convolutions = Convolutions::kDirect) {
  for (const auto& s : products)
    for (int threads = 1; threads <= 3; ++threads)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(s.text() + ", " + std::to_string(threads) + " threads" +
                     (write == Write::kAdd ? ", add" : ""));
        expect_same_rounded(StoredProduct{s, threads, write, convolutions}, 2, 1e-4);
      }
}

TEST_F(ProductsStored, AreThoseOfFloatsRounded) {
  expect_stored(kStoredDenses);
  expect_stored(kStoredConvs);
}

TEST_F(ProductsStored, WinogradsAreThoseOfFloatsRounded) {
  const ConvProduct convs[] = {{3, {16, 17, 64, 70, 3, 3, 1, 1}}, {2, {30, 9, 96, 65, 3, 3, 1, 0}}};
  for (const ConvProduct& c : convs) ASSERT_TRUE(weights_suit_winograd(c.g, c.n, true));
  expect_stored(convs, Convolutions::kAuto);
}

// For convolutions only those of the activations.
TEST_F(ProductsStored, ThreadsDoNotChangeBits) {
  for (const DenseProduct& s : kStoredDenses) {
    const auto one = StoredProduct{s, 1, Write::kAdd}(bf16{});
    for (int threads = 2; threads <= 4; ++threads)
      EXPECT_EQ((StoredProduct{s, threads, Write::kAdd}(bf16{})), one) << s.text();
  }
  for (const ConvProduct& c : kStoredConvs) {
    const auto one = StoredProduct{c, 1, Write::kAdd}(bf16{});
    for (const int threads : {2, 5}) {
      const auto more = StoredProduct{c, threads, Write::kAdd}(bf16{});
      EXPECT_EQ(more[0], one[0]);
      EXPECT_EQ(more[1], one[1]);
    }
  }
}

TEST_F(ProductsStored, ScratchOfALargerBatchServesASmallerOne) {
  const auto check = [](auto s) {
    for (const int threads : {1, 2, 3, 5})
      expect_growing_scratch(500, [&](std::int64_t n) {
        s.n = n;
        return s.scratch(threads, DType::kBF16, Products::kBF16);
      });
  };
  for (const ConvProduct& c : kStoredConvs) check(c);
  for (const std::int64_t in : {21, 1200}) check(DenseProduct{1, in, 30});
}

}  // namespace
}  // namespace engine::ops
