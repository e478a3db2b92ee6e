// Elementwise kernels: the fast ones against the references, aliasing, dropout's mask, and the
// order of flatten.
#include "engine/ops/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/core/random.h"
#include "tests/engine/ops/common/kernel_runs.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

const std::int64_t kCounts[] = {0, 1, 3, 4, 7, 8, 15, 16, 17, 33, 4095, 4096, 4097, 12'345};

TEST(Relu, ZeroBelowZeroAndKeepsNan) {
  for_each_setting([](int threads) {
    Context c(threads, 0);
    for (const std::int64_t count : kCounts) {
      Operand<float> x = random_operand({count}, 1), y({count}, 9);
      if (count > 2) x.values[2] = std::nanf("");
      relu_forward(c.context, x.view(), y.view());
      for (std::size_t i = 0; i < y.values.size(); ++i) {
        if (i == 2) {
          EXPECT_TRUE(std::isnan(y.values[i]));
        } else {
          EXPECT_EQ(y.values[i], std::max(0.f, x.values[i]));
        }
      }
      const std::vector<float> expected = y.values;
      relu_forward(c.context, x.view(), x.view());  // in place
      EXPECT_TRUE(
          std::equal(expected.begin(), expected.end(), x.values.begin(),
                     [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }));
    }
  });
}

TEST(Relu, GradientPassesWhereTheOutputIsPositive) {
  for_each_setting([](int threads) {
    for (const std::int64_t count : kCounts)
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        Operand<float> y = random_operand({count}, 1);
        if (count > 3) y.values[3] = 0;
        const Operand<float> dy = random_operand({count}, 2);
        const Given operands[] = {y, dy, output({count}, write), dy};
        const auto [found, expected] =
            run_both(threads, operands,
                     [&](KernelContext& c, TensorView out, TensorView slopes, TensorView dx,
                         TensorView same) {
                       relu_backward(c, out, slopes, dx, write);
                       relu_backward(c, out, same, same, Write::kOverwrite);  // in place
                     });
        EXPECT_EQ(far_apart(found[2], expected[2], 1e-6, 1e-7), "");
        if (write == Write::kOverwrite) {
          EXPECT_EQ(found[3], found[2]);
        }
      }
  });
}

TEST(Add, SumsWithAndWithoutReluAndInPlace) {
  for_each_setting([](int threads) {
    for (const std::int64_t count : kCounts)
      for (const bool relu : {false, true}) {
        const Operand<float> a = random_operand({count}, 1);
        const Given operands[] = {a, random_operand({count}, 2), nothing({count}), a};
        const auto [found, expected] =
            run_both(threads, operands,
                     [&](KernelContext& c, TensorView left, TensorView right, TensorView y,
                         TensorView same) {
                       add_forward(c, left, right, relu, y);
                       add_forward(c, same, right, relu, same);
                     });
        EXPECT_EQ(far_apart(found[2], expected[2], 1e-6, 1e-7), "");
        EXPECT_EQ(found[3], found[2]);
      }
  });
}

TEST(CopyOrAdd, CopiesAndAdds) {
  for_each_setting([](int threads) {
    Context c(threads, 0);
    for (const std::int64_t count : kCounts) {
      Operand<float> from = random_operand({count}, 1), to = gemm_test::nan_operand({count});
      copy_or_add(c.context, from.view(), to.view(), Write::kOverwrite);
      EXPECT_EQ(to.values, from.values);
      copy_or_add(c.context, from.view(), to.view(), Write::kAdd);
      for (std::size_t i = 0; i < to.values.size(); ++i)
        EXPECT_EQ(to.values[i], 2 * from.values[i]);
    }
  });
}

TEST(Cast, WidensAndCopies) {
  Context c(2, 0);
  Operand<float> from = random_operand({1001}, 1), narrow({1001}, 0);
  Operand<double> wide({1001}, 0);
  cast(c.context, from.view(), wide.view());
  cast(c.context, from.view(), narrow.view());
  EXPECT_EQ(wide.values, gemm_test::widened(from));
  EXPECT_EQ(narrow.values, from.values);
}

TEST(Fill, WritesZerosValuesAndCounts) {
  Context c(1, 0);
  Operand<float> narrow = random_operand({33}, 1);
  Operand<double> wide({33}, 5);
  Operand<std::int64_t> counter({}, 41);
  fill(c.context, 0.1, narrow.view());
  fill(c.context, 0.1, wide.view());
  EXPECT_EQ(narrow.values, std::vector<float>(33, 0.1f));
  EXPECT_EQ(wide.values, std::vector<double>(33, 0.1));
  zero(c.context, narrow.view());
  zero(c.context, wide.view());
  EXPECT_EQ(narrow.values, std::vector<float>(33, 0.f));
  EXPECT_EQ(wide.values, std::vector<double>(33, 0.0));
  increment(c.context, counter.view());
  EXPECT_EQ(counter.values[0], 42);
  EXPECT_THROW(increment(c.context, wide.view()), ShapeError);
  EXPECT_THROW(fill(c.context, 1, counter.view()), ShapeError);
}

// Samples of `count` elements; x is 1 everywhere, so that what comes out is the mask times the
// factor.
template <class T>
std::vector<T> mask(int threads, std::int64_t count, double rate, std::uint64_t epoch,
                    const std::vector<std::int64_t>& ids) {
  Operand<T> x({static_cast<std::int64_t>(ids.size()), count}, 1), y = x;
  Context c(threads, 0);
  dropout(c.context, {.from = x.view(),
                      .rate = rate,
                      .key = 0x123456789abcdef,
                      .epoch = epoch,
                      .sample_ids = ids,
                      .to = y.view()});
  return y.values;
}

TEST(Dropout, TheMaskIsThatOfPhiloxForEverySettingAndDtype) {
  const std::vector<std::int64_t> ids{5, 0, 59'999,
                                      (std::int64_t{1} << 31) + 7};  // counters beyond 32 bits too
  for (const std::int64_t count : {1, 3, 4, 63, 64, 65, 130}) {
    std::vector<double> expected;
    const std::uint64_t blocks = static_cast<std::uint64_t>(count + 3) / 4;
    for (const std::int64_t id : ids) {
      for (std::uint64_t e = 0; e < static_cast<std::uint64_t>(count); ++e) {
        const auto words =
            philox(0x123456789abcdef, 3, static_cast<std::uint64_t>(id) * blocks + e / 4);
        expected.push_back(uniform_float(words[e % 4]) >= 0.3 ? 1 / 0.7 : 0.0);
      }
    }
    EXPECT_EQ(far_apart(mask<double>(1, count, 0.3, 3, ids), expected, 1e-15, 0), "");
    for_each_setting([&](int threads) {
      EXPECT_EQ(far_apart(mask<float>(threads, count, 0.3, 3, ids), expected, 1e-7, 0), "");
    });
  }
}

TEST(Dropout, DependsOnTheSampleNotOnItsPlaceInTheBatch) {
  const std::vector<float> both = mask<float>(2, 50, 0.5, 1, {7, 9}),
                           first = mask<float>(1, 50, 0.5, 1, {7});
  const std::vector<float> second = mask<float>(1, 50, 0.5, 1, {9});
  EXPECT_TRUE(std::equal(first.begin(), first.end(), both.begin()));
  EXPECT_TRUE(std::equal(second.begin(), second.end(), both.begin() + 50));
  EXPECT_NE(first, second);
  EXPECT_NE(first, mask<float>(1, 50, 0.5, 2, {7}));  // another epoch
}

TEST(Dropout, KeepsTheShareAskedForAndTheMean) {
  std::vector<std::int64_t> ids(100);
  std::iota(ids.begin(), ids.end(), 0);
  for (const double rate : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    const std::vector<float> y = mask<float>(2, 1000, rate, 0, ids);
    const double kept =
        static_cast<double>(std::count_if(y.begin(), y.end(), [](float v) { return v != 0; })) /
        1e5;
    EXPECT_NEAR(kept, 1 - rate, 0.005) << rate;  // five standard deviations at 0.5 are 0.008
    const double mean = std::accumulate(y.begin(), y.end(), 0.0) / 1e5;
    EXPECT_NEAR(mean, rate < 1 ? 1 : 0, 0.03) << rate;
  }
}

TEST(Dropout, BackwardUsesTheSameMask) {
  for_each_setting([](int threads) {
    const std::vector<std::int64_t> ids{1, 2, 3};
    Operand<float> x = random_operand({3, 5, 7}, 1), y = x, dx = x;
    Context c(threads, 0);
    const auto drop = [&](Operand<float>& to, Write write, double rate,
                          const std::vector<std::int64_t>& of) {
      dropout(c.context, {x.view(), rate, 1, 2, of, to.view(), write});
    };
    drop(y, Write::kOverwrite, 0.4, ids);
    drop(dx, Write::kOverwrite, 0.4, ids);
    EXPECT_EQ(dx.values, y.values);
    drop(dx, Write::kAdd, 0.4, ids);
    for (std::size_t i = 0; i < dx.values.size(); ++i)
      EXPECT_NEAR(dx.values[i], 2 * y.values[i], 1e-6);
    for (const double rate : {1.5, std::nan("")})
      EXPECT_THROW(drop(y, Write::kOverwrite, rate, ids), ModelError);
    EXPECT_THROW(drop(y, Write::kOverwrite, 0.5, {1}), ShapeError);
  });
}

TEST(Flatten, IsChannelFirstAndBack) {
  for_each_setting([](int threads) {
    for (const Shape& shape : {Shape{0, 2, 3, 4}, Shape{1, 1, 1, 1}, Shape{2, 7, 7, 32},
                               Shape{3, 3, 5, 7}, Shape{2, 9, 10, 17}}) {
      SCOPED_TRACE(shape.to_string());
      const std::int64_t n = shape[0], pixels = shape[1] * shape[2], channels = shape[3];
      Operand<float> x = random_operand(shape, 1),
                     y = gemm_test::nan_operand({n, pixels * channels});
      Operand<float> back = gemm_test::nan_operand(shape);
      Operand<double> wide_x = widen(x), wide_y = widen(y);
      Context c(threads, 0);
      nhwc_to_channel_first(c.context, x.view(), y.view(), Write::kOverwrite);
      nhwc_to_channel_first(c.context, wide_x.view(), wide_y.view(), Write::kOverwrite);
      EXPECT_EQ(far_apart(y.values, wide_y.values, 0, 0), "");
      for (std::int64_t i = 0; i < x.shape.count(); ++i) {
        const std::int64_t s = i / (pixels * channels), p = i / channels % pixels, k = i % channels;
        EXPECT_EQ(y.values[static_cast<std::size_t>((s * channels + k) * pixels + p)],
                  x.values[static_cast<std::size_t>(i)]);
      }
      channel_first_to_nhwc(c.context, y.view(), back.view(), Write::kOverwrite);
      EXPECT_EQ(back.values, x.values);
      channel_first_to_nhwc(c.context, y.view(), back.view(), Write::kAdd);
      for (std::size_t i = 0; i < back.values.size(); ++i)
        EXPECT_EQ(back.values[i], 2 * x.values[i]);
    }
  });
}

TEST(Elementwise, RefusesOperandsThatDoNotFit) {
  Context c(1, 0);
  Operand<float> three({3}, 0), four({4}, 0);
  Operand<double> wide({3}, 0);
  EXPECT_THROW(relu_forward(c.context, three.view(), four.view()), ShapeError);
  EXPECT_THROW(relu_forward(c.context, three.view(), wide.view()), ShapeError);
  EXPECT_THROW(add_forward(c.context, three.view(), four.view(), false, three.view()), ShapeError);
  EXPECT_THROW(copy_or_add(c.context, three.view(), {}, Write::kAdd), ShapeError);
  EXPECT_THROW(cast(c.context, wide.view(), wide.view()), ShapeError);
}

}  // namespace
}  // namespace engine::ops
