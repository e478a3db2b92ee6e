// Geometries of pooling, and the calls that tests compare on them.
#pragma once

#include "engine/ops/pool/pool2d.h"
#include "tests/engine/ops/common/kernel_runs.h"

namespace kernel_test {

using engine::ops::Pool2dGeometry;

inline const Pool2dGeometry kPools[] = {
    {28, 28, 16, 2, 2, 0},     {5, 7, 3, 2, 2, 0},        {4, 4, 33, 2, 2, 0},
    {3, 2, 1, 2, 2, 0},        {2, 3, 8, 2, 2, 0},        {6, 5, 10, 3, 2, 1},
    {7, 7, 17, 3, 1, 1},       {9, 4, 5, 2, 3, 1},        {5, 5, 4, 5, 5, 2},
    {15, 15, 7, 15, 1, 7},     {6, 6, 24, 3, 2, 0},       {7, 4, 19, 1, 2, 0},
    {5, 7, 3, 2, 2, 0, true},  {4, 4, 33, 2, 2, 0, true}, {1, 1, 5, 2, 2, 0, true},
    {6, 5, 10, 3, 2, 1, true}, {3, 5, 17, 2, 3, 1, true}, {8, 9, 8, 4, 3, 2, true}};
inline const Pool2dGeometry kLargerPools[] = {{32, 32, 64, 3, 2, 1}, {16, 16, 16, 2, 3, 1, true}};

inline std::string pool_name(const Pool2dGeometry& g, std::int64_t n) {
  return "n " + std::to_string(n) + " h " + std::to_string(g.in_h) + " w " +
         std::to_string(g.in_w) + " c " + std::to_string(g.channels) + " window " +
         std::to_string(g.window) + " stride " + std::to_string(g.stride) + " padding " +
         std::to_string(g.padding) + (g.ceil_mode ? " ceil" : "");
}

struct PoolCase {
  Pool2dGeometry g;
  std::int64_t n;
  Write write;

  Shape in() const { return {n, g.in_h, g.in_w, g.channels}; }
  Shape out() const { return {n, g.out_h(), g.out_w(), g.channels}; }
};

// Calls check(case) for all of them.
template <class Geometries, class Check>
void for_each_pool(const Geometries& geometries, Check check) {
  for (const Pool2dGeometry& g : geometries)
    for (const std::int64_t n : {0, 1, 3})
      for (const Write write : {Write::kOverwrite, Write::kAdd}) {
        SCOPED_TRACE(pool_name(g, n));
        check(PoolCase{g, n, write});
      }
}

// Small whole numbers: many ties, and sums that every storage keeps exactly.
inline Operand<float> tied_operand(const Shape& shape, std::uint32_t seed) {
  Operand<float> operand = random_operand(shape, seed);
  for (float& value : operand.values) value = std::round(3 * value);
  return operand;
}
inline Operand<float> tied_output(const Shape& shape, Write write) {
  return write == Write::kAdd ? tied_operand(shape, 3) : nothing(shape);
}

// run(operands, call) of the two kinds of pooling. Results: y, the same without argmax, argmax, dx;
// y, dx.
template <class Run>
auto run_max_pool(const PoolCase& p, Run run) {
  const Given operands[] = {tied_operand(p.in(), 1), tied_operand(p.out(), 2),
                            nothing(p.out()),        nothing(p.out()),
                            no_bytes(p.out()),       tied_output(p.in(), p.write)};
  return run(operands, [&p](KernelContext& c, TensorView x, TensorView dy, TensorView y,
                            TensorView only_y, TensorView argmax, TensorView dx) {
    engine::ops::max_pool2d_forward(c, {p.g, x, y, argmax});
    engine::ops::max_pool2d_forward(c, {.geometry = p.g, .x = x, .y = only_y});
    engine::ops::max_pool2d_backward(c, {p.g, dy, argmax, dx, p.write});
  });
}
template <class Run>
auto run_average_pool(const PoolCase& p, Run run) {
  const Given operands[] = {random_operand(p.in(), 1), random_operand(p.out(), 2), nothing(p.out()),
                            output(p.in(), p.write)};
  return run(operands,
             [&p](KernelContext& c, TensorView x, TensorView dy, TensorView y, TensorView dx) {
               engine::ops::average_pool2d_forward(c, {p.g, x, y});
               engine::ops::average_pool2d_backward(c, {p.g, dy, dx, p.write});
             });
}
template <class Run>
auto run_global_pool(const Shape& in, Write write, Run run) {
  const Shape out{in[0], in[3]};
  const Given operands[] = {random_operand(in, 1), random_operand(out, 2), nothing(out),
                            output(in, write)};
  return run(operands,
             [write](KernelContext& c, TensorView x, TensorView dy, TensorView y, TensorView dx) {
               engine::ops::global_average_pool_forward(c, x, y);
               engine::ops::global_average_pool_backward(c, dy, dx, write);
             });
}

// Windows of torch 2's max_pool2d: {3 1 3 0} -> first 3; {2 5 5 5} -> first 5; {-1 -2 -2 -1} ->
// first -1; {nan 4 1 nan} -> nan, the later one. A NaN of the gradient goes to its winner alone.
template <class Run>
void expect_first_of_equals(Run run) {
  const float nan = std::nanf("");
  const float image[] = {3, 1, 2, 5, 3, 0, 5, 5, -1, -2, nan, 4, -2, -1, 1, nan};
  for (const std::int64_t channels : {1, 8, 16, 19}) {
    const Pool2dGeometry g{4, 4, channels, 2, 2, 0};
    const auto count = static_cast<std::size_t>(channels);
    Operand<float> x({1, 4, 4, channels}, 0);
    for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = image[i / count];
    const Shape out{1, 2, 2, channels};
    const Given operands[] = {x, nothing(out), no_bytes(out), nothing(x.shape)};
    const auto found = run(operands, [&g](KernelContext& c, TensorView from, TensorView y,
                                          TensorView argmax, TensorView dx) {
                         engine::ops::max_pool2d_forward(c, {g, from, y, argmax});
                         engine::ops::max_pool2d_backward(c, {g, y, argmax, dx, Write::kOverwrite});
                       }).found;
    const float values[] = {3, 5, -1}, winners[] = {0, 1, 0, 3};
    for (std::size_t i = 0; i < found[1].size(); ++i) {
      const std::size_t pixel = i / count;
      if (pixel < 3) {
        EXPECT_EQ(found[1][i], values[pixel]);
      } else {
        EXPECT_TRUE(std::isnan(found[1][i]));
      }
      EXPECT_EQ(found[2][i], winners[pixel]) << i;
    }
    std::size_t nans = 0;
    for (const float value : found[3]) nans += std::isnan(value);
    EXPECT_EQ(nans, count);
  }
}

}  // namespace kernel_test
