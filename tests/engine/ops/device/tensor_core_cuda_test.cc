// Each tensor-core wrapper multiplies random matrices in a kernel of its own; loads and packing are
// checked element by element. This file is CUDA C++ where there is nvcc.
#include "engine/ops/device/tensor_core.h"

#include "tests/engine/ops/device/cuda_test_support.h"

namespace engine::ops::cuda {
namespace {

using namespace cuda_test;

class TensorCore : public CudaTest {};

// c [16, 8] += a [16, 8] b [8, 8]
__global__ void multiply_tf32(const float* a, const float* b, float* c) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  const std::uint32_t a_part[4] = {__float_as_uint(round_to_tf32(a[g * 8 + t])),
                                   __float_as_uint(round_to_tf32(a[(g + 8) * 8 + t])),
                                   __float_as_uint(round_to_tf32(a[g * 8 + t + 4])),
                                   __float_as_uint(round_to_tf32(a[(g + 8) * 8 + t + 4]))};
  const std::uint32_t b_part[2] = {__float_as_uint(round_to_tf32(b[t * 8 + g])),
                                   __float_as_uint(round_to_tf32(b[(t + 4) * 8 + g]))};
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  mma_m16n8k8_tf32(sums, a_part, b_part);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

// c [16, 8] += a [16, 16] b [16, 8], T: bf16 or f16
template <class T>
__global__ void multiply_16(const float* a, const float* b, float* c) {
  const int g = lane_index() / 4, t = lane_index() % 4;
  std::uint32_t a_part[4], b_part[2];
  for (int i = 0; i < 4; ++i) {
    const float* from = a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
    a_part[i] = pack_rounded<T>(from[0], from[1]);
  }
  for (int i = 0; i < 2; ++i) {
    const float* from = b + (2 * t + 8 * i) * 8 + g;
    b_part[i] = pack(from_float<T>(from[0]), from_float<T>(from[8]));
  }
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  if constexpr (std::is_same_v<T, bf16>)
    mma_m16n8k16_bf16(sums, a_part, b_part);
  else
    mma_m16n8k16_f16(sums, a_part, b_part);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

// The same product with operands from shared memory: a by rows, b [16, 8] as it is (transposed on
// the way), c overwritten.
struct Loaded {
  bf16 a[16][24], b[16][8];
};
__global__ void multiply_loaded(const float* a, const float* b, float* c) {
  auto& shared = block_shared<Loaded>();
  const int lane = lane_index(), g = lane / 4, t = lane % 4;
  for (int i = lane; i < 256; i += kWarp) shared.a[i / 16][i % 16] = from_float<bf16>(a[i]);
  for (int i = lane; i < 128; i += kWarp) shared.b[i / 8][i % 8] = from_float<bf16>(b[i]);
  __syncwarp();
  std::uint32_t a_part[4], b_part[2];
  ldmatrix_x4(a_part, &shared.a[lane % 16][lane / 16 * 8]);
  ldmatrix_x2_trans(b_part, &shared.b[lane % 16][0]);
  float sums[4] = {0, 0, 0, 0};
  mma_m16n8k16_bf16(sums, a_part, b_part);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

// out[load][lane][register][half] of the matrices 0..255 [4][8][8], for x4, x4_trans, x2, x2_trans
struct Matrices {
  std::uint16_t at[4][8][8];
};
__global__ void load_all(std::int32_t* out) {
  auto& shared = block_shared<Matrices>();
  const int lane = lane_index();
  for (int i = lane; i < 256; i += kWarp)
    shared.at[i / 64][i / 8 % 8][i % 8] = static_cast<std::uint16_t>(i);
  __syncwarp();
  std::uint32_t parts[4][4] = {};
  std::uint32_t two[2];
  const void* row = shared.at[lane / 8][lane % 8];
  ldmatrix_x4(parts[0], row);
  ldmatrix_x4_trans(parts[1], row);
  ldmatrix_x2(two, row);
  for (int i = 0; i < 2; ++i) parts[2][i] = two[i];
  ldmatrix_x2_trans(two, row);
  for (int i = 0; i < 2; ++i) parts[3][i] = two[i];
  for (int load = 0; load < 4; ++load)
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 2; ++half)
        out[((load * kWarp + lane) * 4 + i) * 2 + half] =
            static_cast<std::int32_t>((parts[load][i] >> (16 * half)) & 0xffffu);
}

__global__ void round_all(const float* from, std::int32_t count, float* to) {
  for (std::int32_t i = lane_index(); i < count; i += kWarp) to[i] = round_to_tf32(from[i]);
}

using MultiplyKernel = void (*)(const float*, const float*, float*);

// The error of one product against the exact one of the given operands.
double product_error(MultiplyKernel kernel, int k, bool add, std::size_t shared_bytes = 0) {
  const Operand<float> a = random_operand({16, k}, 1), b = random_operand({k, 8}, 2),
                       c = random_operand({16, 8}, 3);
  const auto device_a = to_device<float>(a.shape, a.values),
             device_b = to_device<float>(b.shape, b.values),
             device_c = to_device<float>(c.shape, c.values);
  std::vector<double> expected(128);
  for (int i = 0; i < 128; ++i) {
    const auto at = static_cast<std::size_t>(i);
    expected[at] = add ? c.values[at] : 0.0;
    for (int j = 0; j < k; ++j)
      expected[at] += double{a.values[static_cast<std::size_t>(i / 8 * k + j)]} *
                      b.values[static_cast<std::size_t>(j * 8 + i % 8)];
  }
  DeviceContext context;
  launch("product", kernel, {1}, kWarp, shared_bytes, context.context.stream,
         device_a.view().as<float>(), device_b.view().as<float>(), device_c.view().as<float>());
  context.finish();
  return relative_error(device_c.values(), expected);
}

TEST_F(TensorCore, MultipliesTf32) {
  const double error = product_error(multiply_tf32, 8, true);
  EXPECT_LT(error, 1e-3);
  EXPECT_GT(error, 1e-6);  // operands of 10 bits
}
TEST_F(TensorCore, MultipliesBf16) { EXPECT_LT(product_error(multiply_16<bf16>, 16, true), 1e-2); }
TEST_F(TensorCore, MultipliesF16) { EXPECT_LT(product_error(multiply_16<f16>, 16, true), 1e-3); }
TEST_F(TensorCore, MultipliesWhatLdmatrixLoads) {
  EXPECT_LT(product_error(multiply_loaded, 16, false, sizeof(Loaded)), 1e-2);
}

TEST_F(TensorCore, LdmatrixGivesEachLaneItsElements) {
  const DeviceOperand<std::int32_t> out({4, 32, 4, 2}, std::vector<std::int32_t>(1024, -1));
  DeviceContext context;
  launch("load_all", load_all, {1}, kWarp, sizeof(Matrices), context.context.stream,
         out.view().as<std::int32_t>());
  context.finish();
  const std::vector<std::int32_t> found = out.values();
  for (int load = 0; load < 4; ++load)
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < (load < 2 ? 4 : 2); ++i)
        for (int half = 0; half < 2; ++half) {
          const int g = lane / 4, k = lane % 4 * 2 + half;
          const int expected = i * 64 + (load % 2 == 0 ? g * 8 + k : k * 8 + g);
          ASSERT_EQ(found[static_cast<std::size_t>(((load * 32 + lane) * 4 + i) * 2 + half)],
                    expected)
              << load << " lane " << lane << " register " << i;
        }
}

TEST_F(TensorCore, RoundsToTenBitsTiesAway) {
  const std::vector<float> from = {
      1.0f, 1.0f + 0x1p-11f, -1.0f - 0x1p-11f, 1.0f + 0x1p-12f, 1.0f + 3 * 0x1p-11f,
      0.0f, INFINITY};
  const std::vector<float> expected = {
      1.0f, 1.0f + 0x1p-10f, -1.0f - 0x1p-10f, 1.0f, 1.0f + 2 * 0x1p-10f, 0.0f, INFINITY};
  const DeviceOperand<float> device_from({7}, from), to({7}, std::vector<float>(7));
  DeviceContext context;
  launch("round_all", round_all, {1}, kWarp, 0, context.context.stream,
         device_from.view().as<float>(), 7, to.view().as<float>());
  context.finish();
  EXPECT_EQ(to.values(), expected);
}

}  // namespace
}  // namespace engine::ops::cuda
