// Convolution of several groups on a CUDA device against the loops in float64: every storage,
// depthwise layers and others, channels in whole packs or not.
#include "engine/ops/conv2d/conv2d.h"

#include <array>
#include <cmath>

#include "tests/engine/ops/common/products.h"
#include "tests/engine/ops/conv2d/grouped_cases.h"
#include "tests/engine/ops/device/device_runs.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

// Besides the shared cases: packs of 16 bytes with every number of taps that a thread has at once,
// blocks of 4 channels on one side or both, more rows than a part of the sums over them has.
std::vector<ConvProduct> device_cases() {
  std::vector<ConvProduct> all = grouped_cases();
  for (const std::int64_t kernel : {1, 2, 3, 5, 7, 9})
    for (const std::int64_t stride : {1, 2, 3})
      all.push_back({2, {10, 11, 16, 16, kernel, kernel, stride, kernel / 2, 16}});
  for (const auto& [in, out, groups] : {std::array<std::int64_t, 3>{8, 32, 8},  // multiplier 4
                                        {8, 16, 8},
                                        {32, 8, 8},
                                        {16, 16, 2},
                                        {24, 12, 2},
                                        {12, 24, 2},
                                        {72, 8, 2}})
    for (const std::int64_t stride : {1, 2})
      all.push_back({3, {7, 6, in, out, 3, 3, stride, 1, groups}});
  all.push_back({2, {9, 8, 16, 16, 2, 5, 1, 1, 16}});  // kernels that are not square
  all.push_back({2, {8, 9, 16, 16, 5, 2, 2, 1, 16}});
  all.push_back({1, {3, 4, 16, 16, 7, 7, 1, 3, 16}});   // a kernel larger than the map
  all.push_back({1, {5, 5, 16, 16, 3, 3, 1, 4, 16}});   // outputs that read no pixel
  all.push_back({1, {4, 70, 8, 8, 3, 3, 1, 1, 8}});     // rows longer than a thread's least pixels
  all.push_back({90, {8, 3, 24, 24, 3, 3, 1, 1, 24}});  // several parts of several rows
  all.push_back({90, {8, 3, 8, 16, 3, 3, 1, 1, 2}});    //
  all.push_back({2, {5, 5, 272, 272, 3, 3, 1, 1, 272}});  // several blocks of units
  all.push_back({2, {5, 5, 48, 80, 3, 3, 1, 1, 2}});
  return all;
}

template <class T>
class GroupedConv2dCuda : public CudaTest {
 protected:
  static std::size_t scratch(const ConvProduct& p, std::int64_t n) {
    return conv2d_scratch_bytes(p.g, n, DTypeOf<T>::value, 1, kDevice.kind);
  }
  static auto on_device(const HostProduct& host) {
    return host.as(to_device_as<T>, to_device_as<T>, to_device_as<StateOf<T>>);
  }
  // The loops, on what the storage keeps.
  static WideProduct expected(const ConvProduct& p, const HostProduct& host) {
    WideProduct wide = host.as(kept<T>, kept<T>, widen);
    p.run_reference(wide);
    return wide;
  }
  template <class Found>
  static void expect_near(const Found& found, const WideProduct& wide) {
    EXPECT_LE(relative_error(as_floats(found.y.values()), wide.y.values, 1), storage_error<T>())
        << "y";
    EXPECT_LE(relative_error(as_floats(found.dx.values()), wide.dx.values, 1), storage_error<T>())
        << "dx";
    EXPECT_LE(relative_error(found.dweight.values(), wide.dweight.values, 1), state_error<T>())
        << "dweight";
    EXPECT_LE(relative_error(found.dbias.values(), wide.dbias.values, 1), state_error<T>())
        << "dbias";
  }
};
TYPED_TEST_SUITE(GroupedConv2dCuda, Storages);

TYPED_TEST(GroupedConv2dCuda, AgreesWithFloat64) {
  int turn = 0;
  // The one kernel of float64 does not depend on packs and taps.
  for (const ConvProduct& p :
       std::is_same_v<TypeParam, double> ? grouped_cases() : device_cases()) {
    SCOPED_TRACE(p.text());
    HostProduct start = operands_of(p, turn / 2 % 2 == 0 ? Write::kOverwrite : Write::kAdd);
    start.with_bias = turn++ % 2 == 0;
    auto device = this->on_device(start);
    // Scratch of a larger batch serves a smaller one.
    DeviceContext c(this->scratch(p, p.n + turn % 3));
    p.run(c.context, device);
    c.finish();
    this->expect_near(device, this->expected(p, start));
  }
}

// Read and written element by element.
TYPED_TEST(GroupedConv2dCuda, OperandsMayBeginAnywhere) {
  for (const ConvProduct& p : {ConvProduct{2, {6, 7, 16, 16, 3, 3, 1, 1, 16}},
                               ConvProduct{2, {6, 7, 16, 32, 3, 3, 2, 1, 4}}}) {
    SCOPED_TRACE(p.text());
    const HostProduct start = operands_of(p, Write::kAdd);
    const auto shift = [](const Operand<float>& operand) {
      return Shifted<TypeParam>(operand.shape, operand.values, 1);
    };
    auto device = start.as(shift, shift, to_device_as<StateOf<TypeParam>>);
    DeviceContext c(this->scratch(p, p.n));
    p.run(c.context, device);
    c.finish();
    this->expect_near(device, this->expected(p, start));
  }
}

TYPED_TEST(GroupedConv2dCuda, TwoRunsGiveTheSameBits) {
  for (const ConvProduct& p : {ConvProduct{40, {9, 8, 24, 24, 3, 3, 1, 1, 24}},
                               ConvProduct{40, {9, 8, 8, 24, 3, 3, 2, 1, 2}}}) {
    const HostProduct start = operands_of(p, Write::kOverwrite);
    std::vector<std::vector<StateOf<TypeParam>>> results;
    for (int run = 0; run < 2; ++run) {
      DeviceContext c(this->scratch(p, p.n));
      auto device = this->on_device(start);
      p.run(c.context, device);
      c.finish();
      for (const auto& each : {as_floats(device.y.values()), as_floats(device.dx.values()),
                               device.dweight.values(), device.dbias.values()})
        results.push_back(each);
    }
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(results[i], results[i + 4]) << p.text();
  }
}

// A number that is not finite spreads to no result that does not depend on it.
TYPED_TEST(GroupedConv2dCuda, PaddingMultipliesNothing) {
  for (const ConvProduct& p : {ConvProduct{1, {3, 3, 16, 16, 3, 3, 1, 1, 16}},
                               ConvProduct{1, {3, 3, 16, 16, 3, 3, 1, 1, 4}}}) {
    SCOPED_TRACE(p.text());
    HostProduct start = operands_of(p, Write::kOverwrite);
    for (const std::size_t corner : {0, 2, 6, 8})
      for (std::size_t i = 0; i < 16; ++i)
        start.weight.values[corner * start.weight.values.size() / 9 + i] = INFINITY;
    start.x.values[0] = NAN;
    auto device = this->on_device(start);
    DeviceContext c(this->scratch(p, p.n));
    p.run(c.context, device);
    c.finish();
    const WideProduct wide = this->expected(p, start);
    const auto compare = [](const char* name, const auto& found, const std::vector<double>& loops) {
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(std::isfinite(found[i]), std::isfinite(loops[i])) << name << " " << i;
    };
    compare("y", as_floats(device.y.values()), wide.y.values);
    compare("dx", as_floats(device.dx.values()), wide.dx.values);
    compare("dweight", device.dweight.values(), wide.dweight.values);
  }
}

class GroupedConv2dCudaScratch : public CudaTest {};

TEST_F(GroupedConv2dCudaScratch, NeverDecreasesWithTheBatch) {
  for (const ConvProduct& p : device_cases())
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
      SCOPED_TRACE(p.text());
      expect_growing_scratch(600, [&](std::int64_t n) {
        return conv2d_scratch_bytes(p.g, n, dtype, 1, kDevice.kind);
      });
    }
}

}  // namespace
}  // namespace engine::ops
