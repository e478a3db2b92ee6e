// Codes of bf16 on a CUDA device have the bits and errors of a sum in host memory.
#include "engine/ops/codes/bf16_codes.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "io/base/numbers/half.h"
#include "tests/engine/ops/codes/code_test_support.h"

namespace engine::ops {
namespace {

using namespace cuda_test;
using namespace code_test;

template <class T>
class Bf16CodesCuda : public CudaTest {};
using Bf16Numbers = testing::Types<float, double>;
TYPED_TEST_SUITE(Bf16CodesCuda, Bf16Numbers);

TYPED_TEST(Bf16CodesCuda, HaveTheBitsAndErrorsOfTheCpu) {
  using T = TypeParam;
  for (const std::int64_t count : {1, 255, 4097})
    for (const std::string& kind : kKinds) {
      SCOPED_TRACE(kind + ", " + std::to_string(count));
      DeviceContext c(0);
      const std::vector<T> values = numbers<T>(kind, count, 1),
                           error = numbers<T>("mixed", count, 2);
      const DeviceOperand<T> here({count}, values), kept({count}, error);
      const auto size = static_cast<std::size_t>(count);
      const DeviceOperand<base::bf16> codes({count}, std::vector<base::bf16>(size));
      encode_bf16(c.context, here.view(), kept.view(), codes.view());
      decode_bf16(c.context, codes.view(), here.view());
      c.finish();
      std::vector<T> decoded, rest;
      for (std::size_t i = 0; i < size; ++i) {
        const T owed = values[i] + error[i];
        decoded.push_back(
            static_cast<T>(base::to_float(base::from_float<base::bf16>(static_cast<float>(owed)))));
        rest.push_back(kept_of(owed - decoded.back()));
      }
      expect_same(here.values(), decoded, "code");
      expect_same(kept.values(), rest, "error");
    }
}

TYPED_TEST(Bf16CodesCuda, RejectOtherSizesAndTypes) {
  DeviceContext c(0);
  const DeviceOperand<TypeParam> two({2}, {1, 2}), three({3}, {1, 2, 3});
  const DeviceOperand<base::bf16> codes({2}, std::vector<base::bf16>(2));
  const DeviceOperand<std::int32_t> integers({2}, {1, 2});
  EXPECT_THROW(encode_bf16(c.context, two.view(), three.view(), codes.view()), ShapeError);
  EXPECT_THROW(encode_bf16(c.context, three.view(), three.view(), codes.view()), ShapeError);
  EXPECT_THROW(decode_bf16(c.context, integers.view(), two.view()), ShapeError);
  KernelContext cpu;
  EXPECT_THROW(decode_bf16(cpu, codes.view(), two.view()), Error);
}

}  // namespace
}  // namespace engine::ops
