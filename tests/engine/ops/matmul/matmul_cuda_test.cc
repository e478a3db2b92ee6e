// Batched matrix products on a CUDA device against float64 on the host, for every storage and way
// to multiply.
#include "tests/engine/ops/device/cuda_test_support.h"
#include "tests/engine/ops/matmul/matmul_cases.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class MatmulCuda : public CudaTest {};
TYPED_TEST_SUITE(MatmulCuda, Storages);

template <class T>
void compare_matmul(const MatmulSetting& s, Write write, Products products, double error) {
  SCOPED_TRACE(s.text() + (write == Write::kAdd ? ", added" : ""));
  const MatmulCase<Operand<float>> start = matmul_case(s, write);
  MatmulCase<Operand<double>> wide = start.as(kept<T>);
  Context host(1, 0);
  wide.forward(host.context, s);
  wide.backward(host.context, s, write);
  DeviceContext c(matmul_scratch_bytes(s.sizes(), DTypeOf<T>::value, 1, kDevice.kind), products);
  auto device = start.as(to_device_as<T, float>);
  device.forward(c.context, s);
  device.backward(c.context, s, write);
  c.finish();
  EXPECT_LE(relative_error(as_floats(device.y.values()), wide.y.values), error);
  EXPECT_LE(relative_error(as_floats(device.da.values()), wide.da.values), error);
  EXPECT_LE(relative_error(as_floats(device.db.values()), wide.db.values), error);
}

TYPED_TEST(MatmulCuda, AgreesWithFloat64) {
  for (const MatmulSetting& s : kMatmuls)
    for (const Write write : {Write::kOverwrite, Write::kAdd})
      compare_matmul<TypeParam>(s, write, Products::kF32, storage_error<TypeParam>());
}

// Several tiles of the largest size.
TYPED_TEST(MatmulCuda, LargeMatricesAgreeWithFloat64) {
  compare_matmul<TypeParam>({{2}, 136, 264, 80, true, 0.125}, Write::kOverwrite, Products::kF32,
                            storage_error<TypeParam>());
}

class MatmulCudaProducts : public CudaTest {};

TEST_F(MatmulCudaProducts, OfRoundedFloatsAgreeWithFloat64) {
  for (const MatmulSetting& s : kMatmuls) {
    compare_matmul<float>(s, Write::kOverwrite, Products::kTf32, 2e-3);
    compare_matmul<float>(s, Write::kOverwrite, Products::kF16, 2e-3);
    compare_matmul<float>(s, Write::kAdd, Products::kBF16, 1e-2);
  }
}

}  // namespace
}  // namespace engine::ops
