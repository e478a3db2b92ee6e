// Formats the errors of the operand checks.
#include "engine/ops/common/operand_checks.h"

#include <string>

#include "engine/ops/common/bf16_dispatch.h"

namespace engine::ops {
namespace {

[[noreturn]] void fail(std::string_view kernel, std::string_view operand, const std::string& text) {
  throw ShapeError(std::string(kernel) + ": " + std::string(operand) + " " + text);
}

}  // namespace

void check_dtype(std::string_view kernel, std::string_view operand, const TensorView& view,
                 DType expected) {
  if (view.dtype != expected) {
    fail(kernel, operand,
         "is " + std::string(to_string(view.dtype)) + ", expected " +
             std::string(to_string(expected)));
  }
  if (!view && view.count() > 0) fail(kernel, operand, "is absent, but the kernel needs it");
}

void check_floating(std::string_view kernel, std::string_view operand, const TensorView& view) {
  const bool cuda = view.device.kind == Device::Kind::kCuda;
  const bool wide = view.dtype == DType::kF32 || view.dtype == DType::kF64;
  if (!wide && !(cuda && is_half(view.dtype))) {
    fail(kernel, operand,
         "is " + std::string(to_string(view.dtype)) + ", expected " +
             (cuda ? "f32, f64, bf16 or f16 on a CUDA device" : "f32 or f64"));
  }
  if (!view && view.count() > 0) fail(kernel, operand, "is absent, but the kernel needs it");
}

void check_stored(std::string_view kernel, std::string_view operand, const TensorView& view) {
  if (view.device.kind == Device::Kind::kCuda || view.dtype != DType::kBF16)
    return check_floating(kernel, operand, view);
  check_dtype(kernel, operand, view, DType::kBF16);
  static_cast<void>(in_bf16(Products::kBF16));
}

void check_shape(std::string_view kernel, std::string_view operand, const TensorView& view,
                 const Shape& expected) {
  if (!(view.shape == expected)) {
    fail(kernel, operand,
         "has the shape " + view.shape.to_string() + ", expected " + expected.to_string());
  }
}

void check_count(std::string_view kernel, std::string_view operand, const TensorView& view,
                 std::int64_t expected) {
  if (view.count() != expected) {
    fail(kernel, operand,
         "has " + std::to_string(view.count()) + " elements (shape " + view.shape.to_string() +
             "), expected " + std::to_string(expected));
  }
}

void check_like(std::string_view kernel, std::string_view operand, const TensorView& view,
                const TensorView& like) {
  check_dtype(kernel, operand, view, like.dtype);
  check_shape(kernel, operand, view, like.shape);
}

void check_context(std::string_view kernel, const KernelContext& context, std::size_t bytes) {
  require(on_cuda(context) || context.threads != nullptr,
          "a kernel context on the CPU has threads");
  require(!on_cuda(context) || context.stream != nullptr,
          "a kernel context on a CUDA device has a stream");
  if (context.scratch.size() < bytes) {
    throw Error(std::string(kernel) + ": scratch is " + std::to_string(context.scratch.size()) +
                " bytes, needs " + std::to_string(bytes));
  }
}

}  // namespace engine::ops
