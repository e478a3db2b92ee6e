// Attention, causal or not, on a CUDA device against the float64 reference: every storage and way
// to multiply, odd and model sizes, dropout.
#include "engine/ops/attention/attention.h"

#include <numeric>

#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

struct AttentionSizes {
  std::int64_t n, t, heads, size, kv_heads = heads;
  bool causal = true;

  std::int64_t width() const { return heads * size; }
  Shape qkv() const { return {n, t, (heads + 2 * kv_heads) * size}; }
  Shape y() const { return {n, t, width()}; }
  Shape lse() const { return {n, heads, t}; }
  std::string text() const { return Shape{n, t, heads, size, kv_heads}.to_string(); }
};

// Results of the device, as floats; of the reference, where T is double.
template <class T>
struct Results {
  std::vector<T> y, lse, dqkv;
};

Operand<float> random_qkv(const AttentionSizes& s) {
  Operand<float> qkv = random_operand(s.qkv(), 1);
  for (float& value : qkv.values) value *= 2;
  return qkv;
}

template <class T>
Results<double> expected_of(const AttentionSizes& s, const Operand<float>& qkv,
                            const Operand<float>& dy, const Operand<float>& start,
                            const AttentionDropout& dropout, Write write) {
  Operand<double> wide = kept<T>(qkv), wide_dy = kept<T>(dy), y(s.y(), 0), lse(s.lse(), 0),
                  dqkv = kept<T>(start);
  Context host(1, 0);
  attention_forward(host.context, {.qkv = wide.view(),
                                   .heads = s.heads,
                                   .kv_heads = s.kv_heads,
                                   .causal = s.causal,
                                   .dropout = dropout,
                                   .y = y.view(),
                                   .lse = lse.view()});
  attention_backward(host.context, {.qkv = wide.view(),
                                    .heads = s.heads,
                                    .kv_heads = s.kv_heads,
                                    .causal = s.causal,
                                    .dropout = dropout,
                                    .y = y.view(),
                                    .lse = lse.view(),
                                    .dy = wide_dy.view(),
                                    .dqkv = dqkv.view(),
                                    .write = write});
  return {y.values, lse.values, dqkv.values};
}

template <class T>
Results<StateOf<T>> found_of(const AttentionSizes& s, const Operand<float>& qkv,
                             const Operand<float>& dy, const Operand<float>& start,
                             const AttentionDropout& dropout, Write write, Products products) {
  DeviceContext c(attention_scratch_bytes(
                      {s.n, s.t, s.width(), s.heads, DTypeOf<T>::value, 1, Device::Kind::kCuda}),
                  products);
  const std::vector<std::int64_t> ids(dropout.sample_ids.begin(), dropout.sample_ids.end());
  const DeviceOperand<std::int64_t> device_ids({static_cast<std::int64_t>(ids.size())}, ids);
  AttentionDropout on_device = dropout;
  on_device.sample_ids = {device_ids.view().as<std::int64_t>(), ids.size()};
  on_device.epoch = 12345;  // what counts lies in device memory
  const Arena epoch(sizeof dropout.epoch, kDevice);
  engine::cuda::copy_async(epoch.data(), &dropout.epoch, sizeof dropout.epoch, c.context.stream);
  c.context.epoch = reinterpret_cast<const std::uint64_t*>(epoch.data());
  const auto device_qkv = to_device<T>(s.qkv(), qkv.values),
             device_dy = to_device<T>(s.y(), dy.values),
             device_dqkv = to_device<T>(s.qkv(), start.values),
             y = to_device<T>(s.y(), std::vector<float>(dy.values.size(), NAN)),
             inferred = to_device<T>(s.y(), std::vector<float>(dy.values.size(), NAN));
  const auto lse = to_device<StateOf<T>>(
      s.lse(), std::vector<float>(static_cast<std::size_t>(s.lse().count()), NAN));
  attention_forward(c.context, {.qkv = device_qkv.view(),
                                .heads = s.heads,
                                .kv_heads = s.kv_heads,
                                .causal = s.causal,
                                .dropout = on_device,
                                .y = y.view(),
                                .lse = lse.view()});
  attention_forward(c.context, {.qkv = device_qkv.view(),
                                .heads = s.heads,
                                .kv_heads = s.kv_heads,
                                .causal = s.causal,
                                .dropout = on_device,
                                .y = inferred.view()});
  attention_backward(c.context, {.qkv = device_qkv.view(),
                                 .heads = s.heads,
                                 .kv_heads = s.kv_heads,
                                 .causal = s.causal,
                                 .dropout = on_device,
                                 .y = y.view(),
                                 .lse = lse.view(),
                                 .dy = device_dy.view(),
                                 .dqkv = device_dqkv.view(),
                                 .write = write});
  c.finish();
  EXPECT_EQ(as_floats(inferred.values()), as_floats(y.values()));
  return {as_floats(y.values()), lse.values(), as_floats(device_dqkv.values())};
}

template <class T>
void compare_attention(const AttentionSizes& s, double tolerance, double rate = 0,
                       Products products = Products::kF32) {
  SCOPED_TRACE(s.text() + (rate > 0 ? ", dropout" : "") + (s.causal ? "" : ", not causal"));
  const Operand<float> qkv = random_qkv(s), dy = random_operand(s.y(), 2);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; rate > 0 && i < s.n; ++i)
    ids.push_back(77 + (std::int64_t{1} << 33) * i);
  const AttentionDropout dropout{rate, 0xabcdef0123456789, 3, ids};
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    const Operand<float> start =
        write == Write::kAdd ? random_operand(s.qkv(), 3) : gemm_test::nan_operand(s.qkv());
    const Results<double> expected = expected_of<T>(s, qkv, dy, start, dropout, write);
    const Results<StateOf<T>> found = found_of<T>(s, qkv, dy, start, dropout, write, products);
    EXPECT_LE(relative_error(found.y, expected.y), tolerance);
    EXPECT_LE(relative_error(found.lse, expected.lse), tolerance);
    EXPECT_LE(relative_error(found.dqkv, expected.dqkv), tolerance);
  }
}

class AttentionCuda : public CudaTest {};

// Heads of any size, in float32 arithmetic.
TEST_F(AttentionCuda, Float32AgreesWithTheReference) {
  for (const AttentionSizes& s :
       {AttentionSizes{0, 5, 2, 8}, AttentionSizes{2, 1, 1, 1}, AttentionSizes{2, 7, 3, 5},
        AttentionSizes{1, 64, 4, 32}, AttentionSizes{1, 65, 1, 64}, AttentionSizes{1, 33, 2, 100},
        AttentionSizes{1, 100, 1, 128}, AttentionSizes{2, 150, 1, 16},
        AttentionSizes{2, 70, 4, 20, 2}, AttentionSizes{1, 35, 3, 64, 1}})
    compare_attention<float>(s, 1e-5);
  for (const AttentionSizes& s :
       {AttentionSizes{2, 7, 3, 5}, AttentionSizes{1, 65, 2, 32}, AttentionSizes{2, 35, 4, 8, 2}})
    compare_attention<float>(s, 1e-5, 0.25);
}

TEST_F(AttentionCuda, Float64AgreesWithTheReference) {
  for (const AttentionSizes& s : {AttentionSizes{0, 5, 2, 8}, AttentionSizes{2, 1, 1, 1},
                                  AttentionSizes{2, 7, 3, 5}, AttentionSizes{1, 20, 1, 128},
                                  AttentionSizes{1, 140, 1, 16}, AttentionSizes{1, 33, 4, 20, 2}})
    for (const bool causal : {true, false}) {
      AttentionSizes masked = s;
      masked.causal = causal;
      compare_attention<double>(masked, storage_error<double>());
      compare_attention<double>(masked, storage_error<double>(), 0.25);
    }
}

// Heads above 128 have kernels of their own, in every storage.
TEST_F(AttentionCuda, LongHeadsAgreeWithTheReference) {
  for (const AttentionSizes& s : {AttentionSizes{2, 7, 1, 129}, AttentionSizes{1, 20, 2, 256, 1},
                                  AttentionSizes{1, 140, 2, 160}})
    for (const bool causal : {true, false}) {
      AttentionSizes masked = s;
      masked.causal = causal;
      compare_attention<float>(masked, 1e-5);
      compare_attention<bf16>(masked, 1e-2, 0.25);
      compare_attention<f16>(masked, 2e-3);
      compare_attention<double>(masked, storage_error<double>(), 0.25);
    }
}

// Every kernel, with several blocks of queries and of keys.
TEST_F(AttentionCuda, WithoutTheMaskAgreesWithTheReference) {
  for (const AttentionSizes& s :
       {AttentionSizes{2, 1, 1, 1}, AttentionSizes{2, 7, 3, 5}, AttentionSizes{1, 65, 1, 64},
        AttentionSizes{1, 33, 2, 100}, AttentionSizes{2, 70, 4, 20, 2},
        AttentionSizes{1, 35, 3, 64, 1}, AttentionSizes{1, 130, 1, 32},
        AttentionSizes{1, 80, 1, 128}, AttentionSizes{2, 100, 4, 32, 2}}) {
    AttentionSizes whole = s;
    whole.causal = false;
    compare_attention<float>(whole, 1e-5);
    compare_attention<float>(whole, 1e-3, 0.25, Products::kTf32);
    compare_attention<bf16>(whole, 1e-2);
    compare_attention<f16>(whole, 2e-3);
    compare_attention<bf16>(whole, 1e-2, 0.25);
  }
}

TEST_F(AttentionCuda, HalvesOfOddSizesAgreeWithTheReference) {
  for (const AttentionSizes& s : {AttentionSizes{0, 5, 2, 8}, AttentionSizes{2, 7, 3, 5},
                                  AttentionSizes{1, 65, 3, 20}, AttentionSizes{2, 40, 4, 12, 1}}) {
    compare_attention<bf16>(s, 1e-2);
    compare_attention<f16>(s, 2e-3);
    compare_attention<bf16>(s, 1e-2, 0.25);
  }
}

// Heads of 32, 64 and 128, which tensor cores multiply.
TEST_F(AttentionCuda, HalvesAgreeWithTheReference) {
  for (const AttentionSizes& s :
       {AttentionSizes{1, 1, 1, 32}, AttentionSizes{2, 7, 3, 32}, AttentionSizes{1, 65, 1, 64},
        AttentionSizes{1, 130, 1, 32}, AttentionSizes{1, 80, 1, 128},
        AttentionSizes{2, 100, 4, 32, 2}, AttentionSizes{1, 70, 3, 64, 1}}) {
    compare_attention<bf16>(s, 1e-2);
    compare_attention<f16>(s, 2e-3);
    compare_attention<bf16>(s, 1e-2, 0.25);
  }
}

TEST_F(AttentionCuda, RoundedFloatsAgreeWithTheReference) {
  for (const AttentionSizes& s :
       {AttentionSizes{1, 1, 1, 32}, AttentionSizes{2, 7, 3, 32}, AttentionSizes{1, 65, 1, 64},
        AttentionSizes{1, 130, 1, 32}, AttentionSizes{1, 80, 1, 128},
        AttentionSizes{2, 100, 4, 32, 2}, AttentionSizes{1, 70, 3, 64, 1}}) {
    compare_attention<float>(s, 1e-3, 0, Products::kTf32);
    compare_attention<float>(s, 1e-3, 0.25, Products::kTf32);
  }
  for (const Products products : {Products::kF16, Products::kBF16})
    compare_attention<float>({1, 65, 2, 64}, products == Products::kF16 ? 2e-3 : 1e-2, 0.25,
                             products);
}

TEST_F(AttentionCuda, LargeScoresStayFiniteAndTheLargestWins) {
  for (const std::int64_t size : {8, 32}) {
    const AttentionSizes s{1, 160, 1, size};
    Operand<float> qkv(s.qkv(), 0);
    for (std::int64_t i = 0; i < s.t; ++i) {
      qkv.values[static_cast<std::size_t>(i * 3 * size)] = 1000;  // q
      qkv.values[static_cast<std::size_t>(i * 3 * size + size)] =
          static_cast<float>(i);  // k: the newest has the largest score
      qkv.values[static_cast<std::size_t>(i * 3 * size + 2 * size)] = static_cast<float>(i);  // v
    }
    const Operand<float> dy(s.y(), 1.f);
    for (const Products products : {Products::kF32, Products::kTf32}) {
      const Results<float> found =
          found_of<float>(s, qkv, dy, qkv, {}, Write::kOverwrite, products);
      for (std::int64_t i = 0; i < s.t; ++i)
        EXPECT_EQ(found.y[static_cast<std::size_t>(i * size)], static_cast<float>(i));
      for (const float value : found.dqkv) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

// The loss then shows it. In float32 arithmetic, on tensor cores, and for long heads.
TEST_F(AttentionCuda, ANanReachesEveryRowThatSeesIt) {
  const auto check = [&]<class T>(T, std::int64_t size, Products products) {
    const AttentionSizes s{1, 150, 1, size};
    for (const std::int64_t place : {0, 40, 149})
      for (const std::int64_t operand : {0, 1, 2}) {  // q, k, v
        SCOPED_TRACE(s.text() + ", " + std::to_string(place) + ", " + std::to_string(operand));
        Operand<float> qkv = random_qkv(s);
        qkv.values[static_cast<std::size_t>((place * 3 + operand) * size)] = NAN;
        const auto device_qkv = to_device<T>(s.qkv(), qkv.values),
                   y = to_device<T>(s.y(), std::vector<float>(qkv.values.size() / 3));
        DeviceContext c(1 << 20, products);
        attention_forward(c.context, {.qkv = device_qkv.view(), .heads = 1, .y = y.view()});
        c.finish();
        const auto found = as_floats(y.values());
        for (std::int64_t i = place; i < (operand == 0 ? place + 1 : s.t); ++i)
          ASSERT_TRUE(std::isnan(found[static_cast<std::size_t>(i * size)])) << i;
      }
  };
  check(0.f, 8, Products::kF32);
  check(0.f, 32, Products::kTf32);
  check(bf16{}, 64, Products::kF32);
  check(0.f, 130, Products::kF32);
  check(0.0, 8, Products::kF32);
}

TEST_F(AttentionCuda, NeverLooksAhead) {
  for (const std::int64_t size : {8, 32}) {
    const AttentionSizes s{1, 70, 2, size};
    Operand<float> qkv = random_qkv(s);
    const Operand<float> dy(s.y(), 1.f);
    const std::vector<float> before =
        found_of<bf16>(s, qkv, dy, qkv, {}, Write::kOverwrite, Products::kF32).y;
    for (std::size_t i = static_cast<std::size_t>(40 * 3 * s.width()); i < qkv.values.size(); ++i)
      qkv.values[i] += 3;
    const std::vector<float> after =
        found_of<bf16>(s, qkv, dy, qkv, {}, Write::kOverwrite, Products::kF32).y;
    const auto unchanged = static_cast<std::size_t>(40 * s.width());
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(unchanged),
                           after.begin()));
    for (std::size_t i = unchanged; i < after.size(); ++i) ASSERT_NE(after[i], before[i]) << i;
  }
}

TEST_F(AttentionCuda, ManyBlocksOfQueriesAndKeysAgreeWithTheReference) {
  compare_attention<bf16>({1, 200, 2, 64}, 1e-2, 0.1);
}

TEST_F(AttentionCuda, LongerHeadsAreRefused) {
  DeviceContext c(1 << 16);
  const auto qkv = to_device<float>({1, 2, 771}, std::vector<float>(1542)),
             y = to_device<float>({1, 2, 257}, std::vector<float>(514));
  EXPECT_THROW(attention_forward(c.context, {.qkv = qkv.view(), .heads = 1, .y = y.view()}),
               ShapeError);
}

}  // namespace
}  // namespace engine::ops
