// The products that the tests of dense layers and of convolutions compute: operands wherever they
// are, the three calls on them, and the plain loops in float64.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "engine/ops/conv2d/conv2d.h"
#include "engine/ops/conv2d/conv2d_reference.h"
#include "engine/ops/dense/dense.h"
#include "engine/ops/dense/dense_reference.h"
#include "tests/engine/ops/common/kernel_test_support.h"

namespace kernel_test {

using engine::Convolutions;
using engine::Products;

// A: activations, W: weights, P: the bias and the gradients of parameters.
template <class A, class W = A, class P = A>
struct ProductOperands {
  Write write;
  bool with_bias, relu;  // forward; convolutions have no ReLU
  A x, dy, y, dx;
  W weight;
  P bias, dweight, dbias;

  // The same operands elsewhere.
  template <class OfA, class OfW, class OfP>
  auto as(OfA a, OfW w, OfP p) const {
    return ProductOperands<std::remove_cvref_t<decltype(a(x))>,
                           std::remove_cvref_t<decltype(w(weight))>,
                           std::remove_cvref_t<decltype(p(bias))>>{
        write, with_bias, relu, a(x), a(dy), a(y), a(dx), w(weight), p(bias), p(dweight), p(dbias)};
  }
  TensorView bias_view() { return with_bias ? bias.view() : TensorView{}; }
};
using HostProduct = ProductOperands<Operand<float>>;
using WideProduct = ProductOperands<Operand<double>>;

struct DenseProduct {
  std::int64_t n, in, out;

  Shape x() const { return {n, in}; }
  Shape y() const { return {n, out}; }
  Shape weight() const { return {out, in}; }
  std::int64_t channels() const { return out; }
  std::string text() const { return x().to_string() + " -> " + std::to_string(out); }
  std::size_t scratch(int threads, DType dtype, Products products = Products::kF32) const {
    return engine::ops::dense_scratch_bytes(n, in, out, dtype, threads, engine::Device::Kind::kCpu,
                                            products);
  }

  template <class O>
  engine::ops::DenseForward forward(O& o) const {
    return {o.x.view(), o.weight.view(), o.bias_view(), o.relu, o.y.view()};
  }
  template <class O>
  engine::ops::DenseBackwardData backward_data(O& o) const {
    return {o.dy.view(), o.weight.view(), o.dx.view(), o.write};
  }
  template <class O>
  engine::ops::DenseBackwardWeights backward_weights(O& o) const {
    return {o.x.view(), o.dy.view(), o.dweight.view(), o.dbias.view(), o.write};
  }
  template <class O>
  void run(KernelContext& context, O& o) const {
    engine::ops::dense_forward(context, forward(o));
    engine::ops::dense_backward_data(context, backward_data(o));
    engine::ops::dense_backward_weights(context, backward_weights(o));
  }
  void run_reference(WideProduct& o) const {
    engine::ops::reference::dense_forward<double>(forward(o));
    engine::ops::reference::dense_backward_data<double>(backward_data(o));
    reference_weights(o);
  }
  void reference_weights(WideProduct& o) const {
    engine::ops::reference::dense_backward_weights<double>(backward_weights(o));
  }
};

struct ConvProduct {
  std::int64_t n;
  engine::ops::Conv2dGeometry g;

  Shape x() const { return {n, g.in_h, g.in_w, g.in_channels}; }
  Shape y() const { return {n, g.out_h(), g.out_w(), g.out_channels}; }
  Shape weight() const {
    return {g.kernel_h, g.kernel_w, g.in_channels / g.groups, g.out_channels};
  }
  std::int64_t channels() const { return g.out_channels; }
  std::int64_t taps() const { return g.kernel_h * g.kernel_w * g.in_channels / g.groups; }
  std::int64_t pixels() const { return n * g.out_h() * g.out_w(); }
  std::string text() const {
    return x().to_string() + " kernel " + weight().to_string() + " stride " +
           std::to_string(g.stride) + " padding " + std::to_string(g.padding) + " groups " +
           std::to_string(g.groups);
  }
  std::size_t scratch(int threads, DType dtype, Products products = Products::kF32) const {
    return engine::ops::conv2d_scratch_bytes(g, n, dtype, threads, engine::Device::Kind::kCpu,
                                             products);
  }

  template <class O>
  engine::ops::Conv2dForward forward(O& o) const {
    return {g, o.x.view(), o.weight.view(), o.y.view(), o.bias_view()};
  }
  template <class O>
  engine::ops::Conv2dBackwardData backward_data(O& o) const {
    return {g, o.dy.view(), o.weight.view(), o.dx.view(), o.write};
  }
  template <class O>
  engine::ops::Conv2dBackwardWeights backward_weights(O& o) const {
    return {g, o.x.view(), o.dy.view(), o.dweight.view(), o.dbias.view(), o.write};
  }
  template <class O>
  void run(KernelContext& context, O& o) const {
    engine::ops::conv2d_forward(context, forward(o));
    engine::ops::conv2d_backward_data(context, backward_data(o));
    engine::ops::conv2d_backward_weights(context, backward_weights(o));
  }
  void run_reference(WideProduct& o) const {
    engine::ops::reference::conv2d_forward<double>(forward(o), 0, n);
    engine::ops::reference::conv2d_backward_data<double>(backward_data(o), 0, n);
    reference_weights(o);
  }
  void reference_weights(WideProduct& o) const {
    engine::ops::reference::conv2d_backward_weights<double>(backward_weights(o), 0, taps());
    engine::ops::reference::conv2d_backward_bias<double>(backward_weights(o));
  }
};

// Random operands. What is added to has no bias forward, but a ReLU.
template <class Product>
HostProduct operands_of(const Product& s, Write write) {
  const Shape channels{s.channels()};
  return {write,
          write == Write::kOverwrite,
          write == Write::kAdd,
          random_operand(s.x(), 1),
          random_operand(s.y(), 2),
          gemm_test::nan_operand(s.y()),
          output(s.x(), write),
          random_operand(s.weight(), 3),
          random_operand(channels, 4),
          output(s.weight(), write),
          output(channels, write)};
}

// Results by the plain loops: `operand` makes what products read of an operand, `sum` what is added
// as it is, as the bias and its gradient are.
template <class Product, class OfOperand, class OfSum>
WideProduct loops_of(const Product& s, const HostProduct& host, OfOperand operand, OfSum sum) {
  WideProduct wide = host.as(sum, operand, sum), whole = wide;
  wide.x = operand(host.x), wide.dy = operand(host.dy);
  s.run_reference(wide);
  if (wide.dy.values != whole.dy.values) {
    s.reference_weights(whole);
    wide.dbias = whole.dbias;
  }
  return wide;
}
template <class Product, class OfOperand, class OfSum>
WideProduct bound_of(const Product& s, HostProduct host, OfOperand operand, OfSum sum) {
  host.relu = false;
  return loops_of(s, host, operand, sum);
}

inline void expect_within(const HostProduct& found, const WideProduct& expected,
                          const WideProduct& bound) {
  const auto check = [&](const char* name, const auto& part) {
    EXPECT_EQ(gemm_test::difference(part(found).values, part(expected).values, part(bound).values),
              "")
        << name;
  };
  check(
      "y", [](const auto& o) -> const auto& { return o.y; });
  check(
      "dx", [](const auto& o) -> const auto& { return o.dx; });
  check(
      "dweight", [](const auto& o) -> const auto& { return o.dweight; });
  check(
      "dbias", [](const auto& o) -> const auto& { return o.dbias; });
}

// Both dtypes against the loops: f32 relative to the sum of the magnitudes of the terms.
template <class Product>
void expect_float64_products(const Product& s, Write write, int threads) {
  HostProduct fast = operands_of(s, write);
  const WideProduct expected = loops_of(s, fast, widen, widen),
                    bound =
                        bound_of(s, fast, gemm_test::wide_magnitudes, gemm_test::wide_magnitudes);
  WideProduct wide = fast.as(widen, widen, widen);
  Context c(threads, s.scratch(threads, DType::kF32)),
      wide_context(threads, s.scratch(threads, DType::kF64));
  s.run(c.context, fast);
  s.run(wide_context.context, wide);
  expect_within(fast, expected, bound);
  EXPECT_EQ(far_apart(wide.y.values, expected.y.values, 1e-12, 1e-12), "");
  EXPECT_EQ(far_apart(wide.dx.values, expected.dx.values, 1e-12, 1e-12), "");
  EXPECT_EQ(far_apart(wide.dweight.values, expected.dweight.values, 1e-12, 1e-12), "");
  EXPECT_EQ(far_apart(wide.dbias.values, expected.dbias.values, 1e-12, 1e-12), "");
}

// run(threads) gives the same activations for any number of threads. Gradients of parameters, which
// convolutions sum by threads: the same for any (`whole`), or in two runs with the same number.
template <class Run>
void expect_same_bits(Run run, std::initializer_list<int> threads, bool whole) {
  const auto one = run(1);
  for (const int count : threads) {
    const auto more = run(count), gradients = whole ? one : run(count);
    EXPECT_EQ(more.y.values, one.y.values) << count;
    EXPECT_EQ(more.dx.values, one.dx.values) << count;
    EXPECT_EQ(more.dweight.values, gradients.dweight.values) << count;
    EXPECT_EQ(more.dbias.values, gradients.dbias.values) << count;
  }
}

// bytes_of(n): scratch that was sized for a larger batch does for every smaller one.
template <class BytesOf>
void expect_growing_scratch(std::int64_t max_n, BytesOf bytes_of) {
  std::size_t before = 0;
  for (std::int64_t n = 0; n < max_n; n = n < 500 ? n + 1 : n * 9 / 8) {
    EXPECT_GE(bytes_of(n), before) << n;
    before = bytes_of(n);
  }
}

// An evaluation gives the same report for any number of ranks, which have batches of other sizes.
template <class Run>
void expect_images_alone(const ConvProduct& c, std::initializer_list<std::int64_t> batches,
                         Run run) {
  const std::vector<float> all = run(c, 1).y.values;
  for (const std::int64_t n : batches) {
    const std::vector<float> some = run(ConvProduct{n, c.g}, 2).y.values;
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << n << " of " << c.text();
  }
}

}  // namespace kernel_test
