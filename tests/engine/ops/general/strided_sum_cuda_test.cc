// Strided sums on a CUDA device against float64, for every storage, term and order of axes.
#include "engine/ops/general/strided_sum.h"

#include "tests/engine/ops/device/device_runs.h"
#include "tests/engine/ops/general/sum_cases.h"

namespace engine::ops {
namespace {

using namespace cuda_test;

template <class T>
class StridedSumCuda : public CudaTest {};
TYPED_TEST_SUITE(StridedSumCuda, Storages);

TYPED_TEST(StridedSumCuda, AgreesWithFloat64) {
  for (const SumCase& each : kSums)
    for (const SumTerm term : kSumTerms)
      for (const Write write : {Write::kOverwrite, Write::kAdd})
        for (const bool wide : {false, true}) {
          SCOPED_TRACE(std::string(each.name) + ", term " + std::to_string(static_cast<int>(term)));
          Operand<float> y = random_operand({20000}, 4);
          const Given operands[] = {random_operand({20000}, 1), random_operand({20000}, 2),
                                    positive_operand({20000}),
                                    wide ? state(std::move(y)) : Given(std::move(y))};
          const auto [found, expected] = run_on_device<TypeParam>(
              operands, [&](KernelContext& c, TensorView u, TensorView v, TensorView w,
                            TensorView out) { sum_case(c, each, term, write, u, v, w, out); });
          EXPECT_LE(relative_error(found[3], expected[3], 1),
                    wide ? state_error<TypeParam>() : storage_error<TypeParam>());
        }
}

}  // namespace
}  // namespace engine::ops
