// Checks and dispatch of softmax with cross entropy.
#include "engine/ops/loss/softmax_cross_entropy.h"

#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/loss/softmax_cross_entropy_cpu.h"
#include "engine/ops/loss/softmax_cross_entropy_cuda.h"
#include "engine/ops/loss/softmax_cross_entropy_reference.h"

namespace engine::ops {
namespace {

constexpr std::int64_t kManyClasses = 32;  // below it a row is hardly a vector or two

struct Extents {
  std::int64_t rows, classes;
};

Extents check_matrix(std::string_view kernel, std::string_view operand, const TensorView& view) {
  check_floating(kernel, operand, view);
  if (view.shape.rank() != 2 || view.shape[1] < 1) {
    throw ShapeError(std::string(kernel) + ": " + std::string(operand) + " has the shape " +
                     view.shape.to_string() + ", expected [rows, classes >= 1]");
  }
  return {view.shape[0], view.shape[1]};
}

const std::int32_t* check_labels(std::string_view kernel, const TensorView& labels,
                                 Extents extents) {
  check_dtype(kernel, "labels", labels, DType::kI32);
  check_shape(kernel, "labels", labels, {extents.rows});
  return labels.as<std::int32_t>();
}

void check_label_range(const std::int32_t* labels, Extents extents) {
  for (std::int64_t r = 0; r < extents.rows; ++r) {
    if (labels[r] >= 0 && labels[r] < extents.classes) continue;
    throw InputError(
        "row " + std::to_string(r) + " of the batch has the label " + std::to_string(labels[r]) +
        ", but the model has " + std::to_string(extents.classes) + " classes (labels 0 to " +
        std::to_string(extents.classes - 1) + "): check the data set or the model's last layer");
  }
}

}  // namespace

void softmax_cross_entropy_forward(KernelContext& context, TensorView logits, TensorView labels,
                                   TensorView loss, TensorView gradient, double label_smoothing) {
  constexpr std::string_view kName = "softmax_cross_entropy_forward";
  const Extents extents = check_matrix(kName, "logits", logits);
  const std::int32_t* label = check_labels(kName, labels, extents);
  check_dtype(kName, "loss", loss, wide_dtype(logits.dtype));
  check_shape(kName, "loss", loss, {extents.rows});
  if (gradient) check_like(kName, "gradient", gradient, logits);
  check_context(kName, context);
  const std::int64_t classes = extents.classes;
  // Short rows are few: the reference, in the operands' dtype, is the fast kernel too.
  const auto by_reference = [&]<class T>(T) {
    context.threads->run(extents.rows, [&](std::int64_t first, std::int64_t last, int) {
      reference::softmax_cross_entropy_forward(
          static_cast<const T*>(logits.data) + first * classes, label + first, last - first,
          classes, static_cast<T*>(loss.data) + first,
          gradient ? static_cast<T*>(gradient.data) + first * classes : nullptr,
          static_cast<T>(label_smoothing));
    });
  };
  if (!on_cuda(context)) check_label_range(label, extents);  // there the kernel does
  dispatch(
      context, logits.dtype, [&] { by_reference(double{}); },
      [&] {
        if (classes < kManyClasses) return by_reference(float{});
        isa_table_of_softmax_cross_entropy_table().forward(
            logits.as<float>(), label, extents.rows, classes, loss.as<float>(),
            gradient ? gradient.as<float>() : nullptr, static_cast<float>(label_smoothing),
            *context.threads);
      },
      [&] {
        cuda::softmax_cross_entropy_forward(context, logits, labels, loss, gradient,
                                            label_smoothing);
      });
}

void softmax_cross_entropy_backward(KernelContext& context, TensorView gradient, TensorView dloss,
                                    TensorView dlogits, Write write) {
  constexpr std::string_view kName = "softmax_cross_entropy_backward";
  const Extents extents = check_matrix(kName, "gradient", gradient);
  check_dtype(kName, "dloss", dloss, wide_dtype(gradient.dtype));
  check_shape(kName, "dloss", dloss, {extents.rows});
  check_like(kName, "dlogits", dlogits, gradient);
  check_context(kName, context);
  const std::int64_t classes = extents.classes;
  const auto call = [&]<class T>(T) {
    context.threads->run(extents.rows, [&](std::int64_t first, std::int64_t last, int) {
      reference::softmax_cross_entropy_backward(
          static_cast<const T*>(gradient.data) + first * classes,
          static_cast<const T*>(dloss.data) + first, last - first, classes,
          static_cast<T*>(dlogits.data) + first * classes, write);
    });
  };
  dispatch(
      context, gradient.dtype, [&] { call(double{}); }, [&] { call(float{}); },
      [&] { cuda::softmax_cross_entropy_backward(context, gradient, dloss, dlogits, write); });
}

std::int64_t count_correct(TensorView logits, TensorView labels) {
  const Extents extents = check_matrix("count_correct", "logits", logits);
  const std::int32_t* label = check_labels("count_correct", labels, extents);
  return logits.dtype == DType::kF32
             ? reference::count_correct(logits.as<float>(), label, extents.rows, extents.classes)
             : reference::count_correct(logits.as<double>(), label, extents.rows, extents.classes);
}

std::int64_t count_among_largest(TensorView logits, TensorView labels, std::int64_t k) {
  const Extents extents = check_matrix("count_among_largest", "logits", logits);
  const std::int32_t* label = check_labels("count_among_largest", labels, extents);
  return logits.dtype == DType::kF32
             ? reference::count_among_largest(logits.as<float>(), label, extents.rows,
                                              extents.classes, k)
             : reference::count_among_largest(logits.as<double>(), label, extents.rows,
                                              extents.classes, k);
}

double sum_f64(TensorView values) {
  check_floating("sum_f64", "values", values);
  double sum = 0;
  if (values.dtype == DType::kF32) {
    for (const float value : values.span<float>()) sum += value;
  } else {
    for (const double value : values.span<double>()) sum += value;
  }
  return sum;
}

std::size_t batch_totals_scratch_bytes(Device::Kind device) {
  return dispatch_device(
      device, [] { return std::size_t{0}; }, [] { return cuda::batch_totals_scratch_bytes(); });
}

void add_batch_totals(KernelContext& context, TensorView logits, TensorView labels, TensorView loss,
                      bool top5, BatchTotals* totals) {
  constexpr std::string_view kName = "add_batch_totals";
  const Extents extents = check_matrix(kName, "logits", logits);
  check_labels(kName, labels, extents);
  check_dtype(kName, "loss", loss, wide_dtype(logits.dtype));
  check_shape(kName, "loss", loss, {extents.rows});
  check_context(kName, context, batch_totals_scratch_bytes(context.device.kind));
  dispatch_device(
      context.device.kind,
      [&] {
        totals->loss_sum += sum_f64(loss);
        totals->correct += count_correct(logits, labels);
        totals->rows += extents.rows;
        if (top5) totals->top5 += count_among_largest(logits, labels, 5);
      },
      [&] { cuda::add_batch_totals(context, logits, labels, loss, top5, totals); });
}

}  // namespace engine::ops
