// Dense layer: checks and dispatch.
#include "engine/ops/dense/dense.h"

#include <algorithm>
#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/dense/dense_cuda.h"
#include "engine/ops/gemm/gemm_cpu.h"
#include "engine/ops/gemm/gemm_f64_cpu.h"
#include "engine/ops/gemm/packed_weight_cpu.h"

namespace engine::ops {
namespace {

struct Sizes {
  std::int64_t n, in, out;
};

DType weight_dtype(const KernelContext& context, const TensorView& input) {
  return on_cuda(context) ? input.dtype : wide_dtype(input.dtype);
}

struct Named {
  const char* name;
  const TensorView& view;
};

// Checks the operands that all calls share: `input` [n, in], `output` [n, out], weight [out, in] of
// `weight_dtype`.
Sizes check_operands(const char* kernel, const Named& input, const Named& output,
                     const Named& weight, DType weight_dtype) {
  const Shape &rows = input.view.shape, &matrix = weight.view.shape;
  if (rows.rank() != 2) {
    throw ShapeError(std::string(kernel) + ": " + input.name + " has the shape " +
                     rows.to_string() + ", expected [n, in]");
  }
  if (matrix.rank() != 2) {
    throw ShapeError(std::string(kernel) + ": " + weight.name + " has the shape " +
                     matrix.to_string() + ", expected [out, in]");
  }
  const Sizes s{rows[0], matrix[1], matrix[0]};
  check_stored(kernel, input.name, input.view);
  check_shape(kernel, input.name, input.view, {s.n, s.in});
  check_dtype(kernel, weight.name, weight.view, weight_dtype);
  check_dtype(kernel, output.name, output.view, input.view.dtype);
  check_shape(kernel, output.name, output.view, {s.n, s.out});
  return s;
}

void check_scratch(const char* kernel, const KernelContext& context, const Sizes& s, DType dtype) {
  check_context(kernel, context);
  const int threads = on_cuda(context) ? 0 : context.threads->threads();
  check_context(
      kernel, context,
      dense_scratch_bytes(s.n, s.in, s.out, dtype, threads, context.device.kind, context.products));
}

const GemmTable& gemm_table_for(DType activations, Products products) {
  if (activations == DType::kBF16) return stored_table_of_gemm_table();
  return in_bf16(products) ? bf16_table_of_gemm_table() : isa_table_of_gemm_table();
}

const PackedWeightKernels& packed_kernels(DType dtype) {
  require(dtype == DType::kF32 || dtype == DType::kBF16, "weights are packed in f32 or bf16");
  const PackedWeightTable& table = isa_table_of_packed_weight_table();
  return dtype == DType::kBF16 ? table.bf16 : table.f32;
}

float* scratch_floats(const KernelContext& context) {
  return reinterpret_cast<float*>(context.scratch.data());
}

void forward_f64(KernelContext& context, const Sizes& s, const DenseForward& o) {
  isa_table_of_gemm_f64_table().rows({s.n, s.out, s.in, o.write == Write::kAdd}, o.x.as<double>(),
                                     o.weight.as<double>(), true, o.y.as<double>(),
                                     *context.threads);
  if (!o.bias && !o.relu) return;
  context.threads->run(s.n, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first * s.out; i < last * s.out; ++i) {
      double& value = o.y.as<double>()[i];
      if (o.bias) value += o.bias.as<double>()[i % s.out];
      if (o.relu && value < 0) value = 0;
    }
  });
}

// dbias = (or +=) the column sums of dy [n, out].
void add_columns_f64(KernelContext& context, const Sizes& s, const DenseBackwardWeights& o) {
  context.threads->run(s.out, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t c = first; c < last; ++c) {
      double sum = 0;
      for (std::int64_t i = 0; i < s.n; ++i) sum += o.dy.as<double>()[i * s.out + c];
      double& place = o.dbias.as<double>()[c];
      place = o.write == Write::kAdd ? place + sum : sum;
    }
  });
}

}  // namespace

std::size_t dense_scratch_bytes(std::int64_t n, std::int64_t in, std::int64_t out, DType dtype,
                                int threads, Device::Kind device, Products products) {
  return dispatch_device(
      device,
      [&]() -> std::size_t {
        if (dtype == DType::kF64) return 0;
        const GemmTable& gemm = gemm_table_for(dtype, products);
        const std::int64_t floats = std::max({gemm.rows_scratch(n, out, in, threads),
                                              gemm.rows_scratch(n, in, out, threads),
                                              gemm.outer_scratch(out, in, n, threads)});
        return static_cast<std::size_t>(floats) * sizeof(float);
      },
      [&] { return cuda::dense_scratch_bytes(n, in, out, dtype); });
}

std::size_t dense_packed_bytes(std::int64_t in, std::int64_t out, DType packed) {
  return static_cast<std::size_t>(packed_kernels(packed).bytes(out, in));
}

void pack_dense_weight(KernelContext& context, const TensorView& weight, const PackedWeight& to) {
  require(!on_cuda(context), "weights are packed in host memory");
  check_dtype("pack_dense_weight", "weight", weight, DType::kF32);
  check_shape("pack_dense_weight", "weight", weight, {to.out, to.in});
  packed_kernels(to.dtype).pack(weight.as<float>(), to.out, to.in, *context.threads, to.data);
}

void packed_dense_forward(KernelContext& context, const TensorView& x, const PackedWeight& weight,
                          const TensorView& bias, bool relu, const TensorView& y) {
  constexpr const char* kName = "packed_dense_forward";
  require(!on_cuda(context), "packed weights are read in host memory");
  if (x.shape.rank() != 2)
    throw ShapeError(std::string(kName) + ": x has the shape " + x.shape.to_string() +
                     ", expected [n, in]");
  const std::int64_t n = x.shape[0];
  check_shape(kName, "x", x, {n, weight.in});
  check_shape(kName, "y", y, {n, weight.out});
  for (const Named& each : {Named{"x", x}, Named{"y", y}})
    check_dtype(kName, each.name, each.view, DType::kF32);
  if (bias) check_shape(kName, "bias", bias, {weight.out});
  packed_kernels(weight.dtype)
      .multiply({.m = n,
                 .n = weight.out,
                 .k = weight.in,
                 .a = x.as<float>(),
                 .weight = weight.data,
                 .c = y.as<float>(),
                 .bias = bias.as<float>(),
                 .relu = relu},
                *context.threads);
}

void dense_forward(KernelContext& context, const DenseForward& o) {
  constexpr const char* kName = "dense_forward";
  const Sizes s = check_operands(kName, {"x", o.x}, {"y", o.y}, {"weight", o.weight},
                                 weight_dtype(context, o.x));
  if (o.bias) {
    check_dtype(kName, "bias", o.bias, wide_dtype(o.x.dtype));
    check_shape(kName, "bias", o.bias, {s.out});
  }
  require(o.write == Write::kOverwrite || (!o.bias && !o.relu),
          "dense_forward: kAdd needs no bias and no ReLU");
  check_scratch(kName, context, s, o.x.dtype);
  dispatch(
      context, o.x.dtype, [&] { forward_f64(context, s, o); },
      [&] {
        const GemmRows gemm{.m = s.n,
                            .n = s.out,
                            .k = s.in,
                            .a = o.x.data,
                            .a_stride = s.in,
                            .b = o.weight.as<float>(),
                            .b_stride = s.in,
                            .b_transposed = true,
                            .c = o.y.data,
                            .c_stride = s.out,
                            .add = o.write == Write::kAdd,
                            .bias = o.bias.as<float>(),
                            .relu = o.relu};
        gemm_table_for(o.x.dtype, context.products)
            .rows(gemm, *context.threads, scratch_floats(context));
      },
      [&] { cuda::dense_forward(context, o); });
}

void dense_backward_data(KernelContext& context, const DenseBackwardData& o) {
  constexpr const char* kName = "dense_backward_data";
  const Sizes s = check_operands(kName, {"dx", o.dx}, {"dy", o.dy}, {"weight", o.weight},
                                 weight_dtype(context, o.dx));
  check_scratch(kName, context, s, o.dx.dtype);
  const bool add = o.write == Write::kAdd;
  dispatch(
      context, o.dx.dtype,
      [&] {
        isa_table_of_gemm_f64_table().rows({s.n, s.in, s.out, add}, o.dy.as<double>(),
                                           o.weight.as<double>(), false, o.dx.as<double>(),
                                           *context.threads);
      },
      [&] {
        const GemmRows gemm{.m = s.n,
                            .n = s.in,
                            .k = s.out,
                            .a = o.dy.data,
                            .a_stride = s.out,
                            .b = o.weight.as<float>(),
                            .b_stride = s.in,
                            .b_transposed = false,
                            .c = o.dx.data,
                            .c_stride = s.in,
                            .add = add,
                            .bias = nullptr,
                            .relu = false};
        gemm_table_for(o.dx.dtype, context.products)
            .rows(gemm, *context.threads, scratch_floats(context));
      },
      [&] { cuda::dense_backward_data(context, o); });
}

void dense_backward_weights(KernelContext& context, const DenseBackwardWeights& o) {
  constexpr const char* kName = "dense_backward_weights";
  const Sizes s = check_operands(kName, {"x", o.x}, {"dy", o.dy}, {"dweight", o.dweight},
                                 wide_dtype(o.x.dtype));
  if (o.dbias) {
    check_dtype(kName, "dbias", o.dbias, wide_dtype(o.x.dtype));
    check_shape(kName, "dbias", o.dbias, {s.out});
  }
  check_scratch(kName, context, s, o.x.dtype);
  const bool add = o.write == Write::kAdd;
  dispatch(
      context, o.x.dtype,
      [&] {
        if (o.dbias) add_columns_f64(context, s, o);
        isa_table_of_gemm_f64_table().outer({s.out, s.in, s.n, add}, o.dy.as<double>(),
                                            o.x.as<double>(), o.dweight.as<double>(),
                                            *context.threads);
      },
      [&] {
        const GemmOuter gemm{.m = s.out,
                             .n = s.in,
                             .k = s.n,
                             .a = o.dy.data,
                             .a_stride = s.out,
                             .b = o.x.data,
                             .b_stride = s.in,
                             .c = o.dweight.as<float>(),
                             .c_stride = s.in,
                             .add = add,
                             .a_sums = o.dbias.as<float>()};
        gemm_table_for(o.x.dtype, context.products)
            .outer(gemm, *context.threads, scratch_floats(context));
      },
      [&] { cuda::dense_backward_weights(context, o); });
}

}  // namespace engine::ops
