// The dense layer on a CUDA device against the float64 reference: every storage, every kind of
// products, odd and unaligned sizes, every tile and splits of k.
#include "engine/ops/dense/dense.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "engine/ops/dense/dense_cuda.h"
#include "engine/ops/dense/dense_reference.h"
#include "engine/ops/device/column_sums_cuda.h"
#include "io/gpu/kernel_resources.h"
#include "tests/engine/ops/common/products.h"
#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;
using cuda::GemmPlan;

constexpr DType kF32 = DType::kF32;

template <class S, Products kProducts>
struct Mode {
  using Storage = S;
  static constexpr Products kWanted = kProducts;
  // Relative to the largest magnitude: of results in f32, and of those that are stored as S.
  static double sum_error() {
    if (std::is_same_v<S, double>) return state_error<S>();
    if (std::is_same_v<S, float>)
      return kProducts == Products::kF32 ? 1e-5 : kProducts == Products::kBF16 ? 1e-2 : 1e-3;
    return 1e-5;  // operands are multiplied as they are
  }
  static double error() {
    return sum_error() + (std::is_same_v<S, float> ? 0 : storage_error<S>());
  }
};

template <class M>
class DenseCuda : public CudaTest {};
using Modes = ::testing::Types<Mode<float, Products::kF32>, Mode<float, Products::kTf32>,
                               Mode<float, Products::kF16>, Mode<float, Products::kBF16>,
                               Mode<bf16, Products::kF32>, Mode<f16, Products::kTf32>,
                               Mode<double, Products::kF32>>;
TYPED_TEST_SUITE(DenseCuda, Modes);

struct Case {
  std::int64_t n, in, out;
  bool bias = true, relu = false;
  Write write = Write::kOverwrite;

  DenseProduct product() const { return {n, in, out}; }
};

// How k and the results are cut; tile 0: by shape, through the public calls.
struct Cut {
  int tile = 0, splits = 1;
  bool warpgroup = false;

  GemmPlan plan(std::int64_t k, std::size_t storage_bytes) const {
    GemmPlan plan = cuda::gemm_plan_of(k, cuda::gemm_stage_depth(storage_bytes), tile, splits);
    plan.warpgroup = warpgroup;
    return plan;
  }
};

struct Errors {
  double y, dx, dweight, dbias;
};

// All three calls.
template <class S>
Errors run_case(const Case& c, Products products, const Cut& cut = {}) {
  const DenseProduct product = c.product();
  HostProduct start = operands_of(product, c.write);
  start.with_bias = c.bias;
  start.relu = c.relu;
  WideProduct wide = start.as(kept<S>, kept<S>, widen);
  product.run_reference(wide);

  auto device = start.as(to_device_as<S>, to_device_as<S>, to_device_as<StateOf<S>>);
  DenseBackwardWeights weights = product.backward_weights(device);
  if (!c.bias) weights.dbias = {};
  const auto plan = [&](std::int64_t k) { return cut.plan(k, sizeof(S)); };
  std::size_t scratch = dense_scratch_bytes(c.n, c.in, c.out, DTypeOf<S>::value, 0, kDevice.kind);
  if (cut.tile != 0)
    for (const auto& [m, n, k] :
         {std::array{c.n, c.out, c.in}, std::array{c.n, c.in, c.out}, std::array{c.out, c.in, c.n}})
      scratch =
          std::max(scratch, static_cast<std::size_t>(cuda::gemm_workspace_bytes(plan(k), m, n)));
  DeviceContext context(scratch, products);
  if (cut.tile == 0) {
    dense_forward(context.context, product.forward(device));
    dense_backward_data(context.context, product.backward_data(device));
    dense_backward_weights(context.context, weights);
  } else {
    cuda::dense_forward(context.context, product.forward(device), plan(c.in));
    cuda::dense_backward_data(context.context, product.backward_data(device), plan(c.out));
    cuda::dense_backward_weights(context.context, weights, plan(c.n));
  }
  context.finish();
  return {relative_error(as_floats(device.y.values()), wide.y.values),
          relative_error(as_floats(device.dx.values()), wide.dx.values),
          relative_error(device.dweight.values(), wide.dweight.values),
          c.bias ? relative_error(device.dbias.values(), wide.dbias.values) : 0};
}

template <class M>
void expect_near(const Case& c, const Cut& cut = {}) {
  SCOPED_TRACE("n " + std::to_string(c.n) + ", in " + std::to_string(c.in) + ", out " +
               std::to_string(c.out) + ", tile " + std::to_string(cut.tile) + ", splits " +
               std::to_string(cut.splits) + (c.write == Write::kAdd ? ", add" : ""));
  const Errors errors = run_case<typename M::Storage>(c, M::kWanted, cut);
  EXPECT_LT(errors.y, M::error());
  EXPECT_LT(errors.dx, M::error());
  EXPECT_LT(errors.dweight, M::sum_error());
  EXPECT_LT(errors.dbias, state_error<typename M::Storage>());
}

TYPED_TEST(DenseCuda, OddSizes) {
  for (const Case& c : {Case{1, 1, 1}, Case{3, 17, 5}, Case{17, 3, 65}, Case{65, 127, 10},
                        Case{33, 65, 63}, Case{127, 10, 129}, Case{64, 64, 64}, Case{40, 200, 24}})
    for (const Write write : {Write::kOverwrite, Write::kAdd}) {
      Case with = c;
      with.write = write;
      with.bias = write == Write::kOverwrite || c.n % 2 == 1;
      with.relu = write == Write::kAdd;
      expect_near<TypeParam>(with);
    }
}

TYPED_TEST(DenseCuda, ModelSizes) {
  expect_near<TypeParam>({96, 784, 128, true, true});
  expect_near<TypeParam>({512, 512, 10});
  expect_near<TypeParam>({256, 64, 257, false});
}

// Gradients of so many values in rows that are not aligned are copied to rows that are; k ends amid
// the 16 bytes of a copy.
TYPED_TEST(DenseCuda, LongUnalignedRowsOfGradients) {
  expect_near<TypeParam>({520, 16, 2049});
  expect_near<TypeParam>({33, 24, 32003, false, false, Write::kAdd});
}

TYPED_TEST(DenseCuda, EveryTileAndSplit) {
  for (const int tile : {32, 64, 128})
    for (const int splits : {1, 3}) {
      if (!tile_fits(tile, tile)) continue;
      expect_near<TypeParam>(
          {130, 136, 70, true, false, splits == 3 ? Write::kAdd : Write::kOverwrite},
          {tile, splits});
      expect_near<TypeParam>(
          {71, 133, 137, true, true, splits == 1 ? Write::kAdd : Write::kOverwrite},
          {tile, splits});
    }
}

template <class M>
class DenseCudaWarpgroup : public CudaTest {};
using HalfModes = ::testing::Types<Mode<bf16, Products::kBF16>, Mode<f16, Products::kF16>>;
TYPED_TEST_SUITE(DenseCudaWarpgroup, HalfModes);

TYPED_TEST(DenseCudaWarpgroup, AgreesWithTheReference) {
  if (!runs_warpgroup_products()) GTEST_SKIP() << "of compute capability 9.0";
  for (const int splits : {1, 2}) {
    expect_near<TypeParam>(
        {130, 200, 70, true, false, splits == 2 ? Write::kAdd : Write::kOverwrite},
        {128, splits, true});
    expect_near<TypeParam>(
        {71, 133, 264, true, true, splits == 1 ? Write::kAdd : Write::kOverwrite},
        {128, splits, true});
  }
  expect_near<TypeParam>({1, 3, 7}, {128, 1, true});
}

// More stages than the ring has, several times over, in each of the three products.
TYPED_TEST(DenseCudaWarpgroup, TheRingTurnsManyTimes) {
  if (!runs_warpgroup_products()) GTEST_SKIP() << "of compute capability 9.0";
  // In C++ the CPU takes minutes for the large one.
  const bool plain =
      engine::cuda::device_info(0).name == "emulated GPU" && !std::getenv("ENGINE_TEST_PTX");
  const Case c = plain ? Case{576, 128, 576} : Case{1024, 1024, 1024};
  expect_near<TypeParam>(c, {128, 1, true});
}

TYPED_TEST(DenseCuda, ManyRowsAreSplit) {
  const Case c{1000, 20, 12};
  expect_near<TypeParam>(c, {32, 4});
  expect_near<TypeParam>(c);
}

TYPED_TEST(DenseCuda, NoRows) {
  using S = typename TypeParam::Storage;
  for (const Write write : {Write::kOverwrite, Write::kAdd}) {
    const DenseProduct none{0, 5, 7};
    HostProduct start = operands_of(none, write);
    start.with_bias = start.relu = true;
    auto device = start.as(to_device_as<S>, to_device_as<S>, to_device_as<StateOf<S>>);
    DeviceContext context(0, TypeParam::kWanted);
    none.run(context.context, device);
    context.finish();
    const bool add = write == Write::kAdd;
    const auto begun = [&](const Operand<float>& operand) {
      return add ? widen(operand).values : std::vector<double>(operand.values.size());
    };
    EXPECT_LE(relative_error(device.dweight.values(), begun(start.dweight)), 0);
    EXPECT_LE(relative_error(device.dbias.values(), begun(start.dbias)), 0);
  }
}

class DenseCudaChecks : public CudaTest {};

TEST_F(DenseCudaChecks, ProductsDifferAsTheirOperandsAreRounded) {
  const Case c{64, 64, 64};
  EXPECT_GT(run_case<float>(c, Products::kTf32).y, 1e-6);
  EXPECT_GT(run_case<float>(c, Products::kBF16).y, run_case<float>(c, Products::kF16).y);
}

TEST_F(DenseCudaChecks, TheSameBitsEveryTime) {
  const DenseProduct product{700, 33, 9};
  const HostProduct start = operands_of(product, Write::kOverwrite);
  std::vector<float> first;
  for (int run = 0; run < 2; ++run) {
    auto device = start.as(to_device_as<float>, to_device_as<float>, to_device_as<float>);
    DeviceContext context(dense_scratch_bytes(700, 33, 9, kF32, 0, kDevice.kind), Products::kTf32);
    dense_backward_weights(context.context, product.backward_weights(device));
    context.finish();
    if (run == 0) first = device.dweight.values();
    EXPECT_EQ(device.dweight.values(), first);
  }
}

TEST_F(DenseCudaChecks, ScratchSufficesForSmallerBatches) {
  for (const std::int64_t n : {1, 31, 64, 129, 1000, 5000, 20000})
    for (const std::int64_t in : {1, 64, 500, 4096})
      for (const std::int64_t out : {1, 10, 65, 1024})
        for (const DType dtype : {kF32, DType::kBF16}) {
          const std::size_t most = cuda::dense_scratch_bytes(n, in, out, dtype);
          const cuda::GemmKind kind(dtype, Products::kF32);
          const int processors = engine::cuda::processor_count();
          for (std::int64_t rows = 0; rows <= n; rows += 1 + rows / 37) {
            const auto need = [&](std::int64_t m, std::int64_t width, std::int64_t k) {
              return static_cast<std::size_t>(cuda::gemm_workspace_bytes(
                  cuda::plan_gemm({m, width, k}, kind, processors), m, width));
            };
            ASSERT_LE(need(rows, out, in), most);
            ASSERT_LE(need(rows, in, out), most);
            ASSERT_LE(need(out, in, rows), most)
                << rows << " of " << n << ": " << in << " to " << out;
            ASSERT_LE(cuda::column_sums_scratch_bytes(rows, out), most);
          }
        }
}

// A dense layer in bf16, of zeros.
struct SmallDense {
  SmallDense(std::int64_t n, std::int64_t in, std::int64_t out)
      : x(zeros({n, in})),
        weight(zeros({out, in})),
        y(zeros({n, out})),
        context(dense_scratch_bytes(n, in, out, DType::kBF16, 0, Device::Kind::kCuda)) {}
  void forward() {
    dense_forward(context.context, {.x = x.view(), .weight = weight.view(), .y = y.view()});
    context.finish();
  }
  static DeviceOperand<bf16> zeros(const Shape& shape) {
    return to_device<bf16>(shape, std::vector<float>(static_cast<std::size_t>(shape.count())));
  }
  DeviceOperand<bf16> x, weight, y;
  DeviceContext context;
};

// The product of a forward call on an emulated device of this compute capability.
struct Started {
  engine::cuda::LaunchRecord::Launch launch;
  int resident = 0;  // blocks of a processor
};
Started forward_on(const char* capability, std::int64_t n, std::int64_t in, std::int64_t out,
                   const cuda::GemmCutWish& wish = {}) {
  setenv("ENGINE_EMULATED_COMPUTE", capability, 1);
  Started started;
  std::thread([&] {  // what has been asked of a device is remembered by the thread
    engine::cuda::use_device(0);
    SmallDense layer(n, in, out);
    cuda::wish_for_cut(wish);
    const engine::cuda::LaunchRecord record;
    layer.forward();
    started.launch = record.launches().at(0);
    started.resident = engine::cuda::resident_blocks(started.launch.use);
  })
      .join();
  return started;
}

class DenseOccupancy : public DenseCudaChecks {
 protected:
  void SetUp() override {
    DenseCudaChecks::SetUp();
    if (!IsSkipped() && engine::cuda::device_info(0).name != "emulated GPU")
      GTEST_SKIP() << "a device has the compute capability that it has";
    if (const char* text = std::getenv("ENGINE_EMULATED_COMPUTE")) before_ = text;
    cuda::allow_warpgroup_products(false);  // of another size
  }
  void TearDown() override {
    cuda::allow_warpgroup_products(true);
    if (before_)
      setenv("ENGINE_EMULATED_COMPUTE", before_->c_str(), 1);
    else
      unsetenv("ENGINE_EMULATED_COMPUTE");
  }
  std::optional<std::string> before_;
};

TEST_F(DenseOccupancy, BlocksOfAProcessorAreThoseThatItsSharedMemoryHolds) {
  for (const auto& [capability, blocks] :
       {std::pair{"9.0", 4}, {"10.0", 4}, {"8.0", 2}, {"8.6", 1}, {"8.9", 1}, {"12.0", 1}}) {
    const Started started = forward_on(capability, 128, 64, 64, {128, 64, 1});
    EXPECT_EQ(started.launch.use.threads, 128);
    EXPECT_EQ(started.launch.use.shared_bytes, 55'296u);
    EXPECT_EQ(started.resident, blocks) << capability;
  }
}

TEST_F(DenseOccupancy, PlansFollowIt) {
  if (engine::cuda::processor_count() != 4) GTEST_SKIP() << "these are plans for 4 processors";
  // On 4 processors, 3 blocks of the narrow tile each, of which 8.6 holds one at a time.
  const Started large = forward_on("9.0", 1536, 64, 64), small = forward_on("8.6", 1536, 64, 64);
  EXPECT_EQ(large.launch.blocks, 12);
  EXPECT_EQ(small.launch.blocks, 24);
}

// In a process of its own, which has not asked for the variable before.
TEST(DenseOccupancyDeathTest, IsAskedOncePerKernelAndDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto count = [] {
    const std::string calls = testing::TempDir() + "occupancy_calls_" + std::to_string(getpid());
    setenv("ENGINE_EMULATED_CALLS", calls.c_str(), 1);
    setenv("ENGINE_EMULATED_COMPUTE", "8.0", 1);
    unsetenv("ENGINE_EMULATED_ARCHITECTURES");
    if (!engine::cuda::missing().empty() || engine::cuda::device_info(0).name != "emulated GPU") {
      std::fprintf(stderr, "no emulated device\n");
      std::exit(0);
    }
    engine::cuda::use_device(0);
    SmallDense layer(64, 64, 64);
    for (int i = 0; i < 3; ++i) layer.forward();
    std::ifstream lines(calls);
    int asked = 0, set = 0;
    for (std::string line; std::getline(lines, line);) {
      asked += line.starts_with("cudaOccupancy");
      set += line == "cudaFuncSetAttribute";
    }
    std::remove(calls.c_str());
    std::fprintf(stderr, "asked %d, set %d\n", asked, set);
    std::exit(0);
  };
  // Four tiles, each with a carve-out; two of them have more than 48 KiB.
  EXPECT_EXIT(count(), testing::ExitedWithCode(0), "asked 4, set 6|no emulated device");
}

TEST_F(DenseCudaChecks, WarpgroupProductsAreForTheirDeviceAndShortStorage) {
  const auto uses_them = [](DType storage, std::int64_t columns) {
    return cuda::plan_on_device({4096, columns, 4096}, {storage, Products::kBF16}).warpgroup;
  };
  const bool has_them = engine::cuda::device_info(0).major == 9;
  EXPECT_EQ(uses_them(DType::kBF16, 4096), has_them);
  EXPECT_FALSE(uses_them(kF32, 4096));
  EXPECT_FALSE(uses_them(DType::kBF16, 32)) << "a smaller tile";
  cuda::allow_warpgroup_products(false);
  EXPECT_FALSE(uses_them(DType::kBF16, 4096));
  cuda::allow_warpgroup_products(true);
}

TEST_F(DenseCudaChecks, RefusesWhatDoesNotFit) {
  const auto x = to_device<bf16>({4, 3}, std::vector<float>(12)),
             w = to_device<bf16>({2, 3}, std::vector<float>(6)),
             y = to_device<bf16>({4, 2}, std::vector<float>(8)),
             b = to_device<bf16>({2}, std::vector<float>(2));
  DeviceContext context;
  EXPECT_THROW(dense_forward(context.context,
                             {.x = x.view(), .weight = w.view(), .bias = b.view(), .y = y.view()}),
               ShapeError);  // bias is f32
  EXPECT_THROW(
      dense_backward_weights(
          context.context,
          {.x = x.view(), .dy = y.view(), .dweight = w.view(), .write = Write::kOverwrite}),
      ShapeError);
}

}  // namespace
}  // namespace engine::ops
