// Dense layer: checks and dispatch.
#include "engine/ops/gemm/dense.h"

#include <algorithm>
#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/gemm/dense_cuda.h"
#include "engine/ops/gemm/gemm_cpu.h"
#include "engine/ops/gemm/gemm_f64_cpu.h"

namespace engine::ops {
namespace {

struct Sizes {
  std::int64_t n, in, out;
};

// What bias and the gradients of parameters are.
DType vector_dtype(const KernelContext& context, const TensorView& input) {
  return on_cuda(context) ? DType::kF32 : input.dtype;
}

// Checks the operands that every call has: `input` [n, in], `output` [n, out], weight [out, in] of
// `weight_dtype`.
Sizes check_operands(const char* kernel, const char* input_name, const TensorView& input,
                     const char* output_name, const TensorView& output, const char* weight_name,
                     const TensorView& weight, DType weight_dtype) {
  if (input.shape.rank() != 2) {
    throw ShapeError(std::string(kernel) + ": " + input_name + " has the shape " +
                     input.shape.to_string() + ", expected [n, in]");
  }
  if (weight.shape.rank() != 2) {
    throw ShapeError(std::string(kernel) + ": " + weight_name + " has the shape " +
                     weight.shape.to_string() + ", expected [out, in]");
  }
  const Sizes s{input.shape[0], weight.shape[1], weight.shape[0]};
  check_floating(kernel, input_name, input);
  check_shape(kernel, input_name, input, {s.n, s.in});
  check_dtype(kernel, weight_name, weight, weight_dtype);
  check_dtype(kernel, output_name, output, input.dtype);
  check_shape(kernel, output_name, output, {s.n, s.out});
  return s;
}

void check_scratch(const char* kernel, const KernelContext& context, const Sizes& s, DType dtype) {
  check_context(kernel, context);
  const int threads = on_cuda(context) ? 0 : context.threads->threads();
  check_context(kernel, context,
                dense_scratch_bytes(s.n, s.in, s.out, dtype, threads, context.device.kind));
}

float* scratch_floats(const KernelContext& context) {
  return reinterpret_cast<float*>(context.scratch.data());
}

void forward_f64(KernelContext& context, const Sizes& s, TensorView x, TensorView weight,
                 TensorView bias, bool relu, TensorView y) {
  isa_table_of_gemm_f64_table().rows({s.n, s.out, s.in, false}, x.as<double>(), weight.as<double>(),
                                     true, y.as<double>(), *context.threads);
  if (!bias && !relu) return;
  context.threads->run(s.n, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t i = first * s.out; i < last * s.out; ++i) {
      double& value = y.as<double>()[i];
      if (bias) value += bias.as<double>()[i % s.out];
      if (relu && value < 0) value = 0;
    }
  });
}

// dbias (or +=) the column sums of dy [n, out].
void add_columns_f64(KernelContext& context, const Sizes& s, TensorView dy, TensorView dbias,
                     Write write) {
  context.threads->run(s.out, [&](std::int64_t first, std::int64_t last, int) {
    for (std::int64_t o = first; o < last; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < s.n; ++i) sum += dy.as<double>()[i * s.out + o];
      double& place = dbias.as<double>()[o];
      place = write == Write::kAdd ? place + sum : sum;
    }
  });
}

}  // namespace

std::size_t dense_scratch_bytes(std::int64_t n, std::int64_t in, std::int64_t out, DType dtype,
                                int threads, Device::Kind device) {
  return dispatch_device(
      device,
      [&]() -> std::size_t {
        if (dtype != DType::kF32) return 0;
        const GemmTable& gemm = isa_table_of_gemm_table();
        const std::int64_t floats = std::max({gemm.rows_scratch(n, out, in, threads),
                                              gemm.rows_scratch(n, in, out, threads),
                                              gemm.outer_scratch(out, in, n, threads)});
        return static_cast<std::size_t>(floats) * sizeof(float);
      },
      [&] { return cuda::dense_scratch_bytes(n, in, out, dtype); });
}

void dense_forward(KernelContext& context, TensorView x, TensorView weight, TensorView bias,
                   bool relu, TensorView y) {
  const Sizes s = check_operands("dense_forward", "x", x, "y", y, "weight", weight, x.dtype);
  if (bias) {
    check_dtype("dense_forward", "bias", bias, vector_dtype(context, x));
    check_shape("dense_forward", "bias", bias, {s.out});
  }
  check_scratch("dense_forward", context, s, x.dtype);
  dispatch(
      context, x.dtype, [&] { forward_f64(context, s, x, weight, bias, relu, y); },
      [&] {
        const GemmRows gemm{s.n,  s.out, s.in,          x.as<float>(), s.in,  weight.as<float>(),
                            s.in, true,  y.as<float>(), s.out,         false, bias.as<float>(),
                            relu};
        isa_table_of_gemm_table().rows(gemm, *context.threads, scratch_floats(context));
      },
      [&] { cuda::dense_forward(context, x, weight, bias, relu, y); });
}

void dense_backward_data(KernelContext& context, TensorView dy, TensorView weight, TensorView dx,
                         Write write) {
  const Sizes s =
      check_operands("dense_backward_data", "dx", dx, "dy", dy, "weight", weight, dx.dtype);
  check_scratch("dense_backward_data", context, s, dx.dtype);
  dispatch(
      context, dx.dtype,
      [&] {
        isa_table_of_gemm_f64_table().rows({s.n, s.in, s.out, write == Write::kAdd},
                                           dy.as<double>(), weight.as<double>(), false,
                                           dx.as<double>(), *context.threads);
      },
      [&] {
        const GemmRows gemm{s.n,
                            s.in,
                            s.out,
                            dy.as<float>(),
                            s.out,
                            weight.as<float>(),
                            s.in,
                            false,
                            dx.as<float>(),
                            s.in,
                            write == Write::kAdd,
                            nullptr,
                            false};
        isa_table_of_gemm_table().rows(gemm, *context.threads, scratch_floats(context));
      },
      [&] { cuda::dense_backward_data(context, dy, weight, dx, write); });
}

void dense_backward_weights(KernelContext& context, TensorView x, TensorView dy, TensorView dweight,
                            TensorView dbias, Write write) {
  const Sizes s = check_operands("dense_backward_weights", "x", x, "dy", dy, "dweight", dweight,
                                 vector_dtype(context, x));
  if (dbias) {
    check_dtype("dense_backward_weights", "dbias", dbias, vector_dtype(context, x));
    check_shape("dense_backward_weights", "dbias", dbias, {s.out});
  }
  check_scratch("dense_backward_weights", context, s, x.dtype);
  dispatch(
      context, x.dtype,
      [&] {
        if (dbias) add_columns_f64(context, s, dy, dbias, write);
        isa_table_of_gemm_f64_table().outer({s.out, s.in, s.n, write == Write::kAdd},
                                            dy.as<double>(), x.as<double>(), dweight.as<double>(),
                                            *context.threads);
      },
      [&] {
        const GemmOuter gemm{s.out,
                             s.in,
                             s.n,
                             dy.as<float>(),
                             s.out,
                             x.as<float>(),
                             s.in,
                             dweight.as<float>(),
                             s.in,
                             write == Write::kAdd,
                             dbias.as<float>()};
        isa_table_of_gemm_table().outer(gemm, *context.threads, scratch_floats(context));
      },
      [&] { cuda::dense_backward_weights(context, x, dy, dweight, dbias, write); });
}

}  // namespace engine::ops
