// Convolutions of any window against their definition, with every instruction set and number of
// threads; several chunks; bf16; and operands that do not fit.
#include "engine/ops/windows/window_conv2d.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/common/stored_test_support.h"
#include "tests/engine/ops/windows/window_conv_cases.h"
#include "tests/support/expect_contains.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

std::vector<double> starting_with(const Operand<float>& operand, Write write) {
  std::vector<double> values(operand.values.size(), 0);
  if (write == Write::kAdd) values.assign(operand.values.begin(), operand.values.end());
  return values;
}

template <class T>
struct ConvOperands {
  Operand<T> x, dy, weight, bias, y, dx, dweight, dbias;
};

ConvOperands<float> operands_of(const WindowConvCase& c, Write write) {
  const Shape vector{c.conv.out_channels};
  return {random_operand(c.x(), 1),  random_operand(c.y(), 2), random_operand(c.weight(), 3),
          random_operand(vector, 4), output(c.y(), write),     output(c.x(), write),
          output(c.weight(), write), output(vector, write)};
}

struct ConvResults {
  std::vector<double> y, dx, dweight, dbias;
};

ConvResults expected_results(const WindowConvCase& c, const ConvOperands<float>& o, Write write) {
  ConvResults r{starting_with(o.y, write), starting_with(o.dx, write),
                starting_with(o.dweight, write), starting_with(o.dbias, write)};
  const auto channels = static_cast<std::size_t>(c.conv.out_channels);
  for (std::size_t i = 0; i < r.y.size(); ++i) {
    if (write == Write::kOverwrite) r.y[i] += o.bias.values[i % channels];
    r.dbias[i % channels] += o.dy.values[i];
  }
  for_each_tap(c, [&](auto x, auto y, auto w) {
    const auto from = static_cast<std::size_t>(x), to = static_cast<std::size_t>(y),
               by = static_cast<std::size_t>(w);
    r.y[to] += static_cast<double>(o.x.values[from]) * o.weight.values[by];
    r.dx[from] += static_cast<double>(o.dy.values[to]) * o.weight.values[by];
    r.dweight[by] += static_cast<double>(o.x.values[from]) * o.dy.values[to];
  });
  return r;
}

template <class T>
void run_all(KernelContext& context, const WindowConv2d& conv, ConvOperands<T>& o, Write write) {
  window_conv2d_forward(context,
                        {conv, o.x.view(), o.weight.view(), o.y.view(),
                         write == Write::kOverwrite ? o.bias.view() : TensorView{}, write});
  window_conv2d_backward_data(context, {conv, o.dy.view(), o.weight.view(), o.dx.view(), write});
  window_conv2d_backward_weights(
      context, {conv, o.x.view(), o.dy.view(), o.dweight.view(), o.dbias.view(), write});
}

template <class T>
void expect_near(const ConvOperands<T>& found, const ConvResults& expected, double tolerance) {
  EXPECT_EQ(far_apart(found.y.values, expected.y, tolerance, tolerance), "");
  EXPECT_EQ(far_apart(found.dx.values, expected.dx, tolerance, tolerance), "");
  EXPECT_EQ(far_apart(found.dweight.values, expected.dweight, tolerance, tolerance), "");
  EXPECT_EQ(far_apart(found.dbias.values, expected.dbias, tolerance, tolerance), "");
}

void check_floats(const WindowConvCase& c, int threads, double tolerance) {
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    ConvOperands<float> o = operands_of(c, write);
    const ConvResults expected = expected_results(c, o, write);
    Context context(threads, window_conv2d_scratch_bytes(c.conv, c.n, DType::kF32, threads));
    run_all(context.context, c.conv, o, write);
    expect_near(o, expected, tolerance);
  }
}

TEST(WindowConv2d, IsItsDefinition) {
  for_each_setting([](int threads) {
    for (std::size_t i = 0; i < kWindowConvs.size(); ++i) {
      SCOPED_TRACE("case " + std::to_string(i));
      check_floats(kWindowConvs[i], threads, 2e-5);
    }
  });
}

TEST(WindowConv2d, IsItsDefinitionInFloat64) {
  for (std::size_t i = 0; i < kWindowConvs.size(); ++i)
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      SCOPED_TRACE("case " + std::to_string(i));
      const WindowConvCase& c = kWindowConvs[i];
      const ConvOperands<float> from = operands_of(c, write);
      ConvOperands<double> o{widen(from.x), widen(from.dy), widen(from.weight),  widen(from.bias),
                             widen(from.y), widen(from.dx), widen(from.dweight), widen(from.dbias)};
      Context context(2, window_conv2d_scratch_bytes(c.conv, c.n, DType::kF64, 2));
      run_all(context.context, c.conv, o, write);
      expect_near(o, expected_results(c, from, write), 1e-12);
    }
}

// Patches of 256 lines of 72 KiB.
const WindowConvCase kLarge{2, {{{128, 3, 1, 2, 2, 2}, {128, 3, 1, 2, 2, 2}, 16}, 4, 2}};

TEST(WindowConv2d, WorksInChunksOfLines) {
  EXPECT_LT(window_conv2d_scratch_bytes(kLarge.conv, kLarge.n, DType::kF32, 1), 16U << 20);
  check_floats(kLarge, 2, 2e-4);
}

TEST(WindowConv2d, HasTheSameBitsForAnyNumberOfThreads) {
  ConvOperands<float> alone = operands_of(kLarge, Write::kOverwrite), many = alone;
  for (ConvOperands<float>* each : {&alone, &many}) {
    const int threads = each == &alone ? 1 : 3;
    Context c(threads, window_conv2d_scratch_bytes(kLarge.conv, 2, DType::kF32, threads));
    run_all(c.context, kLarge.conv, *each, Write::kOverwrite);
  }
  EXPECT_EQ(alone.y.values, many.y.values);
  EXPECT_EQ(alone.dx.values, many.dx.values);
  EXPECT_EQ(alone.dweight.values, many.dweight.values);
  EXPECT_EQ(alone.dbias.values, many.dbias.values);
}

// Activations are T; y and dx are compared with those of floats.
struct StoredConv {
  const WindowConvCase& c;

  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    auto x = stored_operand<T>(c.x(), 1), dy = stored_operand<T>(c.y(), 2),
         y = stored_output<T>(c.y(), Write::kOverwrite);
    Operand<float> weight = stored_operand<float>(c.weight(), 3),
                   bias = random_operand({c.conv.out_channels}, 4),
                   dweight = gemm_test::nan_operand(c.weight()),
                   dbias = gemm_test::nan_operand({c.conv.out_channels});
    Context context(2, window_conv2d_scratch_bytes(c.conv, c.n, DTypeOf<T>::value, 2,
                                                   engine::Device::Kind::kCpu, Products::kBF16));
    context.context.products = Products::kBF16;
    window_conv2d_forward(context.context,
                          {c.conv, x.view(), weight.view(), y.view(), bias.view()});
    window_conv2d_backward_weights(context.context,
                                   {c.conv, x.view(), dy.view(), dweight.view(), dbias.view()});
    return {floats_of(y), dweight.values, dbias.values};
  }
};

class WindowConv2dStored : public Bf16Test {};

TEST_F(WindowConv2dStored, IsThatOfFloatsRounded) {
  for (std::size_t i = 0; i < kWindowConvs.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    expect_same_rounded(StoredConv{kWindowConvs[i]}, 1, 1e-4);
  }
}

TEST(WindowConv2d, RefusesOperandsThatDoNotFit) {
  Context c(1, 0);
  Operand<float> x({1, 4, 4, 3}, 0), weight({2, 1, 5, 3}, 0), y({1, 4, 4, 2}, 0);
  const auto error = [&](const WindowConv2d& conv) {
    return shape_error([&] {
      window_conv2d_forward(c.context, {conv, x.view(), weight.view(), y.view()});
    });
  };
  EXPECT_VALUES(error({{{4}, {4, 5}, 3}, 2, 1}), "window_conv2d_forward [4, 4, 3] 1 5 2 1 groups");
  EXPECT_VALUES(error({{{4}, {4, 3}, 3}, 2, 1}), "window_conv2d_forward [1, 4, 4, 2] [1, 4, 2, 2]");
}

}  // namespace
}  // namespace engine::ops
