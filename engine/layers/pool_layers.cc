// Maximum, average and global average pooling. Maximum pooling saves the position of the maximum in
// each window as one byte.
#include <string>

#include "engine/layers/layer_checks.h"
#include "engine/layers/layers.h"
#include "engine/ops/pool/pool2d.h"

namespace engine::layers {
namespace {

// The options, geometry and output shape of both windowed kinds.
class WindowPool : public Layer {
 public:
  WindowPool(const char* kind, const PoolOptions& options)
      : Layer({.kind = kind, .options = stated(options), .stores_bf16_on_cpu = true}),
        options_(options) {
    expect_at_least(kind, "window", options.window, 1);
    expect_at_least(kind, "stride", options.stride, 0);
    expect_at_least(kind, "padding", options.padding, 0);
    if (options.window > 15)
      throw ModelError(std::string(kind) + ": window must be at most 15, not " +
                       std::to_string(options.window));
    if (options.padding > options.window / 2)
      throw ModelError(std::string(kind) + ": padding must be at most half the window (" +
                       std::to_string(options.window / 2) + "), not " +
                       std::to_string(options.padding));
    options_.stride = stride_of(options);
  }

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    const std::int64_t spare =
        options_.ceil_mode ? options_.stride - 1 : 0;  // a window may extend beyond the border by
                                                       // this
    expect_window(inputs[0], options_.window, options_.padding, spare);
    const ops::Pool2dGeometry g = geometry(inputs[0][0], inputs[0][1], inputs[0][2]);
    return {g.out_h(), g.out_w(), g.channels};
  }

 protected:
  ops::Pool2dGeometry geometry(std::int64_t h, std::int64_t w, std::int64_t c) const {
    return {.in_h = h,
            .in_w = w,
            .channels = c,
            .window = options_.window,
            .stride = options_.stride,
            .padding = options_.padding,
            .ceil_mode = options_.ceil_mode};
  }
  ops::Pool2dGeometry geometry(const TensorView& x) const {
    return geometry(x.shape[1], x.shape[2], x.shape[3]);
  }

 private:
  static std::int64_t stride_of(const PoolOptions& options) {
    return options.stride == 0 ? options.window : options.stride;
  }
  static std::vector<LayerOption> stated(const PoolOptions& options) {
    return {{"window", static_cast<double>(options.window)},
            {"stride", static_cast<double>(stride_of(options))},
            {"padding", static_cast<double>(options.padding)},
            {"ceil_mode", options.ceil_mode ? 1.0 : 0.0}};
  }

  PoolOptions options_;
};

class MaxPool final : public WindowPool {
 public:
  explicit MaxPool(const PoolOptions& options) : WindowPool("max_pool2d", options) {}

  LayerMemory memory(const MemoryRequest& r) const override {
    return {.saved = static_cast<std::size_t>(output_shape(r.inputs).count() * r.batch)};
  }
  void forward(const LayerRun& run) const override {
    ops::max_pool2d_forward(run.kernels, {.geometry = geometry(run.inputs[0]),
                                          .x = run.inputs[0],
                                          .y = run.output,
                                          .argmax = run.training ? argmax(run) : TensorView{}});
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      ops::max_pool2d_backward(run.kernels, {.geometry = geometry(run.inputs[0]),
                                             .dy = run.gradients.output,
                                             .argmax = argmax(run),
                                             .dx = run.gradients.inputs[0],
                                             .write = run.gradients.input_writes[0]});
  }

 private:
  static TensorView argmax(const LayerRun& run) {
    return {run.saved.data(), DType::kU8, run.output.shape, run.output.device};
  }
};

class AveragePool final : public WindowPool {
 public:
  explicit AveragePool(const PoolOptions& options) : WindowPool("average_pool2d", options) {}

  void forward(const LayerRun& run) const override {
    ops::average_pool2d_forward(
        run.kernels, {.geometry = geometry(run.inputs[0]), .x = run.inputs[0], .y = run.output});
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      ops::average_pool2d_backward(run.kernels, {.geometry = geometry(run.inputs[0]),
                                                 .dy = run.gradients.output,
                                                 .dx = run.gradients.inputs[0],
                                                 .write = run.gradients.input_writes[0]});
  }
};

class GlobalAveragePool final : public Layer {
 public:
  GlobalAveragePool() : Layer({.kind = "global_average_pool", .stores_bf16_on_cpu = true}) {}
  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_inputs(inputs, 1);
    expect_rank(inputs[0], 3, "[h, w, c]");
    return {inputs[0][2]};
  }
  void forward(const LayerRun& run) const override {
    ops::global_average_pool_forward(run.kernels, run.inputs[0], run.output);
  }
  void backward(const LayerRun& run) const override {
    if (run.gradients.inputs[0])
      ops::global_average_pool_backward(run.kernels, run.gradients.output, run.gradients.inputs[0],
                                        run.gradients.input_writes[0]);
  }
};

}  // namespace

LayerPtr max_pool2d(const PoolOptions& options) { return std::make_unique<MaxPool>(options); }
LayerPtr average_pool2d(const PoolOptions& options) {
  return std::make_unique<AveragePool>(options);
}
LayerPtr global_average_pool() { return std::make_unique<GlobalAveragePool>(); }

}  // namespace engine::layers
