// Starts many equal products of plain matrices at once, with a row of blocks for each of them.
// Included by .cu files only.
#pragma once

#include <algorithm>

#include "engine/ops/gemm/gemm_launch.h"
#include "engine/ops/gemm/gemm_matrix.h"
#include "engine/ops/matmul/matmul_cuda.h"

namespace engine::ops::cuda {

// An epilogue that multiplies the results before it stores them.
template <class T>
struct ScaledStore {
  MatrixStore<T> store;
  float scale;

  __device__ __forceinline__ void operator()(int row, int column, const float (&values)[8],
                                             int count) const {
    float scaled[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) scaled[i] = values[i] * scale;
    store(row, column, scaled, count);
  }
};

// Products whose matrices follow each other in memory at these distances, in the place of a
// GemmGroup's array.
template <class Product>
struct ProductList {
  Product first;
  std::int64_t a_step, b_step, c_step;

  template <class Index>
  __host__ __device__ __forceinline__ Product operator[](Index index) const {
    Product product = first;
    product.a.data += index * a_step;
    product.b.data += index * b_step;
    product.store.store.to += index * c_step;
    return product;
  }
};
template <class Product_>
struct ProductBatch {
  using Product = Product_;
  static constexpr int kMost = 65535;  // blocks of a grid's y
  ProductList<Product> products;
  int count;
};

// The operands of all products, contiguous: C [m, n] = (or +=) scale * A B.
template <class T>
struct BatchOperands {
  const char* name;  // name of the kernel for error texts
  MatmulSizes sizes;
  const T *a, *b;
  T* c;
  bool add;
  double scale;
};

// kByDepthA: A is [m, k], else [k, m]; kByDepthB: B is [n, k], else [k, n].
template <bool kByDepthA, bool kByDepthB, class T>
void launch_products(KernelContext& context, const BatchOperands<T>& x) {
  const std::int64_t count = x.sizes.products, m = x.sizes.m, n = x.sizes.n, k = x.sizes.k;
  const std::int64_t a_pitch = kByDepthA ? k : m, b_pitch = kByDepthB ? k : n;
  const auto start = [&](auto products, auto aligned) {
    using Product = GemmProduct<MatrixLoader<T, kByDepthA, aligned()>,
                                MatrixLoader<T, kByDepthB, aligned()>, ScaledStore<T>>;
    using Group = ProductBatch<Product>;
    const GemmPlan plan = plan_on_device({count * m, n, k}, {DTypeOf<T>::value, products()},
                                         residents_of<products(), Group>(), 1);
    for (std::int64_t first = 0; first < count; first += Group::kMost) {
      const Product product{.name = x.name,
                            .m = m,
                            .n = n,
                            .k = k,
                            .a = Product::LoaderA::of(x.a + first * m * k, m, a_pitch),
                            .b = Product::LoaderB::of(x.b + first * k * n, n, b_pitch),
                            .store = {MatrixStore<T>::of(x.c + first * m * n, n, x.add),
                                      static_cast<float>(x.scale)}};
      const Group group{{product, m * k, k * n, m * n},
                        static_cast<int>(std::min<std::int64_t>(Group::kMost, count - first))};
      launch_planned<products()>(context, plan, group, gemm_cut(context, plan, product));
    }
  };
  const bool aligned = alignment_of(x.a, a_pitch) == 16 && alignment_of(x.b, b_pitch) == 16;
  with_products<T>(context.products, [&](auto products) {
    aligned ? start(products, std::true_type{}) : start(products, std::false_type{});
  });
}

}  // namespace engine::ops::cuda
