// What `engine bench kernels` measures a device's limits with.
#include "engine/ops/device/ceiling_probes_cuda.h"

#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops::cuda {
namespace {

using namespace cuda_test;

class CeilingProbes : public CudaTest {};

TEST_F(CeilingProbes, MultiplyAddsAreThoseOfTheFastestInstruction) {
  const engine::cuda::DeviceInfo device = engine::cuda::device_info(0);
  const bool hopper = device.major == 9, old = device.major < 8;
  constexpr double kOfFma = 2.0 * 256 * 8;
  const char* const f16 = device.major < 7   ? "fma f32"
                          : device.major > 7 ? "mma.sync m16n8k16 f16"
                          : device.minor < 5 ? "mma.sync m8n8k4 f16"
                                             : "mma.sync m16n8k8 f16";
  for (const auto& [products, on_hopper, elsewhere, operations] :
       {std::tuple{Products::kF32, "fma f32", "fma f32", kOfFma},
        {Products::kTf32, "mma.sync m16n8k8 tf32", old ? "fma f32" : "mma.sync m16n8k8 tf32",
         old ? kOfFma : 8.0 * 8 * 2048},
        {Products::kBF16, "wgmma m64n128k16 bf16", old ? "fma f32" : "mma.sync m16n8k16 bf16",
         old ? kOfFma : 8.0 * 8 * 4096},
        {Products::kF16, "wgmma m64n128k16 f16", f16,
         device.major < 7 ? kOfFma : 8.0 * 8 * 4096}}) {
    DeviceContext context(0, products);
    const auto sink = to_device<float>({1}, {7});
    const MultiplyAddProbe probe = probe_multiply_adds(context.context, 3, 2, sink.view());
    context.finish();
    EXPECT_STREQ(probe.instruction, hopper ? on_hopper : elsewhere);
    const bool wgmma = std::string(probe.instruction).starts_with("wgmma");
    EXPECT_EQ(probe.operations, 3 * 2 * (wgmma ? 4 * 2 * 2.0 * 64 * 128 * 16 : operations));
    EXPECT_EQ(sink.values(), std::vector<float>{7}) << "nothing is written";
  }
}

TEST_F(CeilingProbes, CopiesAreWhole) {
  std::vector<float> values(4096 * 3 + 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Shape shape{static_cast<std::int64_t>(values.size())};
  const auto from = to_device<float>(shape, values),
             to = to_device<float>(shape, std::vector<float>(values.size()));
  DeviceContext context;
  probe_copy(context.context, from.view(), to.view());
  context.finish();
  EXPECT_EQ(to.values(), values);
}

}  // namespace
}  // namespace engine::ops::cuda
