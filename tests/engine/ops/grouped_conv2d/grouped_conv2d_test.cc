// Grouped convolution: the definition element by element, the fast kernels against it at odd sizes
// on every instruction set, equal bits for any number of threads, and what is refused.
#include "engine/ops/grouped_conv2d/grouped_conv2d.h"

#include <gtest/gtest.h>

#include "tests/engine/ops/common/kernel_runs.h"
#include "tests/engine/ops/common/stored_test_support.h"

namespace engine::ops {
namespace {

using namespace kernel_test;

struct GroupedCase {
  std::int64_t n;
  GroupedConv2dGeometry g;

  Shape x() const { return {n, g.in_h, g.in_w, g.in_channels}; }
  Shape y() const { return {n, g.out_h(), g.out_w(), g.out_channels}; }
  Shape weight() const { return {g.kernel, g.kernel, g.in_channels / g.groups, g.out_channels}; }
  std::string text() const {
    return x().to_string() + " by " + weight().to_string() + ", stride " +
           std::to_string(g.stride) + ", padding " + std::to_string(g.padding);
  }
};

// Channels in and out, and groups: depthwise ones, with several outputs for a channel, and groups
// around the size of a vector.
const std::int64_t kGroupedChannels[][3] = {{1, 1, 1},    {3, 3, 3},   {8, 8, 8},   {17, 17, 17},
                                            {45, 45, 45}, {3, 9, 3},   {4, 8, 2},   {24, 24, 3},
                                            {34, 51, 17}, {18, 40, 2}, {40, 16, 8}, {6, 3, 3}};

// Every combination of kernel, stride and padding that has an output, with channels, map and batch
// going round.
std::vector<GroupedCase> grouped_cases() {
  const std::int64_t maps[] = {1, 2, 3, 5, 7, 9, 14}, batches[] = {1, 3, 2};
  std::vector<GroupedCase> all;
  std::size_t turn = 0;
  for (const std::int64_t kernel : {1, 2, 3, 5, 7})
    for (const std::int64_t stride : {1, 2, 3})
      for (std::int64_t padding = 0; padding <= 3; ++padding)
        for (int variant = 0; variant < 4; ++variant, ++turn) {
          const auto& [in, out, groups] = kGroupedChannels[turn % 12];
          const GroupedCase c{
              batches[turn % 3],
              {maps[turn % 7], maps[(turn * 3 + 2) % 7], in, out, kernel, stride, padding, groups}};
          if (std::min(c.g.in_h, c.g.in_w) + 2 * padding >= kernel) all.push_back(c);
        }
  all.push_back({0, {5, 5, 6, 6, 3, 1, 1, 6}});    // no images
  all.push_back({2, {9, 31, 8, 8, 3, 1, 1, 8}});   // rows of several tiles
  all.push_back({2, {4, 5, 6, 6, 3, 9, 1, 6}});    // a stride beyond the map
  all.push_back({33, {4, 3, 5, 10, 3, 1, 1, 5}});  // pieces of several images
  return all;
}

// The sum that defines each element of y, or the terms of a gradient: body(x index, weight index,
// y index) for each product.
template <class Body>
void for_each_grouped_term(const GroupedCase& c, Body body) {
  const GroupedConv2dGeometry& g = c.g;
  const std::int64_t ins = g.in_channels / g.groups, outs = g.out_channels / g.groups;
  for (std::int64_t e = 0; e < c.y().count(); ++e) {
    const std::int64_t o = e % g.out_channels, pixel = e / g.out_channels, ox = pixel % g.out_w(),
                       oy = pixel / g.out_w() % g.out_h(), image = pixel / g.out_w() / g.out_h();
    for (std::int64_t t = 0; t < g.kernel * g.kernel * ins; ++t) {
      const std::int64_t i = t % ins, ix = ox * g.stride - g.padding + t / ins % g.kernel,
                         iy = oy * g.stride - g.padding + t / ins / g.kernel;
      if (iy < 0 || iy >= g.in_h || ix < 0 || ix >= g.in_w) continue;
      const std::int64_t at =
          ((image * g.in_h + iy) * g.in_w + ix) * g.in_channels + o / outs * ins + i;
      body(static_cast<std::size_t>(at), static_cast<std::size_t>(t * g.out_channels + o),
           static_cast<std::size_t>(e));
    }
  }
}

struct GroupedResults {
  std::vector<double> y, dx, dweight, dbias;
};

// By the definition. Outputs begin with `start`, or with nothing.
GroupedResults grouped_definition(const GroupedCase& c, const Operand<float>& x,
                                  const Operand<float>& weight, const Operand<float>& bias,
                                  const Operand<float>& dy, const GroupedResults& start) {
  GroupedResults r = start;
  const auto channels = static_cast<std::size_t>(c.g.out_channels);
  r.y.assign(dy.values.size(), 0);
  for (std::size_t e = 0; e < r.y.size(); ++e) {
    r.y[e] = bias.values[e % channels];
    r.dbias[e % channels] += dy.values[e];
  }
  for_each_grouped_term(c, [&](std::size_t at, std::size_t tap, std::size_t e) {
    r.y[e] += double{x.values[at]} * weight.values[tap];
    r.dx[at] += double{dy.values[e]} * weight.values[tap];
    r.dweight[tap] += double{dy.values[e]} * x.values[at];
  });
  return r;
}

void run_grouped(KernelContext& context, const GroupedCase& c, Write write, TensorView x,
                 TensorView weight, TensorView bias, TensorView dy, TensorView y, TensorView dx,
                 TensorView dweight, TensorView dbias) {
  grouped_conv2d_forward(context,
                         {.geometry = c.g, .x = x, .weight = weight, .y = y, .bias = bias});
  grouped_conv2d_backward_data(
      context, {.geometry = c.g, .dy = dy, .weight = weight, .dx = dx, .write = write});
  grouped_conv2d_backward_weights(
      context,
      {.geometry = c.g, .x = x, .dy = dy, .dweight = dweight, .dbias = dbias, .write = write});
}

std::vector<double> grouped_start(const Operand<float>& operand, Write write) {
  return write == Write::kAdd ? std::vector<double>(operand.values.begin(), operand.values.end())
                              : std::vector<double>(operand.values.size(), 0);
}

void expect_grouped_definition(const GroupedCase& c, Write write, int threads) {
  const Operand<float> x = random_operand(c.x(), 1), weight = random_operand(c.weight(), 2),
                       bias = random_operand({c.g.out_channels}, 3), dy = random_operand(c.y(), 4),
                       y = output(c.y(), Write::kOverwrite), dx = output(c.x(), write),
                       dweight = output(c.weight(), write),
                       dbias = output({c.g.out_channels}, write);
  const GroupedResults expected = grouped_definition(
      c, x, weight, bias, dy,
      {{}, grouped_start(dx, write), grouped_start(dweight, write), grouped_start(dbias, write)});
  const Given operands[] = {x, weight, bias, dy, y, dx, dweight, dbias};
  const auto [found, wide] = run_both(
      threads, operands,
      [&](KernelContext& context, auto... views) { run_grouped(context, c, write, views...); },
      grouped_conv2d_scratch_bytes(c.g, c.n, DType::kF32));
  const std::vector<double>* all[] = {&expected.y, &expected.dx, &expected.dweight,
                                      &expected.dbias};
  for (std::size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE("result " + std::to_string(i));
    EXPECT_EQ(far_apart(found[4 + i], *all[i], 1e-5, 2e-5), "");
    EXPECT_EQ(far_apart(wide[4 + i], *all[i], 1e-12, 1e-12), "");
  }
}

TEST(GroupedConv2d, IsItsDefinitionAtOddSizes) {
  for_each_setting([](int threads) {
    for (const GroupedCase& c : grouped_cases())
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(c.text() + (write == Write::kAdd ? ", add" : ""));
        expect_grouped_definition(c, write, threads);
      }
  });
}

// torch.nn.functional.conv2d(x, w, padding=1, groups=2) of x = 1 ... 8, [1, 2, 2, 2], and
// w = 1 ... 18, [2, 1, 3, 3].
TEST(GroupedConv2d, IsPyTorchs) {
  Context c(1, 0);
  const GroupedConv2dGeometry g{2, 2, 2, 2, 3, 1, 1, 2};
  Operand<double> x = operand_of<double>({1, 2, 2, 2}, {1, 5, 2, 6, 3, 7, 4, 8}),
                  weight({3, 3, 1, 2}, 0), y({1, 2, 2, 2}, 0);
  for (std::size_t i = 0; i < 18; ++i)
    weight.values[i % 9 * 2 + i / 9] = static_cast<double>(i + 1);
  grouped_conv2d_forward(c.context,
                         {.geometry = g, .x = x.view(), .weight = weight.view(), .y = y.view()});
  EXPECT_EQ(y.values, (std::vector<double>{77, 423, 67, 397, 47, 345, 37, 319}));
}

TEST(GroupedConv2d, ThreadsDoNotChangeTheBits) {
  for (const CpuIsa isa : gemm_test::isas_here()) {
    const gemm_test::ScopedIsa scope(isa);
    for (const GroupedCase& c : {GroupedCase{9, {11, 13, 20, 20, 3, 2, 1, 20}},
                                 GroupedCase{5, {9, 8, 24, 48, 5, 1, 2, 3}}}) {
      std::vector<std::vector<float>> first;
      for (const int threads : {1, 2, 3, 7}) {
        Operand<float> x = random_operand(c.x(), 1), weight = random_operand(c.weight(), 2),
                       bias = random_operand({c.g.out_channels}, 3), dy = random_operand(c.y(), 4),
                       y = dy, dx = x, dweight = weight, dbias = bias;
        Context context(threads, grouped_conv2d_scratch_bytes(c.g, c.n, DType::kF32));
        run_grouped(context.context, c, Write::kOverwrite, x.view(), weight.view(), bias.view(),
                    dy.view(), y.view(), dx.view(), dweight.view(), dbias.view());
        const std::vector<std::vector<float>> found{y.values, dx.values, dweight.values,
                                                    dbias.values};
        if (first.empty()) first = found;
        EXPECT_EQ(found, first) << threads << " threads";
      }
    }
  }
}

TEST(GroupedConv2d, ScratchOfALargerBatchServesASmallerOne) {
  for (const GroupedCase& c : grouped_cases())
    for (std::int64_t n = 0; n < 40; ++n)
      EXPECT_LE(grouped_conv2d_scratch_bytes(c.g, n, DType::kF32),
                grouped_conv2d_scratch_bytes(c.g, n + 1, DType::kF32))
          << c.text();
}

TEST(GroupedConv2d, RefusesOperandsThatDoNotFit) {
  const GroupedConv2dGeometry g{5, 5, 4, 6, 3, 1, 1, 2};
  Context c(1, grouped_conv2d_scratch_bytes(g, 2, DType::kF32));
  Operand<float> x({2, 5, 5, 4}, 0), y({2, 5, 5, 6}, 0), weight({3, 3, 2, 6}, 0), bias({5}, 0);
  const auto forward = [&](const GroupedConv2dGeometry& geometry, Operand<float>& weights,
                           TensorView b) {
    return shape_error([&] {
      grouped_conv2d_forward(c.context, {.geometry = geometry,
                                         .x = x.view(),
                                         .weight = weights.view(),
                                         .y = y.view(),
                                         .bias = b});
    });
  };
  EXPECT_EQ(forward(g, weight, bias.view()),
            "grouped_conv2d_forward: bias has the shape [5], expected [6]");
  EXPECT_EQ(forward(g, y, {}),
            "grouped_conv2d_forward: weight has the shape [2, 5, 5, 6], expected [3, 3, 2, 6]");
  GroupedConv2dGeometry odd = g;
  odd.groups = 3;
  EXPECT_EQ(forward(odd, weight, {}),
            "grouped_conv2d_forward: no output for an input of [5, 5, 4] with a kernel of 3, "
            "stride 1, padding 1, 6 output channels and 3 groups");
  c.context.device.kind = Device::Kind::kCuda;
  EXPECT_THROW(forward(g, weight, {}), ModelError);
}

struct StoredGroupedCase {
  GroupedCase c;
  int threads;
  Write write;

  template <class T>
  std::vector<std::vector<float>> operator()(T) const {
    auto x = stored_operand<T>(c.x(), 1), dy = stored_operand<T>(c.y(), 4),
         y = stored_output<T>(c.y(), Write::kOverwrite), dx = stored_output<T>(c.x(), write);
    Operand<float> weight = random_operand(c.weight(), 2),
                   bias = random_operand({c.g.out_channels}, 3),
                   dweight = output(c.weight(), write), dbias = output(bias.shape, write);
    Context context(threads, grouped_conv2d_scratch_bytes(c.g, c.n, DType::kF32));
    run_grouped(context.context, c, write, x.view(), weight.view(), bias.view(), dy.view(),
                y.view(), dx.view(), dweight.view(), dbias.view());
    return {floats_of(y), floats_of(dx), dweight.values, dbias.values};
  }
};

class GroupedConv2dStored : public Bf16Test {};

TEST_F(GroupedConv2dStored, IsThatOfFloatsRounded) {
  for (const GroupedCase& c : grouped_cases())
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      SCOPED_TRACE(c.text() + (write == Write::kAdd ? ", add" : ""));
      expect_same_rounded(StoredGroupedCase{c, 2, write}, 2, 1e-4);
    }
}

}  // namespace
}  // namespace engine::ops
