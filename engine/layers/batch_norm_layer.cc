// Batch normalization of images, with an optional fused addition and ReLU, over the samples of this
// replica or of all replicas. Forward saves for backward the mean and the inverse standard
// deviation per channel, in f32 even if x has a narrower type.
//
// Unlike in PyTorch, one value per channel (a last batch of one sample after a global pool) is no
// error. The output is the bias, the gradient of the input is 0, and the running variance stays as
// it is, because one value gives no estimate of it.
#include "engine/ops/norm/batch_norm.h"

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/elementwise/elementwise.h"

namespace engine::layers {
namespace {

class BatchNorm2d final : public Layer {
 public:
  BatchNorm2d(const BatchNormOptions& options, bool synchronized)
      : Layer({.kind = synchronized ? "sync_batch_norm2d" : "batch_norm2d",
               .options = {{"eps", options.eps}},
               .backward_needs = {.inputs = true},
               .fusions = {.relu = true, .residual = true},
               .stores_bf16_on_cpu = true,
               .uses_replicas = synchronized,
               .repeats_from_saved = true}),
        options_(options),
        synchronized_(synchronized) {
    if (!(options.eps > 0))
      throw ModelError("batch_norm2d: eps must be above 0, not " + std::to_string(options.eps));
    if (!(options.momentum >= 0 && options.momentum <= 1))
      throw ModelError("batch_norm2d: momentum must lie in [0, 1], not " +
                       std::to_string(options.momentum));
  }

  LayerPtr in_form(LayerForm form) const override {
    return synchronized_ || form != LayerForm::kSynchronized ? nullptr
                                                             : sync_batch_norm2d(options_);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_rank(inputs[0], 3, "[h, w, c]");
    return inputs[0];
  }

  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    if (!options_.affine) return {};
    return norm_parameters(inputs[0][2]);
  }

  std::vector<BufferSpec> buffers(std::span<const Shape> inputs) const override {
    const Shape channels{inputs[0][2]};
    return {{.name = "running_mean", .shape = channels},
            {.name = "running_var", .shape = channels, .initial = 1},
            {.name = "num_batches_tracked", .shape = {}, .counter = true}};
  }

  LayerMemory memory(const MemoryRequest& r) const override {
    const Shape& x = r.inputs[0];
    const std::size_t statistics = 2 * statistic_bytes(x[2], r.dtype);
    return {.saved = statistics,
            .scratch = align_up(static_cast<std::size_t>(2 * x[2]) * sizeof(double)) +
                       (options_.affine ? 1 : 2) * statistics +
                       ops::batch_norm_scratch_bytes(r.batch * x[0] * x[1], x[2], r.dtype,
                                                     r.threads, r.device)};
  }

  void forward(const LayerRun& run) const override {
    const TensorView x = run.inputs[0];
    KernelContext context = run.kernels;
    Statistics statistics;
    if (run.training) statistics = saved(run);
    // A repeated pass has the statistics of the first one: the running ones, and those of other
    // replicas, are up to date.
    if (!run.repeats) find_statistics(run, context, statistics);
    const TensorView gamma = options_.affine ? run.parameters[0] : filled(context, x, 1),
                     beta = options_.affine ? run.parameters[1] : filled(context, x, 0);
    ops::batch_norm_normalize(context, {.x = x,
                                        .mean = statistics.mean,
                                        .inverse_std = statistics.inverse_std,
                                        .gamma = gamma,
                                        .beta = beta,
                                        .residual = run.residual,
                                        .relu = run.relu,
                                        .y = run.output});
  }

  void backward(const LayerRun& run) const override {
    const TensorView x = run.inputs[0];
    const Statistics statistics = saved(run);
    KernelContext context = run.kernels;
    const TensorView sums = take_scratch(context, DType::kF64, {2, channels(x)});
    ops::batch_norm_backward_sums(context, {.x = x,
                                            .y = run.relu ? run.output : TensorView{},
                                            .dy = run.gradients.output,
                                            .mean = statistics.mean,
                                            .inverse_std = statistics.inverse_std,
                                            .sums = sums,
                                            .dresidual = run.gradients.residual,
                                            .write_residual = run.gradients.residual_write});
    if (options_.affine)
      ops::batch_norm_backward_parameters(context, {.sums = sums,
                                                    .dgamma = run.gradients.parameters[0],
                                                    .dbeta = run.gradients.parameters[1],
                                                    .write = run.gradients.parameter_write});
    // The exchange comes after the parameters' gradients, which are computed from local sums
    // because they are summed over the replicas with all others. It takes place even if this
    // replica does not need the input's gradient, since others may need it.
    const std::int64_t group = exchanges(run)
                                   ? run.statistics.replicas->add(rows(x), sums, context.stream)
                                   : rows(x).count();
    if (!run.gradients.inputs[0]) return;
    if (run.statistics.still) ops::zero(context, sums);  // the batch has not changed the statistics
    const TensorView gamma = options_.affine ? run.parameters[0] : filled(context, x, 1);
    // The residual's gradient is the masked one: this pass is bound by its reads and does not need
    // y.
    const bool masked =
        run.relu && run.gradients.residual && run.gradients.residual_write == Write::kOverwrite;
    ops::batch_norm_backward_data(context,
                                  {.x = x,
                                   .y = run.relu && !masked ? run.output : TensorView{},
                                   .dy = masked ? run.gradients.residual : run.gradients.output,
                                   .mean = statistics.mean,
                                   .inverse_std = statistics.inverse_std,
                                   .gamma = gamma,
                                   .sums = sums,
                                   .rows = group,
                                   .dx = run.gradients.inputs[0],
                                   .write = run.gradients.input_writes[0]});
  }

 private:
  struct Statistics {
    TensorView mean, inverse_std;
  };

  // Writes the statistics that normalize this batch: its own, or in inference the running ones.
  // Takes scratch for those that are not saved.
  void find_statistics(const LayerRun& run, KernelContext& context, Statistics& statistics) const {
    const TensorView x = run.inputs[0];
    if (run.training && !run.statistics.still) {
      const TensorView sums = take_scratch(context, DType::kF64, {2, channels(x)});
      ops::batch_norm_statistics(context, x, sums);
      const std::int64_t group =
          exchanges(run) ? run.statistics.replicas->merge_moments(rows(x), sums, context.stream)
                         : rows(x).count();
      ops::batch_norm_finish_statistics(
          context,
          {.sums = sums,
           .rows = group,
           .eps = options_.eps,
           .momentum = run.statistics.weight < 0 ? options_.momentum : run.statistics.weight,
           .mean = statistics.mean,
           .inverse_std = statistics.inverse_std,
           .running_mean = run.buffers[0],
           .running_var = run.buffers[1]});
      // An empty batch counts as well, so that counters stay equal on all ranks.
      ops::increment(context, run.buffers[2]);
    } else {
      if (!run.training) {
        statistics.mean = take_scratch(context, statistic_dtype(x.dtype), {channels(x)});
        statistics.inverse_std = take_scratch(context, statistic_dtype(x.dtype), {channels(x)});
      }
      ops::batch_norm_from_running(context, {.running_mean = run.buffers[0],
                                             .running_var = run.buffers[1],
                                             .eps = options_.eps,
                                             .mean = statistics.mean,
                                             .inverse_std = statistics.inverse_std});
    }
  }

  // A vector in the place of a parameter.
  static TensorView filled(KernelContext& context, const TensorView& x, double value) {
    const TensorView all = take_scratch(context, statistic_dtype(x.dtype), {channels(x)});
    ops::fill(context, value, all);
    return all;
  }
  static std::int64_t channels(const TensorView& x) { return x.shape[3]; }
  static ReplicaRows rows(const TensorView& x) { return {x.shape[0], x.shape[1] * x.shape[2]}; }
  static DType statistic_dtype(DType dtype) {
    return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  }
  static std::size_t statistic_bytes(std::int64_t channels, DType dtype) {
    return align_up(static_cast<std::size_t>(channels) * size_of(statistic_dtype(dtype)));
  }
  static Statistics saved(const LayerRun& run) {
    const TensorView x = run.inputs[0];
    const TensorView mean{run.saved.data(), statistic_dtype(x.dtype), {channels(x)}, x.device};
    TensorView inverse_std = mean;
    inverse_std.data = run.saved.data() + statistic_bytes(channels(x), x.dtype);
    return {mean, inverse_std};
  }
  bool exchanges(const LayerRun& run) const {
    return run.statistics.replicas != nullptr && synchronized_ && !run.statistics.still;
  }

  BatchNormOptions options_;
  bool synchronized_;
};

}  // namespace

LayerPtr batch_norm2d(const BatchNormOptions& options) {
  return std::make_unique<BatchNorm2d>(options, false);
}
LayerPtr sync_batch_norm2d(const BatchNormOptions& options) {
  return std::make_unique<BatchNorm2d>(options, true);
}

}  // namespace engine::layers
