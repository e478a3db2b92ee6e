// Checks and dispatches softmax with cross entropy.
#include "engine/ops/loss/softmax_cross_entropy.h"

#include <string>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/operand_checks.h"
#include "engine/ops/common/rows.h"
#include "engine/ops/loss/softmax_cross_entropy_cpu.h"
#include "engine/ops/loss/softmax_cross_entropy_cuda.h"
#include "engine/ops/loss/softmax_cross_entropy_reference.h"

namespace engine::ops {
namespace {

RowSizes check_matrix(std::string_view kernel, std::string_view operand, const TensorView& view) {
  check_floating(kernel, operand, view);
  if (view.shape.rank() != 2 || view.shape[1] < 1) {
    throw ShapeError(std::string(kernel) + ": " + std::string(operand) + " has the shape " +
                     view.shape.to_string() + ", expected [rows, classes >= 1]");
  }
  return row_sizes(view);
}

const std::int32_t* check_labels(std::string_view kernel, const TensorView& labels,
                                 const RowSizes& sizes) {
  check_dtype(kernel, "labels", labels, DType::kI32);
  check_shape(kernel, "labels", labels, {sizes.rows});
  return labels.as<std::int32_t>();
}

void check_label_range(const std::int32_t* labels, const RowSizes& sizes) {
  for (std::int64_t r = 0; r < sizes.rows; ++r) {
    if ((labels[r] >= 0 && labels[r] < sizes.width) || labels[r] == kNoLabel) continue;
    throw InputError(
        "row " + std::to_string(r) + " of the batch has the label " + std::to_string(labels[r]) +
        ", but the model has " + std::to_string(sizes.width) + " classes (labels 0 to " +
        std::to_string(sizes.width - 1) + "): check the data set or the model's last layer");
  }
}

}  // namespace

void softmax_cross_entropy_forward(KernelContext& context, const SoftmaxCrossEntropyForward& o) {
  constexpr std::string_view kName = "softmax_cross_entropy_forward";
  const RowSizes sizes = check_matrix(kName, "logits", o.logits);
  const std::int32_t* labels = check_labels(kName, o.labels, sizes);
  check_dtype(kName, "loss", o.loss, wide_dtype(o.logits.dtype));
  check_shape(kName, "loss", o.loss, {sizes.rows});
  if (o.gradient) check_like(kName, "gradient", o.gradient, o.logits);
  if (o.ranks) {
    check_dtype(kName, "ranks", o.ranks, DType::kI32);
    check_shape(kName, "ranks", o.ranks, {sizes.rows});
  }
  check_context(kName, context);
  if (!on_cuda(context))
    check_label_range(labels, sizes);  // on a CUDA device the kernel checks
                                       // them
  dispatch(
      context, o.logits.dtype,
      [&] {
        context.threads->run(sizes.rows, [&](std::int64_t first, std::int64_t last, int) {
          reference::softmax_cross_entropy_forward<double>(o, first, last);
        });
      },
      [&] { isa_table_of_softmax_cross_entropy_table().forward(o, sizes, *context.threads); },
      [&] { cuda::softmax_cross_entropy_forward(context, o); });
}

void softmax_cross_entropy_backward(KernelContext& context, const SoftmaxCrossEntropyBackward& o) {
  constexpr std::string_view kName = "softmax_cross_entropy_backward";
  const RowSizes sizes = check_matrix(kName, "gradient", o.gradient);
  check_dtype(kName, "dloss", o.dloss, wide_dtype(o.gradient.dtype));
  check_shape(kName, "dloss", o.dloss, {sizes.rows});
  check_like(kName, "dlogits", o.dlogits, o.gradient);
  check_context(kName, context);
  const auto call = [&]<class T>(T) {
    context.threads->run(sizes.rows, [&](std::int64_t first, std::int64_t last, int) {
      reference::softmax_cross_entropy_backward<T>(o, first, last);
    });
  };
  dispatch(
      context, o.gradient.dtype, [&] { call(double{}); }, [&] { call(float{}); },
      [&] { cuda::softmax_cross_entropy_backward(context, o); });
}

double sum_f64(TensorView values) {
  check_floating("sum_f64", "values", values);
  const auto sum_of = [&]<class T>(T) {
    double sum = 0;
    for (const T value : values.span<T>()) sum += value;
    return sum;
  };
  return dispatch_dtype(
      values.dtype, [&] { return sum_of(double{}); }, [&] { return sum_of(float{}); });
}

void add_batch_totals(KernelContext& context, const AddBatchTotals& o) {
  constexpr std::string_view kName = "add_batch_totals";
  check_context(kName, context);
  if (o.ranks) {
    check_dtype(kName, "ranks", o.ranks, DType::kI32);
    check_shape(kName, "loss", o.loss, o.ranks.shape);
  }
  dispatch_device(
      context.device.kind,
      [&] {
        BatchTotals batch{.loss_sum = sum_f64(o.loss), .rows = o.loss.count()};
        const auto ranks = o.ranks ? o.ranks.span<std::int32_t>() : std::span<std::int32_t>{};
        for (const std::int32_t rank : ranks) {
          const bool counts = rank != kNoRank;
          batch.rows -= !counts;
          batch.correct += counts && rank < 1;
          batch.top5 += counts && o.top5 && rank < 5;
        }
        for (BatchTotals* totals : {o.totals, o.more}) {
          if (totals == nullptr) continue;
          totals->loss_sum += batch.loss_sum;
          totals->correct += batch.correct;
          totals->rows += batch.rows;
          totals->top5 += batch.top5;
        }
      },
      [&] {
        check_dtype(kName, "loss", o.loss, wide_dtype(o.loss.dtype));
        cuda::add_batch_totals(context, o);
      });
}

}  // namespace engine::ops
