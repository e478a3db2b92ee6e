// One launch for all products.
#include "engine/ops/float64/product_f64_cuda.h"

#include "engine/ops/float64/plain_product.h"

namespace engine::ops::cuda {
namespace {

// Calls call(matrix), where `lines` are those of one matrix.
template <class Call>
void with_order(const OperandF64& o, std::int64_t lines, std::int64_t k, Call call) {
  const auto* data = o.view.as<double>();
  if (o.by_depth)
    call(plain::Strided<true>{data, k, 1, lines * k});
  else
    call(plain::Strided<false>{data, 1, lines, lines * k});
}

}  // namespace

void multiply_f64(KernelContext& context, const ProductF64& o) {
  const plain::Result c{.data = o.c.as<double>(),
                        .row = o.n,
                        .matrix = o.m * o.n,
                        .add = o.write == Write::kAdd,
                        .scale = o.scale,
                        .bias = o.bias.as<double>(),
                        .relu = o.relu};
  with_order(o.a, o.m, o.k, [&](const auto& a) {
    with_order(o.b, o.n, o.k, [&](const auto& b) {
      plain::launch_product(context, o.name, a, b, {o.m, o.n, o.k, o.matrices}, c);
    });
  });
}

}  // namespace engine::ops::cuda
