// Matrix products whose bits are the same on every instruction set, for orthogonalize.cc.
#pragma once

#include <cstdint>

#include "engine/core/thread_pool.h"
#include "engine/ops/common/cpu_dispatch.h"

namespace engine::ops {

// c [m, n] = product * (a [m, k] b [k, n]) + own * d [m, n], row-major without gaps. c is neither a
// nor b; `d` may be c. Each element of a b is one sum in the order of k, starting from 0, with each
// operation rounded separately.
template <class T>
struct OrderedProduct {
  std::int64_t m, n, k;
  const T *a, *b;
  T* c;
  T product, own;
  const T* d;  // nullptr: nothing is added
};

struct OrderedProductTable {
  void (*run)(const OrderedProduct<float>& p, ThreadPool& threads);
};

ENGINE_ISA_TABLE(OrderedProductTable, ordered_product_table)

}  // namespace engine::ops
