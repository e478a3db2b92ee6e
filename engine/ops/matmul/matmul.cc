// Batched matrix products: checks, dispatch, and the division of products among threads.
#include "engine/ops/matmul/matmul.h"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/gemm/gemm_cpu.h"
#include "engine/ops/gemm/gemm_f64_cpu.h"
#include "engine/ops/matmul/matmul_cuda.h"

namespace engine::ops {
namespace {

[[noreturn]] void fail_shapes(const char* kernel, const TensorView& a, const TensorView& b,
                              bool transpose_b) {
  throw ShapeError(std::string(kernel) + ": a has the shape " + a.shape.to_string() + " and b " +
                   b.shape.to_string() + ", expected [..., m, k] and [..., " +
                   (transpose_b ? "n, k]" : "k, n]"));
}

// Checks a, b and y (or dy).
MatmulSizes check_products(const char* kernel, const TensorView& a, const TensorView& b,
                           bool transpose_b, const TensorView& y) {
  check_floating(kernel, "a", a);
  check_dtype(kernel, "b", b, a.dtype);
  check_dtype(kernel, "y", y, a.dtype);
  const int rank = a.shape.rank();
  if (rank < 2 || b.shape.rank() != rank) fail_shapes(kernel, a, b, transpose_b);
  MatmulSizes s{1, a.shape[rank - 2], b.shape[rank - (transpose_b ? 2 : 1)], a.shape[rank - 1]};
  bool fits = b.shape[rank - (transpose_b ? 1 : 2)] == s.k;
  for (int i = 0; i < rank - 2; ++i) {
    fits = fits && a.shape[i] == b.shape[i];
    s.products *= a.shape[i];
  }
  if (!fits) fail_shapes(kernel, a, b, transpose_b);
  std::vector<std::int64_t> dims(a.shape.dims().begin(), a.shape.dims().end());
  dims.back() = s.n;
  check_shape(kernel, "y", y, Shape(std::span<const std::int64_t>(dims)));
  return s;
}

void check_scratch(const char* kernel, const KernelContext& context, const MatmulSizes& s,
                   DType dtype) {
  check_context(kernel, context);
  const int threads = on_cuda(context) ? 0 : context.threads->threads();
  check_context(kernel, context,
                matmul_scratch_bytes(s, dtype, threads, context.device.kind, context.products));
}

const GemmTable& gemm_table_for(Products products) {
  return in_bf16(products) ? bf16_table_of_gemm_table() : isa_table_of_gemm_table();
}

// The floats of scratch for one product at a time on this many threads.
std::int64_t scratch_floats(const MatmulSizes& s, const GemmTable& gemm, int threads) {
  const auto rounded = [](std::int64_t floats) { return (floats + 15) / 16 * 16; };
  return rounded(std::max(
      {gemm.rows_scratch(s.m, s.n, s.k, threads), gemm.rows_scratch(s.m, s.k, s.n, threads),
       gemm.outer_scratch(s.k, s.n, s.m, threads), gemm.outer_scratch(s.n, s.k, s.m, threads)}));
}

// Calls body(product, threads, scratch) for each product: with one thread each if there are enough
// of them, else with all threads. The bits of a product do not depend on its threads.
template <class Body>
void for_each_product(const KernelContext& context, const MatmulSizes& s, std::int64_t floats,
                      Body body) {
  auto* scratch = reinterpret_cast<float*>(context.scratch.data());
  ThreadPool& threads = *context.threads;
  if (s.products < threads.threads()) {
    for (std::int64_t i = 0; i < s.products; ++i) body(i, threads, scratch);
    return;
  }
  static ThreadPool alone(1);  // has no state that a loop changes
  threads.run(s.products, [&](std::int64_t first, std::int64_t last, int share) {
    for (std::int64_t i = first; i < last; ++i) body(i, alone, scratch + share * floats);
  });
}

template <class T>
void multiply_all(T* values, std::int64_t count, double scale, ThreadPool& threads) {
  if (scale == 1) return;
  const auto factor = static_cast<T>(scale);
  threads.run(count, [=](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first; i < last; ++i) values[i] *= factor;
  });
}

// Products of contiguous rows in float32.
struct FloatProducts {
  using Number = float;
  const GemmTable& gemm;

  // c [m, n] = (or +=) a [m, k] B, with B b [k, n] or the transpose of b [n, k].
  void rows(const GemmSizesF64& s, const float* a, const float* b, bool transposed, float* c,
            ThreadPool& threads, float* scratch) const {
    gemm.rows({.m = s.m,
               .n = s.n,
               .k = s.k,
               .a = a,
               .a_stride = s.k,
               .b = b,
               .b_stride = transposed ? s.k : s.n,
               .b_transposed = transposed,
               .c = c,
               .c_stride = s.n,
               .add = s.add,
               .bias = nullptr,
               .relu = false},
              threads, scratch);
  }
  // c [m, n] = (or +=) the transpose of a [k, m] * b [k, n].
  void outer(const GemmSizesF64& s, const float* a, const float* b, float* c, ThreadPool& threads,
             float* scratch) const {
    gemm.outer({.m = s.m,
                .n = s.n,
                .k = s.k,
                .a = a,
                .a_stride = s.m,
                .b = b,
                .b_stride = s.n,
                .c = c,
                .c_stride = s.n,
                .add = s.add,
                .a_sums = nullptr},
               threads, scratch);
  }
};

// The same in float64.
struct DoubleProducts {
  using Number = double;
  const GemmF64Table& gemm;

  void rows(const GemmSizesF64& s, const double* a, const double* b, bool transposed, double* c,
            ThreadPool& threads, float*) const {
    gemm.rows(s, a, b, transposed, c, threads);
  }
  void outer(const GemmSizesF64& s, const double* a, const double* b, double* c,
             ThreadPool& threads, float*) const {
    gemm.outer(s, a, b, c, threads);
  }
};

template <class Gemm>
void forward(KernelContext& context, const MatmulSizes& s, const MatmulForward& o,
             std::int64_t floats, const Gemm& gemm) {
  using T = typename Gemm::Number;
  for_each_product(context, s, floats, [&](std::int64_t i, ThreadPool& threads, float* scratch) {
    T* y = o.y.as<T>() + i * s.m * s.n;
    gemm.rows({s.m, s.n, s.k, false}, o.a.as<T>() + i * s.m * s.k, o.b.as<T>() + i * s.k * s.n,
              o.transpose_b, y, threads, scratch);
    multiply_all(y, s.m * s.n, o.scale, threads);
  });
}

template <class Gemm>
void backward(KernelContext& context, const MatmulSizes& s, const MatmulBackward& o,
              std::int64_t floats, const Gemm& gemm) {
  using T = typename Gemm::Number;
  const bool add_a = o.da_write == Write::kAdd, add_b = o.db_write == Write::kAdd;
  for_each_product(context, s, floats, [&](std::int64_t i, ThreadPool& threads, float* scratch) {
    T* dy = o.dy.as<T>() + i * s.m * s.n;
    const T *a = o.a.as<T>() + i * s.m * s.k, *b = o.b.as<T>() + i * s.k * s.n;
    multiply_all(dy, s.m * s.n, o.scale, threads);
    if (o.da)
      gemm.rows({s.m, s.k, s.n, add_a}, dy, b, !o.transpose_b, o.da.as<T>() + i * s.m * s.k,
                threads, scratch);
    if (!o.db) return;
    T* db = o.db.as<T>() + i * s.k * s.n;
    if (o.transpose_b)
      gemm.outer({s.n, s.k, s.m, add_b}, dy, a, db, threads, scratch);
    else
      gemm.outer({s.k, s.n, s.m, add_b}, a, dy, db, threads, scratch);
  });
}

}  // namespace

std::size_t matmul_scratch_bytes(const MatmulSizes& sizes, DType dtype, int threads,
                                 Device::Kind device, Products products) {
  return dispatch_device(
      device,
      [&]() -> std::size_t {
        if (dtype == DType::kF64) return 0;
        const GemmTable& gemm = gemm_table_for(products);
        const std::int64_t floats = std::max(scratch_floats(sizes, gemm, threads),
                                             threads * scratch_floats(sizes, gemm, 1));
        return static_cast<std::size_t>(floats) * sizeof(float);
      },
      [] { return std::size_t{0}; });
}

void matmul_forward(KernelContext& context, const MatmulForward& o) {
  constexpr const char* kName = "matmul_forward";
  const MatmulSizes s = check_products(kName, o.a, o.b, o.transpose_b, o.y);
  check_scratch(kName, context, s, o.a.dtype);
  dispatch(
      context, o.a.dtype,
      [&] { forward(context, s, o, 0, DoubleProducts{isa_table_of_gemm_f64_table()}); },
      [&] {
        const GemmTable& gemm = gemm_table_for(context.products);
        forward(context, s, o, scratch_floats(s, gemm, 1), FloatProducts{gemm});
      },
      [&] { cuda::matmul_forward(context, s, o); });
}

void matmul_backward(KernelContext& context, const MatmulBackward& o) {
  constexpr const char* kName = "matmul_backward";
  const MatmulSizes s = check_products(kName, o.a, o.b, o.transpose_b, o.dy);
  check_scratch(kName, context, s, o.a.dtype);
  if (o.da) check_like(kName, "da", o.da, o.a);
  if (o.db) check_like(kName, "db", o.db, o.b);
  dispatch(
      context, o.a.dtype,
      [&] { backward(context, s, o, 0, DoubleProducts{isa_table_of_gemm_f64_table()}); },
      [&] {
        const GemmTable& gemm = gemm_table_for(context.products);
        backward(context, s, o, scratch_floats(s, gemm, 1), FloatProducts{gemm});
      },
      [&] { cuda::matmul_backward(context, s, o); });
}

}  // namespace engine::ops
